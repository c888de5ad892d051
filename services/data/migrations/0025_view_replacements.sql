-- A changed view is built beside the old one, in a row of its own whose name no view can have (~ and the name), and takes its
-- place when it is filled.
alter table view add column replaces bigint unique references view on delete cascade;
