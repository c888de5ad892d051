-- Whether writes by keys without Admin cost something (docs/prices.md).
alter table collection add column write_pricing boolean not null default false;
