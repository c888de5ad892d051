-- The number of the last event that published the prices.
create table price_event (
  only_row boolean primary key default true check (only_row),
  sequence bigint not null
);
insert into price_event (sequence) values (0);
