-- The simulated chain: blocks, accounts, mempool and transactions of the node that finance has where no real chain is
-- configured. Nothing of it is money.
create table simulated_chain (
  only_row boolean primary key default true check (only_row),
  chain_id text not null,
  height bigint not null check (height > 0),
  -- The time of the latest block.
  block_at timestamptz not null
);

create table simulated_account (
  address text collate "C" primary key,
  number bigint generated always as identity unique,
  sequence bigint not null default 0 check (sequence >= 0),
  balance bigint not null check (balance >= 0)
);

-- Transactions that wait for a block.
create table simulated_mempool (
  hash text collate "C" primary key,
  place bigint generated always as identity,
  bytes bytea not null,
  sender text collate "C" not null,
  sequence bigint not null,
  -- The first block that may include it.
  due_height bigint not null
);

create table simulated_transaction (
  hash text collate "C" primary key,
  height bigint not null,
  -- 0: it succeeded; otherwise only its fee was taken.
  code int not null
);

create table simulated_transfer (
  hash text collate "C" not null references simulated_transaction,
  event_index int not null,
  -- In the order of the blocks, and in each of its transactions.
  number bigint generated always as identity,
  height bigint not null,
  at timestamptz not null,
  sender text collate "C" not null,
  recipient text collate "C" not null,
  amount bigint not null check (amount > 0),
  memo text not null,
  primary key (hash, event_index)
);
create index simulated_transfer_height on simulated_transfer (height, number);
