-- The IP address that text is, null where it is none: four decimal octets without leading zeros, or RFC 4291 text
-- without zone and prefix length. An IPv4-mapped IPv6 address is the IPv4 address. No text raises an error: what is cast
-- was checked before.
create function address_of(value text) returns inet
language plpgsql stable strict parallel safe
as $$
declare
  address inet;
  tail text;
begin
  -- No address is longer.
  if length(value) > 45 or strpos(value, '/') > 0 or not pg_input_is_valid(value, 'inet') then
    return null;
  end if;
  address := value::inet;
  if family(address) = 4 then
    -- Postgres also reads leading zeros, which others take for octal.
    return case when host(address) = value then address end;
  end if;
  if strpos(value, '.') > 0 then
    -- An IPv4 address at the end, of which Postgres also reads fewer octets.
    tail := reverse(split_part(reverse(value), ':', 1));
    if not pg_input_is_valid(tail, 'inet') or host(tail::inet) <> tail then
      return null;
    end if;
  end if;
  return case when address <<= '::ffff:0:0/96'::inet then '0.0.0.0'::inet + (address - '::ffff:0:0'::inet) else address end;
end
$$;

-- The same for the key of an indexed field, without reading the document: no address has a truncated key.
create function key_address(key bytea) returns inet
language sql stable parallel safe
return address_of(
  case when substr(key, 1, 1) = '\x20'::bytea and octet_length(key) <= 46 then convert_from(substr(key, 2), 'UTF8') end
);

-- Sets of values that filters name (inDataset). Their values are in the table d_<table_number> of the schema of the app; a
-- replacement makes another table.
create table dataset (
  number bigint generated always as identity primary key,
  app_number bigint not null references application,
  name text collate "C" not null,
  table_number bigint not null,
  value_count int not null,
  -- The JSON text of the values, as it came.
  values_text text not null,
  updated_at timestamptz not null,
  unique (app_number, name)
);
create sequence dataset_table_number;

-- Addresses by country (inCountry), as the file of COUNTRY_NETWORKS_FILE has them: ranges that do not overlap.
create table country_range (
  first inet primary key,
  last inet not null,
  country text collate "C" not null
);
-- One row: which file the ranges are from.
create table country_file (
  only_row boolean primary key default true check (only_row),
  sha256 bytea not null,
  range_count int not null,
  loaded_at timestamptz not null
);
insert into country_file (sha256, range_count, loaded_at) values ('', 0, now());

-- The country of an address, null where no range has it.
create function country_of(address inet) returns text
language plpgsql stable strict parallel safe
as $$
begin
  return (
    select case when r.last >= address then r.country end
    from country_range r where r.first <= address order by r.first desc limit 1
  );
end
$$;
