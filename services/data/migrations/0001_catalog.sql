-- The catalog: applications, keys, collections, indexes, views, queries. Documents live in tables that the catalog
-- numbers: schema a_<application>, tables c_<collection> (latest versions), h_<collection> (history), v_<table> (views).

create table application (
  number bigint generated always as identity primary key,
  app_id text collate "C" not null unique,
  name text not null,
  description text not null default '',
  owner_address text,
  skills_owner_part text not null default '',
  created_at timestamptz not null,
  updated_at timestamptz not null,
  -- The row stays for ever, so that an app_id is never used again.
  deleted_at timestamptz,
  dropped_at timestamptz
);

-- The head of an application's hash chain. Its lock makes the commits of the application serial; everything that
-- changes what a writer must know (schema, indexes) grows catalog_revision under the same lock.
create table head (
  app_number bigint primary key references application,
  height bigint not null default 0,
  hash bytea not null,
  catalog_revision bigint not null default 1
);

create table app_key (
  key_id text collate "C" primary key,
  app_number bigint not null references application,
  name text not null,
  hash bytea not null unique,
  last_four text not null,
  permissions text[] not null,
  pay_limits text,
  created_at timestamptz not null,
  revoked_at timestamptz
);
create unique index app_key_name on app_key (app_number, name) where revoked_at is null;

create table collection (
  number bigint generated always as identity primary key,
  app_number bigint not null references application,
  name text collate "C" not null,
  namespace text,
  primary_column text,
  sort_column text,
  -- The JSON text of schema_definition, as it came.
  schema_text text,
  read_access text not null check (read_access in ('public', 'private')),
  retention_days int check (retention_days > 0),
  -- Kept by every commit: rows of c_<number>, those of them that are soft-deleted, older versions, bytes of all texts.
  row_count bigint not null default 0,
  deleted_count bigint not null default 0,
  version_count bigint not null default 0,
  size_bytes bigint not null default 0,
  usage_sequence bigint not null default 0,
  last_write_at timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  deleted_at timestamptz,
  dropped_at timestamptz
);
create unique index collection_name on collection (app_number, name) where deleted_at is null;

create table document_index (
  number bigint generated always as identity primary key,
  app_number bigint not null references application,
  collection_number bigint not null references collection,
  name text not null,
  field_name text not null,
  -- As it was asked for: btree, string, number, boolean, date.
  index_type text not null,
  is_unique boolean not null,
  status text not null check (status in ('building', 'ready', 'failed')),
  error text,
  created_at timestamptz not null
);
create unique index document_index_name on document_index (collection_number, name);

create table view (
  number bigint generated always as identity primary key,
  app_number bigint not null references application,
  name text collate "C" not null,
  query_text text not null,
  source_collections text[] not null,
  refresh_mode text not null check (refresh_mode in ('lazy', 'live')),
  variables_text text not null,
  read_access text not null check (read_access in ('public', 'private')),
  status text not null check (status in ('building', 'ready', 'failed')),
  error text,
  -- The table v_<table_number> that holds the rows now; each refresh fills a new one.
  table_number bigint,
  row_count bigint not null default 0,
  created_at timestamptz not null,
  refreshed_at timestamptz
);
create unique index view_name on view (app_number, name);
create sequence view_table_number;

create table query (
  number bigint generated always as identity primary key,
  app_number bigint not null references application,
  name text collate "C" not null,
  source_collection text not null,
  base_query_text text not null,
  parameters_text text not null,
  description text not null,
  version text not null,
  example_request_text text,
  example_response_text text,
  read_access text not null check (read_access in ('public', 'private')),
  created_at timestamptz not null
);
create unique index query_name on query (app_number, name);

-- Long work that this service does: written in the transaction that asks for it, taken by a worker, reported by events.
create table job (
  ticket_id text collate "C" primary key,
  app_number bigint not null references application,
  kind text not null,
  payload text not null,
  status text not null check (status in ('Pending', 'StoringData', 'Completed', 'Failed')),
  error text,
  progress double precision not null default 0,
  progress_log text[] not null default '{}',
  result_text text,
  event_sequence bigint not null default 0,
  attempts int not null default 0,
  leased_until timestamptz,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index job_open on job (created_at) where status in ('Pending', 'StoringData');

-- Answers to requests with an Idempotency-Key, written in the transaction of the change; kept for 24 hours.
create table idempotency (
  caller text collate "C" not null,
  method text not null,
  path text not null,
  key text collate "C" not null,
  content_hash bytea not null,
  -- What is needed to give the same answer: a ticket, or the id of what was made.
  answer text not null,
  at timestamptz not null,
  primary key (caller, key, method, path)
);
create index idempotency_at on idempotency (at);
