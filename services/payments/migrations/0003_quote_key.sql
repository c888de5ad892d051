-- The key of the MAC in quotes, made by the first process that starts and shared by all.
create table quote_key (
  only_row boolean primary key default true check (only_row),
  key bytea not null check (octet_length(key) = 32)
);
