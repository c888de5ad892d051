-- What the platform charges. A price is never changed: a new one is valid from a later moment on.
create table price (
  name text collate "C" not null,
  valid_from timestamptz not null,
  amount bigint not null check (amount >= 0),
  primary key (name, valid_from)
);
