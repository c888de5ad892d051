-- The account that pays the gas on an EVM network, and the nonce of its next transaction. Its row is locked while one is signed.
create table evm_sender (
  network text collate "C" not null,
  address text collate "C" not null,
  next_nonce bigint not null check (next_nonce >= 0),
  primary key (network, address)
);

-- What it has signed, without gaps in the nonces: each is sent again until the network has included it, or another one with its nonce.
create table evm_transaction (
  network text collate "C" not null,
  address text collate "C" not null,
  nonce bigint not null check (nonce >= 0),
  -- Of the first transaction with this nonce: the claim that it settles has it.
  first_hash text collate "C" not null,
  -- The authorization was not used up to this block.
  since_height bigint not null,
  -- Of the latest one, with the highest fees.
  bytes bytea not null,
  hash text collate "C" not null,
  signed_at timestamptz not null default clock_timestamp(),
  sent_at timestamptz,
  primary key (network, address, nonce),
  foreign key (network, address) references evm_sender
);
create unique index evm_transaction_of_claim on evm_transaction (network, first_hash);
