-- Writes whose prices are held, by their tickets: closed before they were committed, or indexes that were made. That a commit was made is in the
-- commits of its application.
create table held_write (
  ticket_id text collate "C" primary key,
  is_done boolean not null,
  at timestamptz not null default clock_timestamp()
);
create index held_write_at on held_write (is_done, at);
