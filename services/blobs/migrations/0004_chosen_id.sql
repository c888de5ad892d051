-- The id by which clients know a blob that they have uploaded under an id of their own; null where that is blob_id, which
-- stays unique among all applications. The release before, which finds blobs by blob_id alone, cannot take one for another.
alter table blob add column chosen_id text collate "C";
create index blob_chosen on blob (app_id, collection, chosen_id) where chosen_id is not null;
-- The height of the latest deletion of this id that came while the outcome of the upload was unknown. The upload counts
-- as deleted if its commit turns out to be of a lower height.
alter table blob add column deletion_height bigint;
