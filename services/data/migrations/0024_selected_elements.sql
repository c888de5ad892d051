-- The selected parts of a record, as project() in services/shared/src/json/project.ts gives them; null where nothing is.
-- An array stays one: a selected element keeps its place, and those before it that are not selected are null. It was an
-- object with the places as keys.
create or replace function selected_json(value json, selection jsonb) returns text
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
    select string_agg(coalesce(m.part, 'null'), ',' order by m.at) into parts
    from (select p.at, p.part, max(p.at) filter (where p.part is not null) over () as last
          from (select e.at, selected_json(e.item, coalesce(selection -> 'elements' -> (e.at - 1)::text, to_jsonb(not named))) as part
                from json_array_elements(value) with ordinality e(item, at)) p) m
    where case when named then m.at <= m.last else m.part is not null end;
    return case when parts is not null or not named then '[' || coalesce(parts, '') || ']' end;
  end if;
  return case when named then null else value::text end;
end
$$;
