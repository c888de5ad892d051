-- The collections that a predefined query joins, and those of them that an administrator shows although they are private.
alter table query
  add column joined_collections text[] not null default '{}',
  add column shown_collections text[] not null default '{}';
