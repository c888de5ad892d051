-- Which seed the addresses of this database come from, and the prefix they carry. One row, never changed.
create table wallet_origin (
  only_row boolean primary key default true check (only_row),
  seed_fingerprint text not null,
  address_prefix text not null,
  created_at timestamptz not null default now()
);

-- Numbers of addresses, m/44'/118'/0'/0/n.
create sequence wallet_index as int minvalue 0 start 0;

create table wallet (
  app_id text collate "C" primary key check (length(app_id) between 1 and 90),
  address_index int not null unique check (address_index >= 0),
  address text collate "C" not null unique,
  account_id text collate "C" not null unique references account,
  auto_payout_enabled boolean not null default false,
  locked_balance bigint not null default 0 check (locked_balance >= 0),
  min_payout bigint not null default 0 check (min_payout >= 0),
  payout_threshold bigint not null default 0 check (payout_threshold >= 0),
  payout_destination text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

create function wallet_guard() returns trigger language plpgsql as $$
begin
  if new.locked_balance < old.locked_balance then
    raise exception 'the locked balance only grows' using errcode = 'restrict_violation';
  end if;
  if (new.app_id, new.address_index, new.address, new.account_id)
    is distinct from (old.app_id, old.address_index, old.address, old.account_id) then
    raise exception 'the address of a wallet is final' using errcode = 'restrict_violation';
  end if;
  return new;
end $$;

create trigger wallet_guard before update on wallet for each row execute function wallet_guard();

create table payout (
  id uuid primary key,
  app_id text collate "C" not null references wallet,
  amount bigint not null check (amount > 0),
  destination text not null,
  trigger text not null check (trigger in ('auto', 'manual')),
  status text not null check (status in ('pending', 'broadcast', 'confirmed', 'failed')),
  tx_hash text,
  error text,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index payout_history on payout (app_id, created_at desc, id desc);
