-- A blob is visible from the moment that data has committed it. `pending`: its bytes are durable and data may have
-- committed it or not; `stored`: it has; `deleted`: its bytes are removed, or will be as long as object_key is there.
create table blob (
  blob_id text collate "C" primary key,
  app_id text collate "C" not null,
  app_number bigint not null,
  collection text collate "C" not null,
  state text not null default 'pending' check (state in ('pending', 'stored', 'deleted')),
  object_key text collate "C",
  size_bytes bigint not null check (size_bytes >= 0),
  sha256 text not null,
  content_type text not null,
  filename text,
  ticket text collate "C" not null,
  tx_hash text,
  height bigint,
  -- Set while a deletion is under way: the ticket of the commit that deletes the metadata document.
  delete_ticket text collate "C",
  delete_asked_at timestamptz,
  created_at timestamptz not null default now(),
  stored_at timestamptz,
  deleted_at timestamptz,
  check (state = 'deleted' or object_key is not null),
  check (state <> 'stored' or (tx_hash is not null and height is not null))
);
create index blob_of_collection on blob (app_id, collection) where state = 'stored';
create index blob_pending on blob (created_at) where state = 'pending';
create index blob_deleting on blob (delete_asked_at) where state = 'stored' and delete_ticket is not null;
create index blob_removable on blob (deleted_at) where state = 'deleted' and object_key is not null;

-- What each collection holds, and how often others were told.
create table blob_usage (
  app_id text collate "C" not null,
  collection text collate "C" not null,
  size_bytes bigint not null check (size_bytes >= 0),
  blob_count bigint not null check (blob_count >= 0),
  sequence bigint not null,
  primary key (app_id, collection)
);
