-- What users let the platform take from their wallets, by a key each (docs/grants.md).
create table user_grant (
  id uuid primary key,
  address text collate "C" not null,
  -- SHA-256 of the key.
  key_hash bytea not null unique,
  limit_utia bigint not null check (limit_utia between 1 and 9007199254740991),
  -- What was deducted or is being deducted.
  spent_utia bigint not null default 0,
  -- Null: any application.
  allowed_apps text[] collate "C",
  expires_at timestamptz not null,
  created_at timestamptz not null,
  revoked_at timestamptz,
  check (spent_utia between 0 and limit_utia)
);
create index user_grant_address on user_grant (address, created_at);

-- What is deducted under them, each by a part of a transaction of the broker.
create table grant_deduction (
  -- Of the payment.
  id uuid primary key,
  grant_id uuid not null references user_grant (id),
  address text collate "C" not null,
  app_id text collate "C" not null,
  operation_type text not null,
  collection text not null,
  amount bigint not null check (amount between 1 and 9007199254740991),
  recipient text collate "C" not null,
  state text not null check (state in ('pending', 'confirmed', 'failed')),
  -- Another one of its transaction was at fault, or this one: it is tried alone.
  is_single boolean not null default false,
  transaction_number bigint,
  height bigint,
  reason text,
  created_at timestamptz not null,
  updated_at timestamptz not null
);
create index grant_deduction_pending on grant_deduction (is_single desc, created_at, id)
  where state = 'pending' and transaction_number is null;
create index grant_deduction_address on grant_deduction (address) where state = 'pending';
create index grant_deduction_transaction on grant_deduction (transaction_number) where transaction_number is not null;

-- The simulated chain's own.
create table simulated_grant (
  granter text collate "C" not null,
  grantee text collate "C" not null,
  spend_limit bigint not null,
  expires_at timestamptz not null,
  primary key (granter, grantee)
);
