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
create or replace function apply_commands(
  p_ids uuid[], p_groups int[], p_phases text[], p_debits text[], p_credits text[], p_amounts bigint[], p_at_most boolean[],
  p_kinds text[], p_refs text[], p_holds uuid[], p_expiries timestamptz[],
  out results text[], out moved bigint[]
) language plpgsql
-- The arrays may be long and the planner does not know it: never compare them element by element, nor read a whole table.
-- For short ones it would make new plans at each call, which takes longer than to run them.
set enable_nestloop = off set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_count constant int := cardinality(p_ids);
  v_max constant bigint := 9007199254740991;
  -- What the world outside may owe: it has no balance, but its counters must not overflow.
  v_overdraft constant bigint := 2305843009213693952;
  v_holds constant boolean := cardinality(array_remove(p_holds, null)) > 0;
  -- Up to this size, searching an array for each command costs less than starting a statement with hash joins.
  v_few constant boolean := v_count <= 64;
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
  v_ended int[];
  -- What a created command adds to the pending and posted counters of its accounts.
  v_pending bigint[];
  v_posted bigint[];

  -- By position of the account.
  v_accounts text[];
  v_units text[];
  -- What could be debited and credited when it was locked.
  v_free bigint[];
  v_room bigint[];
  -- How many created commands there are of it, and what they add to its counters.
  v_uses int[];
  v_debits_pending bigint[];
  v_debits_posted bigint[];
  v_credits_pending bigint[];
  v_credits_posted bigint[];
  v_payouts_pending bigint[];
  v_payouts_posted bigint[];

  v_begin int := 1;
  v_failed boolean := false;
  v_result text;
  v_other int;
  v_debit int;
  v_credit int;
  v_amount bigint;
  v_available bigint;
  v_hold_amount bigint;
  v_hold_expiry timestamptz;
  v_hold_ids uuid[];
  v_found_holds transfer[];
  v_found transfer;
begin
  results := array_fill(null::text, array[v_count]);
  moved := array_fill(null::bigint, array[v_count]);

  -- 1. The holds that are ended say which accounts to lock. One that commits after this statement does not exist yet.
  if v_holds and v_few then
    select array_agg(hold.id), array_agg(hold) into v_hold_ids, v_found_holds
    from transfer hold where hold.id = any(p_holds) and hold.phase = 'pending';
    for v_place in 1 .. v_count loop
      v_other := array_position(v_hold_ids, p_holds[v_place]);
      continue when v_other is null;
      v_found := v_found_holds[v_other];
      v_held[v_place] := v_found;
      v_debits[v_place] := v_found.debit_account;
      v_credits[v_place] := v_found.credit_account;
      v_refs[v_place] := v_found.ref;
    end loop;
  elsif v_holds then
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
  v_uses := array_fill(0, array[coalesce(cardinality(v_accounts), 0)]);
  v_debits_pending := v_uses;
  v_debits_posted := v_uses;
  v_credits_pending := v_uses;
  v_credits_posted := v_uses;

  -- 3. Whatever concerns these accounts is committed by now, or comes after us. Mostly, nothing is found.
  if exists (select from transfer where id = any(p_ids))
    or v_holds and exists (select from transfer where pending_id = any(p_holds)) then
    select array_agg(known order by c.place) into v_known
    from unnest(p_ids) with ordinality c(id, place)
    left join (select * from transfer where id = any(p_ids)) known on known.id = c.id;
    select array_agg(ending.id order by c.place) into v_endings
    from unnest(p_holds) with ordinality c(hold, place)
    left join (select id, pending_id from transfer where pending_id = any(p_holds)) ending on ending.pending_id = c.hold;
  end if;

  if v_few then
    for v_place in 1 .. v_count loop
      v_debit_at[v_place] := array_position(v_accounts, v_debits[v_place]);
      v_credit_at[v_place] := array_position(v_accounts, v_credits[v_place]);
      v_first[v_place] := array_position(p_ids, p_ids[v_place]);
      if p_holds[v_place] is not null then
        v_hold_first[v_place] := array_position(p_ids, p_holds[v_place]);
        v_hold_key[v_place] := array_position(p_holds, p_holds[v_place]);
      end if;
    end loop;
  else
    select array_agg(debit.at order by c.place), array_agg(credit.at order by c.place), array_agg(c.first order by c.place)
    into v_debit_at, v_credit_at, v_first
    from (
      select debit, credit, place, min(place) over (partition by id)::int as first
      from unnest(p_ids, v_debits, v_credits) with ordinality c(id, debit, credit, place)
    ) c
    left join unnest(v_accounts) with ordinality debit(id, at) on debit.id = c.debit
    left join unnest(v_accounts) with ordinality credit(id, at) on credit.id = c.credit;
    if v_holds then
      select array_agg(own.first order by c.place), array_agg(c.key order by c.place)
      into v_hold_first, v_hold_key
      from (
        select hold, place, min(place) over (partition by hold)::int as key
        from unnest(p_holds) with ordinality c(hold, place)
      ) c
      left join (
        select id, min(place)::int as first from unnest(p_ids) with ordinality c(id, place) group by id
      ) own on own.id = c.hold;
    end if;
  end if;

  -- 4. Decide each command on the locked accounts and on the commands before it.
  for v_place in 1 .. v_count loop
    if p_groups[v_place] <> p_groups[v_begin] then
      v_begin := v_place;
      v_failed := false;
    end if;
    v_debit := v_debit_at[v_place];
    v_credit := v_credit_at[v_place];

    -- The hold of `post` and `void`, from an earlier batch or from this one.
    if p_holds[v_place] is not null then
      v_hold_amount := (v_held[v_place]).amount;
      v_hold_expiry := (v_held[v_place]).expires_at;
      v_other := case when v_hold_amount is null and v_hold_first[v_place] is not null then v_used[v_hold_first[v_place]] else 0 end;
      if v_other > 0 and p_phases[v_other] = 'pending' then
        v_debits[v_place] := v_debits[v_other];
        v_credits[v_place] := v_credits[v_other];
        v_refs[v_place] := v_refs[v_other];
        v_debit := v_debit_at[v_other];
        v_credit := v_credit_at[v_other];
        v_debit_at[v_place] := v_debit;
        v_credit_at[v_place] := v_credit;
        v_hold_amount := v_amounts[v_other];
        v_hold_expiry := p_expiries[v_other];
        if p_kinds[v_place] <> p_kinds[v_other] then v_hold_amount := null; end if;
      elsif p_kinds[v_place] <> (v_held[v_place]).kind then
        v_hold_amount := null;
      end if;
      if p_phases[v_place] = 'void' or p_amounts[v_place] is null then v_amounts[v_place] := v_hold_amount; end if;
    end if;
    v_amount := v_amounts[v_place];

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
      elsif v_amount > v_hold_amount then
        v_result := 'HOLD_EXCEEDED';
      elsif p_phases[v_place] = 'post' and v_hold_expiry <= v_now then
        v_result := 'HOLD_EXPIRED';
      else
        v_result := 'created';
        v_pending[v_place] := -v_hold_amount;
        v_posted[v_place] := case when p_phases[v_place] = 'post' then v_amount else 0 end;
        v_ended[v_hold_key[v_place]] := v_place;
      end if;
    elsif v_debit is null or v_credit is null then
      v_result := 'ACCOUNT_NOT_FOUND';
    elsif v_units[v_debit] <> v_units[v_credit] then
      v_result := 'UNIT_MISMATCH';
    elsif p_expiries[v_place] <= v_now then
      v_result := 'EXPIRY_PASSED';
    else
      v_available := v_free[v_debit] - v_debits_pending[v_debit] - v_debits_posted[v_debit] + v_credits_posted[v_debit];
      if p_at_most[v_place] then
        v_amount := least(v_amount, greatest(v_available, 0));
        v_amounts[v_place] := v_amount;
      end if;
      if v_amount > v_available then
        v_result := 'INSUFFICIENT_FUNDS';
      elsif v_amount > v_room[v_credit] - v_credits_pending[v_credit] - v_credits_posted[v_credit] then
        v_result := 'AMOUNT_OUT_OF_RANGE';
      else
        v_result := 'created';
        v_pending[v_place] := case when p_phases[v_place] = 'pending' then v_amount else 0 end;
        v_posted[v_place] := case when p_phases[v_place] = 'posted' then v_amount else 0 end;
      end if;
    end if;

    if v_result = 'created' then
      moved[v_place] := v_amount;
      v_used[v_first[v_place]] := v_place;
      v_uses[v_debit] := v_uses[v_debit] + 1;
      v_uses[v_credit] := v_uses[v_credit] + 1;
      v_debits_pending[v_debit] := v_debits_pending[v_debit] + v_pending[v_place];
      v_debits_posted[v_debit] := v_debits_posted[v_debit] + v_posted[v_place];
      v_credits_pending[v_credit] := v_credits_pending[v_credit] + v_pending[v_place];
      v_credits_posted[v_credit] := v_credits_posted[v_credit] + v_posted[v_place];
      if p_kinds[v_place] = 'payout' then
        v_payouts_pending[v_debit] := coalesce(v_payouts_pending[v_debit], 0) + v_pending[v_place];
        v_payouts_posted[v_debit] := coalesce(v_payouts_posted[v_debit], 0) + v_posted[v_place];
      end if;
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
          v_uses[v_debit] := v_uses[v_debit] - 1;
          v_uses[v_credit] := v_uses[v_credit] - 1;
          v_debits_pending[v_debit] := v_debits_pending[v_debit] - v_pending[v_other];
          v_debits_posted[v_debit] := v_debits_posted[v_debit] - v_posted[v_other];
          v_credits_pending[v_credit] := v_credits_pending[v_credit] - v_pending[v_other];
          v_credits_posted[v_credit] := v_credits_posted[v_credit] - v_posted[v_other];
          if p_kinds[v_other] = 'payout' then
            v_payouts_pending[v_debit] := v_payouts_pending[v_debit] - v_pending[v_other];
            v_payouts_posted[v_debit] := v_payouts_posted[v_debit] - v_posted[v_other];
          end if;
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
    select p_ids[place], v_debits[place], v_credits[place], moved[place], p_phases[place], p_kinds[place], v_refs[place],
           p_holds[place], case when p_at_most[place] then p_amounts[place] end, p_expiries[place], v_now
    from generate_series(1, v_count) place where results[place] = 'created';

    update account set
      debits_pending = account.debits_pending + v_debits_pending[c.at],
      debits_posted = account.debits_posted + v_debits_posted[c.at],
      credits_pending = account.credits_pending + v_credits_pending[c.at],
      credits_posted = account.credits_posted + v_credits_posted[c.at],
      payouts_pending = account.payouts_pending + coalesce(v_payouts_pending[c.at], 0),
      payouts_posted = account.payouts_posted + coalesce(v_payouts_posted[c.at], 0),
      updated_at = greatest(account.updated_at, v_now)
    from unnest(v_accounts) with ordinality c(id, at)
    where account.id = c.id and account.id = any(v_accounts) and v_uses[c.at] > 0;

    if 'pending' = any (p_phases) then
      insert into open_hold (id, expires_at)
      select p_ids[place], p_expiries[place] from generate_series(1, v_count) place
      where results[place] = 'created' and p_phases[place] = 'pending';
    end if;
    if v_holds then
      delete from open_hold where id = any(array(
        select p_holds[place] from generate_series(1, v_count) place where results[place] = 'created'
      ));
    end if;
  end if;
end $$;
