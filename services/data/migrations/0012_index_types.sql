-- Full-text indexes and prices of indexes (docs/decisions/0019-index-types.md).

-- The text search configuration of a full-text index, null for any other; prices as JSON, null where there are none.
alter table document_index
  add column language text,
  add column price_config_text text,
  add column read_price_config_text text;

-- What a full-text index holds of a value: the text of src/values/search-text.ts. What Postgres's parser takes for a part of
-- an address, a path, a tag or a number becomes a space, and the letters whose lower case is longer become that. At most
-- 262,144 bytes, and no part of a character.
create function search_text(value jsonb) returns text
language sql stable parallel safe
return (
  select case
    when octet_length(words) <= 262144 then words
    else convert_from(substr(bytes, 1, 262144 - case
        when get_byte(bytes, 262144) & 192 <> 128 then 0
        when get_byte(bytes, 262143) & 192 <> 128 then 1
        when get_byte(bytes, 262142) & 192 <> 128 then 2
        else 3
      end), 'UTF8')
  end
  from (
    select words, convert_to(words, 'UTF8') as bytes
    from (
      select translate(
        case jsonb_typeof(value)
          when 'string' then value #>> '{}'
          when 'array' then (
            select string_agg(element #>> '{}', E'\n' order by at)
            from jsonb_array_elements(value) with ordinality as e (element, at) where jsonb_typeof(element) = 'string'
          )
        end,
        '<>&#_/\@:?=%~+.-ȺȾİ', '                ⱥⱦi') as words
    ) translated
  ) encoded
);
