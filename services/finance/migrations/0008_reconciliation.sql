-- What the entries of an account add up to, as far as reconciliation has checked them: entries never change, so that the
-- next check continues here.
create table account_check (
  account_id text collate "C" primary key references account,
  -- The last entry that is in the sums.
  number bigint not null,
  debits_pending bigint not null,
  debits_posted bigint not null,
  credits_pending bigint not null,
  credits_posted bigint not null,
  payouts_pending bigint not null,
  payouts_posted bigint not null,
  checked_at timestamptz not null
);
create index account_check_oldest on account_check (checked_at);

-- When reconciliation last ended, and when it last added all entries from the first one.
create table reconciliation (
  only_row boolean primary key default true check (only_row),
  ended_at timestamptz,
  complete_at timestamptz
);
insert into reconciliation default values;

-- What reconciliation has found. Payouts are paused while one is open; a person resolves it.
create table difference (
  number bigint generated always as identity primary key,
  -- `counter`, `unit`, `hold`, `payout`, `entry`.
  kind text not null,
  -- What it is about: an account with its counter, a unit, an entry.
  subject text not null,
  -- What the entries say, and what was found instead.
  expected text not null,
  found text not null,
  found_at timestamptz not null default now(),
  resolved_at timestamptz
);
create unique index difference_open on difference (kind, subject) where resolved_at is null;
