-- Data's number of the collection that a blob was committed to: a later collection of the same name has a higher one.
-- Null for blobs from before.
alter table blob add column collection_number bigint;

-- What each collection holds, and how often that was published. Blobs without a number count in blob_usage, until their
-- name has a row here; from then on in that one, which counts_in says.
create table numbered_blob_usage (
  app_id text collate "C" not null,
  collection text collate "C" not null,
  collection_number bigint not null,
  size_bytes bigint not null check (size_bytes >= 0),
  blob_count bigint not null check (blob_count >= 0),
  sequence bigint not null,
  primary key (app_id, collection, collection_number)
);
alter table blob_usage add column counts_in bigint;
