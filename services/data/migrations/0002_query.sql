-- What the query compiler calls beside Postgres's own functions.

-- Seconds since the epoch of RFC 3339 text with an offset and at most 6 decimals; null for any other text. It agrees
-- with parseInstant() in src/instant.ts, which makes the keys of indexed dates.
create function instant_of(value text) returns numeric
language sql immutable strict parallel safe
return case
  when value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?([Zz]|[+-](0[0-9]|1[0-5]):[0-5][0-9])$'
    and pg_input_is_valid(left(value, 10), 'date')
  then (left(value, 10)::date - date '1970-01-01') * 86400::numeric
    + substr(value, 12, 2)::int * 3600 + substr(value, 15, 2)::int * 60 + substr(value, 18, 2)::int
    + coalesce('0' || substring(value from '[.][0-9]+'), '0')::numeric
    - case
        when right(value, 1) in ('Z', 'z') then 0
        else (left(right(value, 6), 1) || '1')::int
          * (substr(right(value, 6), 2, 2)::int * 3600 + substr(right(value, 6), 5, 2)::int * 60)
      end
end;

-- How a value of a field of type date compares: RFC 3339 text as the number of its instant, all else as it is.
create function date_key(value jsonb) returns jsonb
language sql immutable strict parallel safe
return case
  when jsonb_typeof(value) = 'string' then coalesce(to_jsonb(trim_scale(instant_of(value #>> '{}'))), value)
  else value
end;

-- Arrays follow scalars and objects follow arrays; jsonb itself sorts an empty array before everything.
create function sort_rank(value jsonb) returns int
language sql immutable strict parallel safe
return case jsonb_typeof(value) when 'array' then 1 when 'object' then 2 else 0 end;

-- A value with what it is found by: the aggregates below give the one whose keys come first or last.
create type keyed_value as (major bigint, minor jsonb, value jsonb);

create function lesser_of(a keyed_value, b keyed_value) returns keyed_value
language sql immutable strict parallel safe
return case when b < a then b else a end;

create function greater_of(a keyed_value, b keyed_value) returns keyed_value
language sql immutable strict parallel safe
return case when b > a then b else a end;

create aggregate first_value_of(keyed_value) (sfunc = lesser_of, stype = keyed_value, combinefunc = lesser_of, parallel = safe);
create aggregate last_value_of(keyed_value) (sfunc = greater_of, stype = keyed_value, combinefunc = greater_of, parallel = safe);

-- The average to 16 significant digits; null over nothing. The factor makes the quotient exact enough to be rounded.
create function average_of(total numeric, count bigint) returns numeric
language sql immutable strict parallel safe
return case
  when count = 0 then null
  else trim_scale(to_char(total * 1.00000000000000000000 / count, '9.999999999999999EEEE')::numeric)
end;
