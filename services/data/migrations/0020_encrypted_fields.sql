-- The keys that encrypt fields of an app, each wrapped by a root key, which is outside of the database (docs/encryption.md).
create table data_key (
  app_number bigint not null,
  version int not null,
  -- The fingerprint of the root key.
  root_key_id text not null,
  wrapped bytea not null,
  created_at timestamptz not null,
  primary key (app_number, version)
);

-- The fields whose values are stored encrypted. They stay so when their index is deleted.
create table encrypted_field (
  app_number bigint not null,
  collection_number bigint not null,
  path text collate "C" not null,
  created_at timestamptz not null,
  primary key (collection_number, path)
);
