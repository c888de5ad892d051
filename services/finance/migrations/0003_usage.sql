-- What each collection holds, and what keeping it has cost so far: told by the events of the data and blobs services.
create table collection_usage (
  app_id text collate "C" not null,
  collection text collate "C" not null,
  -- The data service's number of the collection; a later collection of the same name has a higher one. 0: not heard of.
  number bigint not null default 0,
  retention_days int,
  document_count bigint not null default 0,
  data_bytes bigint not null default 0 check (data_bytes >= 0),
  data_at timestamptz not null,
  blob_bytes bigint not null default 0 check (blob_bytes >= 0),
  blob_at timestamptz not null,
  -- When the first bytes came; the free days count from here.
  began_at timestamptz,
  -- bytes x milliseconds x utia per GiB-day, up to data_at and blob_at. Whole and exact: a division takes place only
  -- when somebody looks, so that a small collection does not round to nothing for ever.
  accrued numeric not null default 0 check (accrued >= 0 and accrued = trunc(accrued)),
  deleted_at timestamptz,
  primary key (app_id, collection)
);

-- Applications that are gone, with all events about them that are still on their way. An id is never used again.
create table deleted_app (
  app_id text collate "C" primary key,
  at timestamptz not null
);

-- What keeping data costs, since when; as asked of the payments service. The first price holds for all time before it.
create table retention_price (
  number int generated always as identity primary key,
  since timestamptz not null,
  utia_per_gib_day bigint not null check (utia_per_gib_day >= 0),
  free_days int not null check (free_days >= 0)
);
