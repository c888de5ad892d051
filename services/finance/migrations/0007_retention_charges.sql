-- What was charged for keeping a collection. Each 30 days from its first bytes are a period; at its end it is charged what
-- it has cost so far without what was charged before.
alter table collection_generation
  add column charged numeric not null default 0 check (charged >= 0 and charged = trunc(charged)),
  add column charged_periods int not null default 0 check (charged_periods >= 0),
  -- The part of `accrued` that belongs to later periods than the next to be charged: pairs of the number of a period and
  -- units.
  add column accrued_later jsonb not null default '[]',
  -- The end of the next period to be charged; null before the first bytes, and of a deleted collection that owes nothing.
  add column next_charge_at timestamptz;

-- 720 hours, not 30 days: those would depend on the time zone.
update collection_generation set next_charge_at = began_at + interval '720 hours' where began_at is not null;

create index collection_generation_due on collection_generation (next_charge_at) where next_charge_at is not null;

-- Of the release before this one, which adds rows without that time during a rolling update.
create index collection_generation_unscheduled on collection_generation (began_at)
  where next_charge_at is null and began_at is not null and deleted_at is null;

create table retention_charge (
  app_id text collate "C" not null,
  collection text collate "C" not null,
  number bigint not null,
  -- From 1.
  period int not null check (period > 0),
  ended_at timestamptz not null,
  -- What was owed at the end of the period, in utia, and what of it the wallet had. The rest is a part of the next charge.
  amount numeric not null check (amount > 0),
  moved bigint not null check (moved between 0 and amount),
  charged_at timestamptz not null default now(),
  primary key (app_id, collection, number, period)
);
