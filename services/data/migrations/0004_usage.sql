-- What the last usage event of a collection told: a collection whose counters differ has something to tell.
alter table collection add column published_documents bigint not null default 0;
alter table collection add column published_bytes bigint not null default 0;
