-- The ledger takes commands in batches: one call locks all accounts in one sorted statement, then decides each command on
-- what it has locked, then writes one INSERT and one UPDATE. No money has moved yet, so the inside may change.

-- A batch locks its accounts itself; the checks of these keys would add a lock and a query for each row.
alter table transfer
  drop constraint transfer_debit_account_fkey,
  drop constraint transfer_credit_account_fkey,
  -- Drawn while the accounts are locked: of one account, later numbers are committed later.
  add column number bigint generated always as identity,
  -- The greatest amount that was asked for, of a transfer that moves as much as there is.
  add column at_most bigint,
  -- When a hold can no longer be posted.
  add column expires_at timestamptz check (expires_at is null or phase = 'pending'),
  drop constraint transfer_amount_check,
  add constraint transfer_amount_check check (amount > 0 or amount = 0 and at_most is not null),
  add constraint transfer_at_most_check
    check (at_most is null or phase = 'posted' and amount <= at_most and at_most between 1 and 9007199254740991);

create index transfer_debits on transfer (debit_account, number);
create index transfer_credits on transfer (credit_account, number);

alter table account
  -- Amounts move between accounts of one unit: `utia`, `allowance`, or the CAIP-19 name of an asset.
  add column unit text collate "C" not null default 'utia' check (length(unit) between 1 and 200),
  -- The part of debits_pending that is held for payouts.
  add column payouts_pending bigint not null default 0 check (payouts_pending >= 0 and payouts_pending <= debits_pending),
  -- Half of each page is kept free for new versions of its rows, so that an update touches no index.
  set (fillfactor = 50);

update account set payouts_pending = held.amount
from (
  select debit_account, sum(amount) as amount from transfer hold
  where phase = 'pending' and kind = 'payout' and not exists (select from transfer ending where ending.pending_id = hold.id)
  group by debit_account
) held
where account.id = held.debit_account;

-- The holds that are open: a work list beside the immutable rows.
create table open_hold (
  id uuid primary key,
  expires_at timestamptz
);
create index open_hold_expiry on open_hold (expires_at) where expires_at is not null;
insert into open_hold (id)
select id from transfer hold
where phase = 'pending' and not exists (select from transfer ending where ending.pending_id = hold.id);

-- As a condition of the trigger, an ordinary update costs no call of a function.
drop trigger account_guard on account;
drop trigger account_kept on account;
drop function account_guard();
create function account_guard() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' then
    raise exception 'what was posted to an account only grows' using errcode = 'restrict_violation';
  end if;
  raise exception 'an account is never removed' using errcode = 'restrict_violation';
end $$;
create trigger account_guard before update on account for each row
  when (new.id <> old.id or new.unit <> old.unit or new.may_overdraw <> old.may_overdraw or new.created_at <> old.created_at
    or new.debits_posted < old.debits_posted or new.credits_posted < old.credits_posted
    or new.payouts_posted < old.payouts_posted)
  execute function account_guard();
create trigger account_kept before delete or truncate on account for each statement execute function account_guard();

drop function post_transfer(uuid, text, text, bigint, boolean, text, text);
drop function resolve_transfer(uuid, uuid, text, bigint);

-- Applies commands in their order. Arrays of one length, an element for each command; commands of one group have the same
-- number, stand side by side, and are applied all or not at all. Of `post` and `void` the accounts and `ref` are null and
-- `kind` is that of the hold; an amount of `post` that is null is all that is held.
--
-- Results, in the order of the commands: `created`, or `exists` when the same transfer is there already, with the amount
-- moved or held; or the reason why it is refused, with null: TRANSFER_ID_TAKEN, INSUFFICIENT_FUNDS, AMOUNT_OUT_OF_RANGE,
-- ACCOUNT_NOT_FOUND, UNIT_MISMATCH, HOLD_NOT_FOUND, HOLD_ENDED, HOLD_EXCEEDED, HOLD_EXPIRED, EXPIRY_PASSED, LINKED_FAILED.
-- Raises unique_violation when a concurrent batch with other accounts has used an id: to be called again.
--
-- To be run under READ COMMITTED: each statement must see what was committed while the one before it waited.
create function apply_commands(
  p_ids uuid[], p_groups int[], p_phases text[], p_debits text[], p_credits text[], p_amounts bigint[], p_at_most boolean[],
  p_kinds text[], p_refs text[], p_holds uuid[], p_expiries timestamptz[],
  out results text[], out moved bigint[]
) language plpgsql
-- The arrays are long and the planner does not know it: never compare them element by element, nor read a whole table.
set enable_nestloop = off set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  v_count constant int := cardinality(p_ids);
  v_max constant bigint := 9007199254740991;
  -- What the world outside may owe: it has no balance, but its counters must not overflow.
  v_overdraft constant bigint := 2305843009213693952;
  v_holds constant boolean := cardinality(array_remove(p_holds, null)) > 0;
  v_now timestamptz;

  -- By place. Those of `post` and `void` are filled in from their holds.
  v_debits text[] := p_debits;
  v_credits text[] := p_credits;
  v_refs text[] := p_refs;
  v_amounts bigint[] := p_amounts;
  -- The position of the accounts among those that are locked; null: there is no such account.
  v_debit_at int[];
  v_credit_at int[];
  -- Transfers that exist: those with the ids of the commands, the holds that they end, and by what those were ended.
  v_known transfer[];
  v_held transfer[];
  v_endings uuid[];
  -- The first places with the same id, with the id of the hold, and with the same hold.
  v_first int[];
  v_hold_first int[];
  v_hold_key int[];
  -- By the first place with an id: the place that has used it; by the first place with a hold: the place that has ended it.
  v_used int[] := array_fill(0, array[v_count]);
  v_ended int[] := array_fill(0, array[v_count]);
  -- What a created command adds to the pending and posted counters of its accounts.
  v_pending bigint[] := array_fill(0::bigint, array[v_count]);
  v_posted bigint[] := array_fill(0::bigint, array[v_count]);

  -- By position of the account.
  v_accounts text[];
  v_units text[];
  -- What can be debited and credited.
  v_free bigint[];
  v_room bigint[];

  v_begin int := 1;
  v_failed boolean := false;
  v_result text;
  v_other int;
  v_debit int;
  v_credit int;
  v_hold_amount bigint;
  v_hold_expiry timestamptz;
  v_found transfer;
begin
  results := array_fill(null::text, array[v_count]);
  moved := array_fill(null::bigint, array[v_count]);

  -- 1. The holds that are ended say which accounts to lock. One that commits after this statement does not exist yet.
  if v_holds then
    select array_agg(found order by c.place), array_agg(coalesce(c.debit, found.debit_account) order by c.place),
           array_agg(coalesce(c.credit, found.credit_account) order by c.place),
           array_agg(coalesce(c.ref, found.ref) order by c.place)
    into v_held, v_debits, v_credits, v_refs
    from unnest(p_holds, p_debits, p_credits, p_refs) with ordinality c(hold, debit, credit, ref, place)
    left join (select * from transfer where id = any(p_holds) and phase = 'pending') found on found.id = c.hold;
  end if;

  -- 2. Lock all accounts, always in the same order, so that batches do not deadlock.
  select array_agg(a.id), array_agg(a.unit),
         array_agg(case when a.may_overdraw then v_overdraft else 0 end + a.credits_posted - a.debits_posted - a.debits_pending),
         array_agg(case when a.may_overdraw then v_overdraft else v_max end - a.credits_posted - a.credits_pending)
  into v_accounts, v_units, v_free, v_room
  from (select * from account where id = any(v_debits || v_credits) order by id for no key update) a;
  v_now := clock_timestamp();

  -- 3. Whatever concerns these accounts is committed by now, or comes after us.
  select array_agg(debit.at order by c.place), array_agg(credit.at order by c.place)
  into v_debit_at, v_credit_at
  from unnest(v_debits, v_credits) with ordinality c(debit, credit, place)
  left join unnest(v_accounts) with ordinality debit(id, at) on debit.id = c.debit
  left join unnest(v_accounts) with ordinality credit(id, at) on credit.id = c.credit;

  if exists (select from transfer where id = any(p_ids)) then
    select array_agg(known order by c.place) into v_known
    from unnest(p_ids) with ordinality c(id, place)
    left join (select * from transfer where id = any(p_ids)) known on known.id = c.id;
  end if;

  select array_agg(c.first order by c.place) into v_first
  from (select place, min(place) over (partition by id)::int as first from unnest(p_ids) with ordinality c(id, place)) c;

  if v_holds then
    select array_agg(ending.id order by c.place), array_agg(own.first order by c.place), array_agg(c.key order by c.place)
    into v_endings, v_hold_first, v_hold_key
    from (
      select hold, place, min(place) over (partition by hold)::int as key from unnest(p_holds) with ordinality c(hold, place)
    ) c
    left join (select id, pending_id from transfer where pending_id = any(p_holds)) ending on ending.pending_id = c.hold
    left join (
      select id, min(place)::int as first from unnest(p_ids) with ordinality c(id, place) group by id
    ) own on own.id = c.hold;
  end if;

  -- 4. Decide each command on the locked accounts and on the commands before it.
  for v_place in 1 .. v_count loop
    if v_place > 1 and p_groups[v_place] <> p_groups[v_place - 1] then
      v_begin := v_place;
      v_failed := false;
    end if;
    v_result := null;

    -- The hold of `post` and `void`, from an earlier batch or from this one.
    if p_holds[v_place] is not null then
      v_hold_amount := (v_held[v_place]).amount;
      v_hold_expiry := (v_held[v_place]).expires_at;
      v_other := case when v_hold_amount is null and v_hold_first[v_place] is not null then v_used[v_hold_first[v_place]] else 0 end;
      if v_other > 0 and p_phases[v_other] = 'pending' then
        v_debits[v_place] := v_debits[v_other];
        v_credits[v_place] := v_credits[v_other];
        v_refs[v_place] := v_refs[v_other];
        v_debit_at[v_place] := v_debit_at[v_other];
        v_credit_at[v_place] := v_credit_at[v_other];
        v_hold_amount := v_amounts[v_other];
        v_hold_expiry := p_expiries[v_other];
        if p_kinds[v_place] <> p_kinds[v_other] then v_hold_amount := null; end if;
      elsif p_kinds[v_place] <> (v_held[v_place]).kind then
        v_hold_amount := null;
      end if;
      if p_phases[v_place] = 'void' or p_amounts[v_place] is null then v_amounts[v_place] := v_hold_amount; end if;
    end if;
    v_debit := v_debit_at[v_place];
    v_credit := v_credit_at[v_place];

    v_other := v_used[v_first[v_place]];
    if v_failed then
      v_result := 'LINKED_FAILED';
    elsif v_other > 0 then
      -- The id was used by a command before this one.
      v_result := case when (p_phases[v_other], v_debits[v_other], v_credits[v_other], p_kinds[v_other], v_refs[v_other])
          is distinct from (p_phases[v_place], v_debits[v_place], v_credits[v_place], p_kinds[v_place], v_refs[v_place])
        or (p_holds[v_other], p_expiries[v_other], p_at_most[v_other]) is distinct from (p_holds[v_place], p_expiries[v_place], p_at_most[v_place])
        or case when p_at_most[v_place] then p_amounts[v_other] <> p_amounts[v_place]
             else v_amounts[v_other] is distinct from v_amounts[v_place] end
        then 'TRANSFER_ID_TAKEN' else 'exists' end;
      if v_result = 'exists' then moved[v_place] := moved[v_other]; end if;
    elsif v_known is not null and (v_known[v_place]).id is not null then
      v_found := v_known[v_place];
      v_result := case when (v_found.phase, v_found.debit_account, v_found.credit_account, v_found.kind, v_found.ref)
          is distinct from (p_phases[v_place], v_debits[v_place], v_credits[v_place], p_kinds[v_place], v_refs[v_place])
        or (v_found.pending_id, v_found.expires_at, v_found.at_most is not null)
          is distinct from (p_holds[v_place], p_expiries[v_place], p_at_most[v_place])
        or coalesce(v_found.at_most, v_found.amount) is distinct from v_amounts[v_place]
        then 'TRANSFER_ID_TAKEN' else 'exists' end;
      if v_result = 'exists' then moved[v_place] := v_found.amount; end if;
    elsif p_holds[v_place] is not null then
      if v_hold_amount is null then
        v_result := 'HOLD_NOT_FOUND';
      elsif v_endings[v_place] is not null or v_ended[v_hold_key[v_place]] > 0 then
        v_result := 'HOLD_ENDED';
      elsif v_amounts[v_place] > v_hold_amount then
        v_result := 'HOLD_EXCEEDED';
      elsif p_phases[v_place] = 'post' and v_hold_expiry <= v_now then
        v_result := 'HOLD_EXPIRED';
      else
        v_result := 'created';
        v_pending[v_place] := -v_hold_amount;
        v_posted[v_place] := case when p_phases[v_place] = 'post' then v_amounts[v_place] else 0 end;
        v_ended[v_hold_key[v_place]] := v_place;
      end if;
    elsif v_debit is null or v_credit is null then
      v_result := 'ACCOUNT_NOT_FOUND';
    elsif v_units[v_debit] <> v_units[v_credit] then
      v_result := 'UNIT_MISMATCH';
    elsif p_expiries[v_place] <= v_now then
      v_result := 'EXPIRY_PASSED';
    else
      if p_at_most[v_place] then v_amounts[v_place] := least(v_amounts[v_place], greatest(v_free[v_debit], 0)); end if;
      if v_amounts[v_place] > v_free[v_debit] then
        v_result := 'INSUFFICIENT_FUNDS';
      elsif v_amounts[v_place] > v_room[v_credit] then
        v_result := 'AMOUNT_OUT_OF_RANGE';
      else
        v_result := 'created';
        v_pending[v_place] := case when p_phases[v_place] = 'pending' then v_amounts[v_place] else 0 end;
        v_posted[v_place] := case when p_phases[v_place] = 'posted' then v_amounts[v_place] else 0 end;
      end if;
    end if;

    if v_result = 'created' then
      moved[v_place] := v_amounts[v_place];
      v_used[v_first[v_place]] := v_place;
      v_free[v_debit] := v_free[v_debit] - v_pending[v_place] - v_posted[v_place];
      v_room[v_credit] := v_room[v_credit] - v_pending[v_place] - v_posted[v_place];
      v_free[v_credit] := v_free[v_credit] + v_posted[v_place];
    elsif v_result <> 'exists' then
      v_failed := true;
    end if;
    results[v_place] := v_result;

    -- At the end of a group of which not all are created, or all exist: none is created.
    if v_begin < v_place and (v_place = v_count or p_groups[v_place + 1] <> p_groups[v_place])
      and (v_failed or not ('created' = all (results[v_begin:v_place]) or 'exists' = all (results[v_begin:v_place]))) then
      for v_other in v_begin .. v_place loop
        if results[v_other] = 'created' then
          v_debit := v_debit_at[v_other];
          v_credit := v_credit_at[v_other];
          v_free[v_debit] := v_free[v_debit] + v_pending[v_other] + v_posted[v_other];
          v_room[v_credit] := v_room[v_credit] + v_pending[v_other] + v_posted[v_other];
          v_free[v_credit] := v_free[v_credit] - v_posted[v_other];
          v_used[v_first[v_other]] := 0;
          if p_holds[v_other] is not null then v_ended[v_hold_key[v_other]] := 0; end if;
          results[v_other] := 'LINKED_FAILED';
        elsif results[v_other] = 'exists' then
          -- Its group was another one.
          results[v_other] := 'TRANSFER_ID_TAKEN';
        end if;
        moved[v_other] := null;
      end loop;
    end if;
  end loop;

  -- 5. Write what was created.
  if 'created' = any (results) then
    insert into transfer (id, debit_account, credit_account, amount, phase, kind, ref, pending_id, at_most, expires_at, created_at)
    select c.id, c.debit, c.credit, c.moved, c.phase, c.kind, c.ref, c.hold, case when c.at_most then c.amount end, c.expiry, v_now
    from unnest(p_ids, v_debits, v_credits, moved, p_phases, p_kinds, v_refs, p_holds, p_at_most, p_amounts, p_expiries, results)
      with ordinality c(id, debit, credit, moved, phase, kind, ref, hold, at_most, amount, expiry, result, place)
    where c.result = 'created' order by c.place;

    update account set
      debits_pending = account.debits_pending + change.debits_pending,
      debits_posted = account.debits_posted + change.debits_posted,
      credits_pending = account.credits_pending + change.credits_pending,
      credits_posted = account.credits_posted + change.credits_posted,
      payouts_pending = account.payouts_pending + change.payouts_pending,
      payouts_posted = account.payouts_posted + change.payouts_posted,
      updated_at = greatest(account.updated_at, v_now)
    from (
      select side.account, sum(side.debit_pending)::bigint as debits_pending, sum(side.debit_posted)::bigint as debits_posted,
             sum(side.credit_pending)::bigint as credits_pending, sum(side.credit_posted)::bigint as credits_posted,
             coalesce(sum(side.debit_pending) filter (where side.kind = 'payout'), 0)::bigint as payouts_pending,
             coalesce(sum(side.debit_posted) filter (where side.kind = 'payout'), 0)::bigint as payouts_posted
      from unnest(v_debits, v_credits, p_kinds, v_pending, v_posted, results) c(debit, credit, kind, pending, posted, result)
      cross join lateral (values
        (c.debit, c.kind, c.pending, c.posted, 0::bigint, 0::bigint),
        (c.credit, null, 0, 0, c.pending, c.posted)
      ) side(account, kind, debit_pending, debit_posted, credit_pending, credit_posted)
      where c.result = 'created'
      group by side.account
    ) change
    where account.id = change.account and account.id = any(v_accounts);

    if 'pending' = any (p_phases) then
      insert into open_hold (id, expires_at)
      select c.id, c.expiry from unnest(p_ids, p_phases, p_expiries, results) c(id, phase, expiry, result)
      where c.result = 'created' and c.phase = 'pending';
    end if;
    if v_holds then
      delete from open_hold where id in (
        select c.hold from unnest(p_holds, results) c(hold, result) where c.result = 'created' and c.hold is not null
      ) and id = any(p_holds);
    end if;
  end if;
end $$;
