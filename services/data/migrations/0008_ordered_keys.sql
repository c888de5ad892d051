-- Index keys become bytes that sort as values do, and each indexed field has one column for them, which all of its
-- indexes share (docs/decisions/0016-ordered-keys.md). The functions make the same bytes as src/values/ordered-key.ts.
-- Those that are not immutable are stable because convert_to is; Postgres inlines them.

-- The key of a string. In UTF-8 the least byte after a whole character that no text has is ff.
create function string_key(value text) returns bytea
language sql stable parallel safe
return case
  when octet_length(value) > 256 then '\x20'::bytea || substr(convert_to(value, 'UTF8'), 1, 256) || '\xff'::bytea
  else '\x20'::bytea || convert_to(value, 'UTF8')
end;

-- A numeric travels as its number of digits, the power of the first, its sign, its scale (two bytes each), and digits in
-- base 10,000.
create function negative_number_key(value numeric) returns bytea
language sql immutable strict parallel safe
return set_byte('\x3000'::bytea, 1, (383 - get_byte(numeric_send(value), 3)) % 256)
  || (select string_agg(int2send((-2 - 256 * get_byte(sent, 8 + 2 * at) - get_byte(sent, 9 + 2 * at))::int2), ''::bytea order by at)
      from numeric_send(value) sent, generate_series(0, 256 * get_byte(sent, 0) + get_byte(sent, 1) - 1) at)
  || '\xffff'::bytea;

create function number_key(value numeric) returns bytea
language sql immutable parallel safe
return case sign(value)
  when 0 then '\x31'::bytea
  when 1 then set_byte('\x3200'::bytea, 1, (get_byte(numeric_send(value), 3) + 128) % 256) || substr(numeric_send(value), 9)
  else negative_number_key(value)
end;

-- The key of a value; null stands for a missing one.
create function sort_key(value jsonb) returns bytea
language sql stable parallel safe
return case jsonb_typeof(value)
  when 'string' then string_key(value #>> '{}')
  when 'number' then number_key(value::numeric)
  when 'boolean' then case when value::boolean then '\x41'::bytea else '\x40'::bytea end
  when 'array' then '\x50'::bytea
  when 'object' then '\x60'::bytea
  else '\xf0'::bytea
end;

-- The key of RFC 3339 text in a field of type date; null for any other text.
create function instant_key(value text) returns bytea
language sql immutable strict parallel safe
return '\x10'::bytea || int8send((instant_of(value) * 1000000)::int8 # '-9223372036854775808'::int8);

-- The same as sort_key for a field of type date.
create function date_sort_key(value jsonb) returns bytea
language sql stable parallel safe
return case jsonb_typeof(value)
  when 'string' then coalesce(instant_key(value #>> '{}'), string_key(value #>> '{}'))
  else sort_key(value)
end;

-- How a key sorts where the order descends: read backwards, missing and null come last.
create function descending_key(key bytea) returns bytea
language sql immutable parallel safe
return case when key = '\xf0'::bytea then ''::bytea else key end;

-- The fields that indexes of a collection are over: each has the column f_<number> in the table of documents. A field of
-- type date has instants for keys, so the same path may be there twice.
create table indexed_field (
  number bigint generated always as identity primary key,
  app_number bigint not null references application,
  collection_number bigint not null references collection,
  path text collate "C" not null,
  is_date boolean not null,
  unique (collection_number, path, is_date)
);

-- In the order of the index.
alter table document_index add column field_numbers bigint[];

-- Indexes of before lose their columns and are built again; unique values keep theirs, so they stay unique meanwhile.
with field as (
  select i.app_number, i.collection_number, i.number as index_number, f.path, f.at,
    case
      when i.index_type in ('btree', 'composite')
        then coalesce(c.schema_text::jsonb #>> array['fields', f.path, 'type'] = 'date', false)
      else i.index_type = 'date'
    end as is_date
  from document_index i join collection c on c.number = i.collection_number,
    unnest(coalesce(i.fields, array[i.field_name])) with ordinality as f (path, at)
), added as (
  insert into indexed_field (app_number, collection_number, path, is_date)
  select distinct app_number, collection_number, path, is_date from field
  returning number, collection_number, path, is_date
)
update document_index i set field_numbers = of_index.numbers
from (
  select field.index_number, array_agg(added.number order by field.at) as numbers
  from field join added using (collection_number, path, is_date) group by field.index_number
) of_index
where i.number = of_index.index_number;

alter table document_index alter column field_numbers set not null;

do $$
declare
  found record;
  changes text;
begin
  for found in
    select n.nspname as app, t.relname as name, t.oid, substr(t.relname, 3)::bigint as number
    from pg_class t join pg_namespace n on n.oid = t.relnamespace
    where n.nspname ~ '^a_[0-9]+$' and t.relkind = 'r' and t.relname ~ '^c_[0-9]+$'
  loop
    select string_agg(change, ', ') into changes from (
      select format('drop column %I', attname) as change from pg_attribute
      where attrelid = found.oid and not attisdropped and attname ~ '^k_[0-9]+(_[0-9]+)?$'
      union all
      select format('add column f_%s bytea not null default %L', number, '\xf0') from indexed_field
      where collection_number = found.number
    ) all_changes;
    if changes is not null then
      execute format('alter table %I.%I %s', found.app, found.name, changes);
    end if;
  end loop;
end
$$;

-- The number of an app as it stands in tickets: in base 36.
create function pg_temp.base36(number bigint) returns text
language sql
return (
  with recursive digit (rest, text) as (
    select number, ''
    union all
    select rest / 36, substr('0123456789abcdefghijklmnopqrstuvwxyz', (rest % 36)::int + 1, 1) || text from digit where rest > 0
  )
  select text from digit where rest = 0
);

update document_index i set status = 'building'
from collection c where c.number = i.collection_number and c.deleted_at is null and i.status = 'ready';

-- A build that waits already is the one. The event with which others learn of a job is the first that its worker writes.
insert into job (ticket_id, app_number, kind, payload, subject, rank, status, created_at, updated_at, event_sequence)
select 'j' || pg_temp.base36(i.app_number) || '-'
    || translate(encode(substr(sha256(uuid_send(gen_random_uuid())), 1, 15), 'base64'), '+/', '-_'),
  i.app_number, 'index.build',
  json_build_object('index', i.number::text, 'app_id', a.app_id, 'collection', c.name)::text, i.number::text,
  greatest((select coalesce(min(rank), 0) from job where status = 'Pending'),
           (select coalesce(max(rank), 0) from job where app_number = i.app_number and status in ('Pending', 'StoringData')))
    + row_number() over (partition by i.app_number order by i.number),
  'Pending', now(), now(), 0
from document_index i
join collection c on c.number = i.collection_number
join application a on a.number = i.app_number
where i.status = 'building' and c.deleted_at is null
on conflict (app_number, kind, subject) where status = 'Pending' and subject is not null do nothing;
