-- Whether the changes of the rows of a live view are logged, in a_<n>.view_log, and behind which place of its app the log
-- is complete: a follower who has seen less begins anew.
alter table view add column keeps_changes boolean not null default false,
  add column changes_height bigint,
  add column changes_place int;
