-- Versions of a predefined query are stored beside each other. The newest is the one created last: versions are made under
-- the lock of their app, so their numbers grow in the order of their creation.
create unique index query_version on query (app_number, name, version);
drop index query_name;
