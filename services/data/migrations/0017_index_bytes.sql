-- What the indexes of a collection take, as of their last measurement, and what the last usage event has published of it.
alter table collection add column index_bytes bigint not null default 0;
alter table collection add column published_index_bytes bigint not null default 0;
