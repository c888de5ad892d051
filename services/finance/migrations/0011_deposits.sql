-- How far each chain has been read for deposits.
create table chain_watch (
  chain_id text collate "C" primary key,
  height bigint not null check (height >= 0)
);

-- What arrived at the addresses of wallets.
create table deposit (
  chain_id text collate "C" not null,
  transaction_hash text collate "C" not null,
  event_index int not null,
  app_id text collate "C" not null references wallet,
  amount bigint not null check (amount > 0),
  sender text not null,
  height bigint not null,
  -- The transfer that credited it. Null: the ledger refused it, because the wallet would hold more than 2^53-1.
  transfer_id uuid unique,
  created_at timestamptz not null default clock_timestamp(),
  primary key (chain_id, transaction_hash, event_index)
);
create index deposit_app on deposit (app_id);
create index deposit_refused on deposit (created_at) where transfer_id is null;

-- What is at the addresses of wallets and was not sent to the hot wallet.
create table unswept (
  address text collate "C" primary key,
  address_index int not null,
  amount bigint not null check (amount >= 0)
);
create index unswept_amount on unswept (amount desc);

-- Which transactions sent it there, and how much of it, with their fees.
create table sweep (
  transaction_number bigint primary key references outgoing_transaction,
  amount bigint not null check (amount > 0)
);

create index wallet_auto_payout on wallet (app_id) where auto_payout_enabled;
-- One automatic payout of an application is under way at a time.
create unique index payout_auto on payout (app_id) where trigger = 'auto' and status in ('pending', 'broadcast');
create index payout_auto_history on payout (app_id, created_at) where trigger = 'auto';
-- What health counts.
create index outgoing_transaction_held on outgoing_transaction (number) where state = 'held';
