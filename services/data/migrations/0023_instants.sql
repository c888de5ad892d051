-- What counts as an instant of a field of type date: RFC 3339 text with an offset and any number of decimals, of which
-- six count, and days, which are their first instants in UTC. parseInstant() in src/values/instant.ts reads the same
-- texts. Before, texts with more than six decimals, with offsets from 16:00 on, and days compared as text.

-- Seconds since the epoch of an instant or a day; null for any other text.
create or replace function instant_of(value text) returns numeric
language sql immutable strict parallel safe
return case
  when value !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))?$'
    or not pg_input_is_valid(left(value, 10), 'date')
  then null
  when length(value) = 10 then (left(value, 10)::date - date '1970-01-01') * 86400::numeric
  else (left(value, 10)::date - date '1970-01-01') * 86400::numeric
    + substr(value, 12, 2)::int * 3600 + substr(value, 15, 2)::int * 60 + substr(value, 18, 2)::int
    + coalesce('0' || left(substring(value from '[.][0-9]+'), 7), '0')::numeric
    - case
        when right(value, 1) in ('Z', 'z') then 0
        else (left(right(value, 6), 1) || '1')::int
          * (substr(right(value, 6), 2, 2)::int * 3600 + substr(right(value, 6), 5, 2)::int * 60)
      end
end;

-- The number of an app as it stands in tickets: in base 36.
create or replace function pg_temp.base36(number bigint) returns text
language sql
return (
  with recursive digit (rest, text) as (
    select number, ''
    union all
    select rest / 36, substr('0123456789abcdefghijklmnopqrstuvwxyz', (rest % 36)::int + 1, 1) || text from digit where rest > 0
  )
  select text from digit where rest = 0
);

-- The keys of documents that hold such texts are renewed by a job for each collection. It begins when the processes of
-- the release before, which neither know the job nor make the new keys, have ended.
insert into job (ticket_id, app_number, kind, payload, subject, rank, status, not_before, created_at, updated_at, event_sequence)
select 'j' || pg_temp.base36(a.number) || '-'
    || translate(encode(substr(sha256(uuid_send(gen_random_uuid())), 1, 15), 'base64'), '+/', '-_'),
  a.number, 'instants.renew', json_build_object('app_id', a.app_id)::text, a.number::text,
  greatest((select coalesce(min(rank), 0) from job where status = 'Pending'),
           (select coalesce(max(rank), 0) + 1 from job where app_number = a.number and status in ('Pending', 'StoringData'))),
  'Pending', now() + interval '15 minutes', now(), now(), 0
from application a
where exists (
  select from indexed_field f join collection c on c.number = f.collection_number
  where f.app_number = a.number and f.is_date and c.deleted_at is null
);
