-- Live views: their rows change in the transaction of the write (docs/decisions/0022-live-views.md). A live view is whole
-- while it has a table; a broken one has none until it is built again.
alter table view drop constraint view_status_check;
alter table view add constraint view_status_check check (status in ('building', 'ready', 'failed', 'broken'));

-- Writers look for the live views of a collection with each look-up of the collection.
create index view_live on view (app_number) where refresh_mode = 'live';

-- The text of a value in one spelling: equal values have equal texts, so 1.0 is 1.
create function canonical_json(value jsonb) returns text
language plpgsql immutable strict parallel safe
as $$
begin
  case jsonb_typeof(value)
    when 'number' then return trim_scale(value::numeric)::text;
    when 'array' then
      return '[' || coalesce((select string_agg(canonical_json(e.item), ',' order by e.at)
                              from jsonb_array_elements(value) with ordinality e(item, at)), '') || ']';
    when 'object' then
      return '{' || coalesce((select string_agg(to_json(m.key)::text || ':' || canonical_json(m.item), ',' order by m.at)
                              from jsonb_each(value) with ordinality m(key, item, at)), '') || '}';
    else return value::text;
  end case;
end
$$;

-- The part of a value in the id of a group: it sorts as the values do, and ends in a digest where the key is not the value.
create function group_part(value jsonb) returns text
language plpgsql stable strict parallel safe
as $$
begin
  if jsonb_typeof(value) in ('array', 'object') or jsonb_typeof(value) = 'string' and octet_length(value #>> '{}') > 256 then
    return encode(substr(sort_key(value), 1, 64), 'hex') || 'g'
      || encode(sha256(convert_to(canonical_json(value), 'UTF8')), 'hex');
  end if;
  return encode(sort_key(value), 'hex');
end
$$;

-- The id of a group, which a btree can hold however many values there are.
create function group_id(part text) returns text
language sql immutable strict parallel safe
return case
  when octet_length(part) <= 1024 then part
  else left(part, 900) || 'g' || encode(sha256(convert_to(part, 'UTF8')), 'hex')
end;

-- The selected parts of a record, as project() in services/shared/src/json/project.ts gives them; null where nothing is.
-- `selection` is true for all, false for nothing, or {"named": boolean, "members": {…}, "elements": {…}}.
create function selected_json(value json, selection jsonb) returns text
language plpgsql immutable strict parallel safe
as $$
declare
  named boolean;
  parts text;
begin
  if jsonb_typeof(selection) = 'boolean' then
    return case when selection::boolean then value::text end;
  end if;
  named := (selection -> 'named')::boolean;
  if json_typeof(value) = 'object' then
    select string_agg(to_json(m.key)::text || ':' || m.part, ',' order by m.at) into parts
    from (select e.key, e.at, selected_json(e.item, coalesce(selection -> 'members' -> e.key, to_jsonb(not named))) as part
          from json_each(value) with ordinality e(key, item, at)) m
    where m.part is not null;
    return case when parts is not null or not named then '{' || coalesce(parts, '') || '}' end;
  elsif json_typeof(value) = 'array' then
    select string_agg(case when named then '"' || m.at - 1 || '":' else '' end || m.part, ',' order by m.at) into parts
    from (select e.at, selected_json(e.item, coalesce(selection -> 'elements' -> (e.at - 1)::text, to_jsonb(not named))) as part
          from json_array_elements(value) with ordinality e(item, at)) m
    where m.part is not null;
    return case when parts is null and named then null when named then '{' || parts || '}' else '[' || coalesce(parts, '') || ']' end;
  end if;
  return case when named then null else value::text end;
end
$$;

-- Ends the statement of a change that would touch more rows of one view than a write may.
create function assert_view_change(touched bigint) returns boolean
language plpgsql immutable strict
as $$
begin
  if touched > 10000 then
    raise exception 'a change touches % rows of a live view', touched using errcode = 'GV001';
  end if;
  return true;
end
$$;
