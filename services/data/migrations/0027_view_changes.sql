-- Whether the changes of the rows of a live view are kept, in a_<n>.view_log, and from which place of its app on they are all
-- there: a follower who has come less far begins anew.
alter table view add column keeps_changes boolean not null default false,
  add column changes_height bigint,
  add column changes_place int,
  -- By this the ids of rows are hidden from those who may know no more than their texts.
  add column row_secret uuid not null default gen_random_uuid();
