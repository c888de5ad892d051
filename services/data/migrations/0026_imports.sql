-- Imports of files. The position is moved in the transaction of the commit that stores the records before it.
create table import (
  ticket_id text collate "C" primary key,
  app_number bigint not null references application,
  collection text collate "C" not null,
  -- JSON text, as it was given.
  options_text text not null,
  size_bytes bigint,
  status text collate "C" not null default 'open' check (status in ('open', 'completed', 'failed')),
  -- Bytes of the file that are done, their CRC-32, and the ends of lines among them.
  position bigint not null default 0,
  checksum bigint not null default 0,
  lines bigint not null default 0,
  -- What the reader of the format has to know at that position, JSON text.
  reader_state_text text not null default '{}',
  written bigint not null default 0,
  skipped bigint not null default 0,
  failed bigint not null default 0,
  height bigint not null default 0,
  -- Why it failed, JSON text.
  error_text text,
  -- Whether it was begun by the request that had its file.
  is_one_request boolean not null,
  kept_for interval not null,
  expires_at timestamptz not null,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index import_of_app on import (app_number, created_at desc);
create index import_expiry on import (expires_at);

-- The first errors of each import, as they are answered.
create table import_error (
  ticket_id text collate "C" not null references import on delete cascade,
  number int not null,
  error_text text not null,
  primary key (ticket_id, number)
);
