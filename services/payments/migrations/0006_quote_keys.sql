-- Several keys of the MAC in quotes: a new one from time to time, beside those whose quotes are still good for something.
alter table quote_key
  drop column only_row,
  add column revision bigint primary key generated always as identity,
  add column valid_from timestamptz not null default clock_timestamp();
