-- Units of an asset for a TIA. A rate is never changed: the latest one of an asset is valid, and quotes name theirs.
create table rate (
  revision bigint primary key generated always as identity,
  asset text collate "C" not null,
  units_per_tia numeric(78) not null check (units_per_tia > 0),
  valid_from timestamptz not null default clock_timestamp()
);
create index rate_of_asset on rate (asset, revision desc);

-- A payment that was presented to be settled: one row for each, whatever it was presented for and however often.
create table claim (
  id uuid primary key,
  ticket_id text collate "C" not null unique,
  -- What makes the payment unique on its network: the same two move the same money. The key of a refused payment has its id at the end.
  scope text collate "C" not null,
  key text collate "C" not null,
  -- What it pays for. No application: requirements of somebody else.
  app_id text collate "C",
  request_hash bytea not null,
  quote_id text collate "C" unique,
  amount_utia bigint not null check (amount_utia >= 0),
  app_share_ppm integer not null,
  -- How it pays.
  network text collate "C" not null,
  asset text collate "C" not null,
  amount numeric(78) not null,
  payer text collate "C" not null,
  proof jsonb not null,
  -- From then on no block can include it.
  valid_until timestamptz not null,
  state text collate "C" not null check (state in ('claimed', 'settling', 'settled', 'granted', 'refused')),
  -- The process that settles it, for a limited time.
  owner uuid,
  owner_until timestamptz,
  -- The transaction, as it was committed before it was sent.
  transaction_bytes bytea,
  transaction_hash text collate "C",
  block_height bigint,
  settled_at timestamptz,
  granted_at timestamptz,
  -- When the ledger had its amount.
  credited_at timestamptz,
  refused_because text,
  -- SHA-256 of the payment as it was presented.
  fingerprint bytea not null,
  -- Of a request that may be repeated: a hash of its identifier, and what it was answered with.
  identifier bytea,
  answer bytea,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  unique (scope, key),
  check ((state = 'claimed') or (state = 'refused') or (transaction_bytes is not null and transaction_hash is not null)),
  check ((state in ('settled', 'granted')) = (settled_at is not null)),
  check ((state = 'granted') = (granted_at is not null)),
  check ((state = 'refused') = (refused_because is not null))
);
create unique index claim_of_identifier on claim (app_id, identifier) where identifier is not null;
create index claim_of_fingerprint on claim (fingerprint);
create index claim_to_settle on claim (owner_until) where state in ('claimed', 'settling');
create index claim_to_credit on claim (settled_at) where credited_at is null and settled_at is not null and app_id is not null;
create index claim_under_way on claim (network, payer) where state in ('claimed', 'settling');
create index claim_to_forget on claim (valid_until);

-- The simulated EVM network: the authorizations that it has executed.
create table simulated_evm_transfer (
  height bigint primary key generated always as identity,
  authorizer text collate "C" not null,
  nonce text collate "C" not null,
  hash text collate "C" not null,
  recipient text collate "C" not null,
  value numeric(78) not null check (value >= 0),
  included_at timestamptz not null default clock_timestamp(),
  unique (authorizer, nonce)
);
