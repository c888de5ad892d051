-- The bytes of blobs. Blobs of one app with the same bytes use one object. A row is there before its object is, and
-- until its object is gone.
create table object (
  object_key text collate "C" primary key,
  app_id text collate "C" not null,
  sha256 text not null,
  size_bytes bigint not null check (size_bytes >= 0),
  -- Whether further blobs of the app with the same bytes use it. Its bytes are certainly there.
  is_shared boolean not null default false,
  -- Set when no blob uses it any more: its bytes are to be removed, and then this row.
  released_at timestamptz,
  created_at timestamptz not null default now()
);
create unique index object_of_content on object (app_id, sha256, size_bytes) where is_shared and released_at is null;
create index object_released on object (released_at) where released_at is not null;
create index blob_of_object on blob (object_key) where object_key is not null;

insert into object (object_key, app_id, sha256, size_bytes, is_shared, created_at)
select object_key, app_id, sha256, size_bytes,
  state = 'stored' and row_number() over (partition by app_id, sha256, size_bytes, state order by created_at, blob_id) = 1,
  created_at
from blob where object_key is not null;

-- Who the objects in a shared bucket belong to.
create table installation (
  is_only boolean primary key default true check (is_only),
  id uuid not null default gen_random_uuid()
);
insert into installation default values;
