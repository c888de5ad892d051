-- Each commit keeps the SHA-256 of each of its texts, one after the other in the order of its ids, so that its content hash
-- can be checked after the texts were purged, erased or dropped. Null where a text was gone before this migration.
-- Documents get an index by which a purge finds what is past its retention without reading the table.
do $$
declare
  app record;
  found record;
begin
  create temporary table text_hash (ordinal bigint, place int, hash bytea) on commit drop;
  create temporary table blob_hash (ordinal bigint, hash bytea) on commit drop;
  for app in
    select n.nspname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname ~ '^a_[0-9]+$' and c.relkind = 'r' and c.relname = 'commits'
  loop
    execute format('alter table %I.commits add column if not exists hashes bytea', app.name);
    execute format('alter table %I.commits alter column hashes set storage external', app.name);
    truncate text_hash, blob_hash;
    for found in
      select c.relname as name, substr(c.relname, 3) as number from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = app.name and c.relkind = 'r' and c.relname ~ '^[ch]_[0-9]+$'
    loop
      execute format(
        'insert into text_hash select ordinal, place, sha256(convert_to(body, ''UTF8'')) from %I.%I', app.name, found.name);
      -- The first link of an upload has the hash of its bytes, which the metadata document of the second names.
      execute format(
        'insert into blob_hash select coalesce(u.ordinal, u.height), decode(d.body::jsonb ->> ''sha256'', ''hex'')
         from %1$I.commits u join %1$I.commits m on m.height = u.height + 1
           join %1$I.%2$I d on d.ordinal = coalesce(m.ordinal, m.height) and d.id = m.ids[1]
         where u.operation = ''upload'' and u.ticket_id is not null', app.name, found.name);
      if found.name like 'c%' then
        execute format('create index if not exists b_%s on %I.%I using brin (updated_at) with (autosummarize = on)',
          found.number, app.name, found.name);
      end if;
    end loop;
    execute format(
      'update %I.commits c set hashes = t.hashes
       from (select ordinal, count(*) as texts, string_agg(hash, ''''::bytea order by place) as hashes
             from text_hash group by ordinal) t
       where coalesce(c.ordinal, c.height) = t.ordinal and cardinality(c.ids) = t.texts', app.name);
    execute format(
      'update %I.commits c set hashes = b.hash from blob_hash b
       where coalesce(c.ordinal, c.height) = b.ordinal and octet_length(b.hash) = 32 and c.hashes is null', app.name);
  end loop;
end
$$;
