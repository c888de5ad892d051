-- Documents carried the height of their commit. A bulk is written before its height is known, so they carry an ordinal
-- instead: it grows with the height, but may leave numbers out. Commits from before have none: it was their height.
alter table head add column ordinal bigint not null default 0;
update head set ordinal = height;

do $$
declare
  found record;
begin
  for found in
    select n.nspname as app, c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname ~ '^a_[0-9]+$' and c.relkind = 'r'
  loop
    if found.name = 'commits' then
      execute format('alter table %I.commits add column ordinal bigint', found.app);
    elsif found.name ~ '^[ch]_[0-9]+$' then
      execute format('alter table %I.%I rename column height to ordinal', found.app, found.name);
    end if;
  end loop;
end
$$;
