-- What each collection holds, and what keeping it has cost so far, by the events of the data and blobs services. Of a name
-- that was used again each collection is a generation with a row of its own, so that a late event of the one changes
-- nothing of the other. Takes the place of collection_usage, which the release before this one still writes.
create table collection_generation (
  app_id text collate "C" not null,
  collection text collate "C" not null,
  -- The data service's number of the collection. 0: known only by an event of blobs that has none.
  number bigint not null,
  retention_days int,
  document_count bigint not null,
  data_bytes bigint not null check (data_bytes >= 0),
  data_at timestamptz not null,
  -- Settled up to blob_at; what is known of later times is in blob_ahead, pairs of bytes and milliseconds since 1970.
  blob_bytes bigint not null check (blob_bytes >= 0),
  blob_at timestamptz not null,
  blob_ahead jsonb not null,
  -- When the first bytes came; the free days count from here.
  began_at timestamptz,
  -- bytes x milliseconds x utia per GiB-day, whole and exact, see collection_usage.
  accrued numeric not null check (accrued >= 0 and accrued = trunc(accrued)),
  deleted_at timestamptz,
  primary key (app_id, collection, number)
);

insert into collection_generation
select app_id, collection, number, retention_days, document_count, data_bytes, data_at,
  case when deleted_at is null then blob_bytes else 0 end, blob_at, '[]', began_at, accrued, deleted_at
from collection_usage;
