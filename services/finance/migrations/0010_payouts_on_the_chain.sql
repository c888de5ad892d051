-- Transactions that finance signs. The bytes are committed before they are sent for the first time, and another transaction
-- takes the place of one only when no block can include that any more.

create table chain_sender (
  address text collate "C" primary key,
  -- Of the next transaction to be signed.
  next_sequence bigint not null check (next_sequence >= 0),
  -- Why nothing is signed until a person has resolved it.
  stopped_because text,
  -- What is missing of the funds for the next transaction.
  missing_utia bigint check (missing_utia > 0)
);

create table outgoing_transaction (
  number bigint generated always as identity primary key,
  sender text collate "C" not null references chain_sender,
  sequence bigint not null check (sequence >= 0),
  -- SHA-256 of the bytes as upper-case hex.
  hash text collate "C" not null unique check (hash ~ '^[0-9A-F]{64}$'),
  bytes bytea not null,
  -- The last block that may include it.
  timeout_height bigint not null check (timeout_height > 0),
  fee bigint not null check (fee >= 0),
  -- `signed` → `broadcast` → `confirmed` or, included without success, `failed`. `expired`: no block can include it.
  -- `held`: what the chain says fits nothing, and a person decides.
  state text not null check (state in ('signed', 'broadcast', 'held', 'confirmed', 'failed', 'expired')),
  -- The height beyond the timeout at which a node did not find the hash first.
  absent_height bigint,
  -- The block that includes it.
  height bigint,
  -- Of the chain; 0: it succeeded.
  code int,
  error text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp(),
  check ((state in ('confirmed', 'failed')) = (height is not null and code is not null))
);
-- Of each sender a sequence is used once, and one transaction is in flight.
create unique index outgoing_transaction_sequence on outgoing_transaction (sender, sequence) where state <> 'expired';
create unique index outgoing_transaction_open on outgoing_transaction (sender)
  where state in ('signed', 'broadcast', 'held');

alter table payout
  -- The transfer that holds the amount until the payout is final. Null: of a row that no payout was started for.
  add column hold_id uuid unique,
  -- The transaction that pays it now, or has; null while it waits for one.
  add column transaction_number bigint references outgoing_transaction,
  -- It is sent by itself, because a transaction with others has failed.
  add column is_single boolean not null default false;
create index payout_waiting on payout (is_single desc, created_at, id)
  where status = 'pending' and transaction_number is null and hold_id is not null;
create index payout_transaction on payout (transaction_number) where transaction_number is not null;
-- Of those that are not final, for health.
create index payout_open on payout (created_at) where status in ('pending', 'broadcast') and hold_id is not null;

-- Which payouts each transaction was signed for, those that expired or failed included.
create table payout_attempt (
  transaction_number bigint not null references outgoing_transaction,
  payout_id uuid not null references payout,
  primary key (transaction_number, payout_id)
);
