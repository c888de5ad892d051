-- What was deducted under a user's grant, without a signature for each operation.
create table authz_transaction (
  number bigint generated always as identity primary key,
  transaction_hash text not null,
  user_address text collate "C" not null,
  app_id text collate "C" not null,
  operation_type text not null,
  collection text not null,
  amount bigint not null check (amount between 0 and 9007199254740991),
  status text not null,
  block_height bigint not null check (block_height between 0 and 9007199254740991),
  created_at timestamptz not null default now()
);
create index authz_transaction_user on authz_transaction (user_address, created_at desc, number desc);
create index authz_transaction_app on authz_transaction (app_id, created_at desc, number desc);
