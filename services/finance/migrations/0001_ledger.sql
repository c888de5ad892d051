-- The ledger. A transfer moves an amount from one account to another: a pair row, balanced by construction. Counters of
-- an account are kept by the functions below and by nothing else. All amounts are utia.

create table account (
  -- `app:<app_id>` is the wallet of an application; the platform's own accounts have names without a colon.
  id text collate "C" primary key check (length(id) between 1 and 100),
  -- True for what stands for the world outside, where money comes from and goes to.
  may_overdraw boolean not null default false,
  debits_pending bigint not null default 0 check (debits_pending >= 0),
  debits_posted bigint not null default 0 check (debits_posted >= 0),
  credits_pending bigint not null default 0 check (credits_pending >= 0),
  credits_posted bigint not null default 0 check (credits_posted >= 0),
  -- The part of debits_posted that was paid out.
  payouts_posted bigint not null default 0 check (payouts_posted >= 0),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  -- The last line that makes spending twice impossible, whatever is wrong above it. Pending credits do not count.
  constraint account_covered check (may_overdraw or debits_pending + debits_posted <= credits_posted),
  -- What a JSON number carries exactly. A pending credit has its room reserved, so that it can be posted.
  constraint account_in_range check (may_overdraw or credits_pending + credits_posted <= 9007199254740991)
);

create function account_guard() returns trigger language plpgsql as $$
begin
  if tg_op <> 'UPDATE' then
    raise exception 'an account is never removed' using errcode = 'restrict_violation';
  end if;
  if new.id <> old.id or new.may_overdraw <> old.may_overdraw or new.created_at <> old.created_at
    or new.debits_posted < old.debits_posted or new.credits_posted < old.credits_posted
    or new.payouts_posted < old.payouts_posted then
    raise exception 'what was posted to an account only grows' using errcode = 'restrict_violation';
  end if;
  return new;
end $$;

create trigger account_guard before update or delete on account for each row execute function account_guard();
create trigger account_kept before truncate on account for each statement execute function account_guard();

create table transfer (
  -- Given by the caller, who repeats with the same id until the answer is definite.
  id uuid primary key,
  debit_account text collate "C" not null references account,
  credit_account text collate "C" not null references account,
  amount bigint not null check (amount > 0),
  -- `posted` moves at once, `pending` holds; `post` and `void` end the hold of pending_id.
  phase text not null check (phase in ('posted', 'pending', 'post', 'void')),
  -- Why the money moves: earning, payout, retention and so on.
  kind text not null check (kind ~ '^[a-z][a-z_]{0,39}$'),
  -- What it moves for: the id of a quote, a payout, a period.
  ref text not null check (length(ref) <= 200),
  -- No foreign key: its check would need the right to update transfers, which nobody has. The function looks instead.
  pending_id uuid,
  created_at timestamptz not null default now(),
  check (debit_account <> credit_account),
  check ((phase in ('post', 'void')) = (pending_id is not null))
);

-- A hold ends once.
create unique index transfer_resolution on transfer (pending_id) where pending_id is not null;

create function transfer_guard() returns trigger language plpgsql as $$
begin
  raise exception 'a transfer is never changed or removed' using errcode = 'restrict_violation';
end $$;

create trigger transfer_guard before update or delete or truncate on transfer
  for each statement execute function transfer_guard();

revoke update, delete, truncate on transfer from public, current_user;
revoke delete, truncate on account from public, current_user;

-- Answers 'created', or 'exists' when the same transfer is there already. Errors: GL001 the id belongs to another
-- transfer; 23503 an account is missing; 23514 account_covered the debit account has not enough. To be run under READ
-- COMMITTED: each statement must see what was committed while the one before it waited.
create function post_transfer(
  p_id uuid, p_debit text, p_credit text, p_amount bigint, p_pending boolean, p_kind text, p_ref text
) returns text language plpgsql as $$
declare
  v_phase constant text := case when p_pending then 'pending' else 'posted' end;
  v_found transfer;
begin
  insert into transfer (id, debit_account, credit_account, amount, phase, kind, ref)
  values (p_id, p_debit, p_credit, p_amount, v_phase, p_kind, p_ref)
  on conflict (id) do nothing;
  if not found then
    select * into strict v_found from transfer where id = p_id;
    if (v_found.debit_account, v_found.credit_account, v_found.amount, v_found.phase, v_found.kind, v_found.ref)
      is distinct from (p_debit, p_credit, p_amount, v_phase, p_kind, p_ref) then
      raise exception 'the id belongs to another transfer' using errcode = 'GL001';
    end if;
    return 'exists';
  end if;

  -- Always in the same order, so that transfers in both directions do not deadlock.
  perform from account where id in (p_debit, p_credit) order by id for no key update;
  update account set
    debits_pending = debits_pending + case when id = p_debit and p_pending then p_amount else 0 end,
    debits_posted = debits_posted + case when id = p_debit and not p_pending then p_amount else 0 end,
    credits_pending = credits_pending + case when id = p_credit and p_pending then p_amount else 0 end,
    credits_posted = credits_posted + case when id = p_credit and not p_pending then p_amount else 0 end,
    payouts_posted = payouts_posted + case when id = p_debit and not p_pending and p_kind = 'payout' then p_amount else 0 end,
    updated_at = greatest(updated_at, clock_timestamp())
  where id in (p_debit, p_credit);
  return 'created';
end $$;

-- Ends a hold: `p_phase` 'post' moves p_amount, at most what is held, and sets the rest free; 'void' sets all of it free
-- (p_amount is then null). Answers and errors as post_transfer, and: GL002 there is no such hold; GL003 it has been
-- ended by another transfer; GL004 more than is held.
create function resolve_transfer(p_id uuid, p_pending_id uuid, p_phase text, p_amount bigint)
returns text language plpgsql as $$
declare
  v_hold transfer;
  v_found transfer;
  v_amount bigint;
begin
  -- A transfer never changes, so that it may be read without a lock.
  select * into v_hold from transfer where id = p_pending_id and phase = 'pending';
  if not found then
    raise exception 'there is no such hold' using errcode = 'GL002';
  end if;
  v_amount := coalesce(p_amount, v_hold.amount);
  if v_amount > v_hold.amount then
    raise exception 'more than is held' using errcode = 'GL004';
  end if;

  -- The locks come first here: all that end one hold queue up for the same accounts, so that each sees whether
  -- another was first, and a repetition is never taken for a second attempt.
  perform from account where id in (v_hold.debit_account, v_hold.credit_account) order by id for no key update;
  select * into v_found from transfer where id = p_id;
  if found then
    if (v_found.pending_id, v_found.phase, v_found.amount) is distinct from (p_pending_id, p_phase, v_amount) then
      raise exception 'the id belongs to another transfer' using errcode = 'GL001';
    end if;
    return 'exists';
  end if;
  if exists (select from transfer where pending_id = p_pending_id) then
    raise exception 'the hold has been ended' using errcode = 'GL003';
  end if;

  insert into transfer (id, debit_account, credit_account, amount, phase, kind, ref, pending_id)
  values (p_id, v_hold.debit_account, v_hold.credit_account, v_amount, p_phase, v_hold.kind, v_hold.ref, p_pending_id);
  update account set
    debits_pending = debits_pending - case when id = v_hold.debit_account then v_hold.amount else 0 end,
    credits_pending = credits_pending - case when id = v_hold.credit_account then v_hold.amount else 0 end,
    debits_posted = debits_posted + case when id = v_hold.debit_account and p_phase = 'post' then v_amount else 0 end,
    credits_posted = credits_posted + case when id = v_hold.credit_account and p_phase = 'post' then v_amount else 0 end,
    payouts_posted = payouts_posted
      + case when id = v_hold.debit_account and p_phase = 'post' and v_hold.kind = 'payout' then v_amount else 0 end,
    updated_at = greatest(updated_at, clock_timestamp())
  where id in (v_hold.debit_account, v_hold.credit_account);
  return 'created';
end $$;
