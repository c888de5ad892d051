import { execute, row, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { storedAmount, type Chain, type ChainTransfer } from '../chain/chain';
import type { Difference } from './differences';

/** Blocks that are compared at a time. */
const blocksMax = 500n;

/**
 * Compares the blocks that were read for deposits with what is stored: each transfer to a wallet with its deposit, what
 * each transaction of a sender of ours has moved with what it was signed for, and what each of the broker has taken
 * with its deductions. So money that left by another hand is found, and a deposit that was missed. Each block is
 * compared once; returns what differs in the next ones, undefined when none is left.
 */
export async function checkChain(pool: Pool, chain: Chain): Promise<Difference[] | undefined> {
  const watch = await row<{ read: bigint; checked: bigint }>(
    pool,
    sql`select height as read, checked_height as checked from chain_watch where chain_id = ${chain.id}`,
  );
  const last = watch && (await lastSettled(pool, watch.read));
  if (last === undefined || last <= watch!.checked) return undefined;
  const from = watch!.checked + 1n;
  const to = last < watch!.checked + blocksMax ? last : watch!.checked + blocksMax;
  const transfers: ChainTransfer[] = [];
  for await (const transfer of chain.transfers(from, to)) transfers.push(transfer);
  const differences = [
    ...(await checkDeposits(pool, chain.id, transfers, from, to)),
    ...(await checkOutgoing(pool, transfers, from, to)),
    ...(await checkDeductions(pool, transfers, from, to)),
  ];
  await execute(
    pool,
    sql`update chain_watch set checked_height = ${to} where chain_id = ${chain.id} and checked_height = ${from - 1n}`,
  );
  return differences;
}

/** The last block of those read that has no transaction of ours whose state may not be stored yet. */
async function lastSettled(db: Queryable, read: bigint): Promise<bigint> {
  // A transaction in flight was signed for a range of blocks that begins at most this far before its timeout.
  const open = await row<{ first: bigint | null }>(
    db,
    sql`select min(signed_height) as first from outgoing_transaction where state in ('signed', 'broadcast', 'held')`,
  );
  return open!.first !== null && open!.first < read ? open!.first : read;
}

function checkDeposits(
  db: Queryable,
  chainId: string,
  transfers: readonly ChainTransfer[],
  from: bigint,
  to: bigint,
): Promise<Difference[]> {
  return differencesIn(
    db,
    'deposit',
    sql`with arrived as (
          select t.* from ${asTable(transfers)}
          where exists (select from wallet where address = t.recipient)
        ), stored as (
          select transaction_hash as hash, event_index as place, amount from deposit
          where chain_id = ${chainId} and height between ${from} and ${to}
        )
        select hash || '/' || place as subject, coalesce(arrived.amount, 0)::text as expected,
               coalesce(stored.amount, 0)::text as found
        from arrived full join stored using (hash, place)
        where arrived.amount is distinct from stored.amount order by subject`,
  );
}

function checkOutgoing(
  db: Queryable,
  transfers: readonly ChainTransfer[],
  from: bigint,
  to: bigint,
): Promise<Difference[]> {
  return differencesIn(
    db,
    'outgoing',
    sql`with left_us as (
          select t.hash, least(sum(t.amount), 9223372036854775807) as amount
          from ${asTable(transfers)}
          where exists (select from chain_sender where address = t.sender) group by t.hash
        ), signed as (
          select o.hash, coalesce(sum(payout.amount), max(sweep.amount) - o.fee) as amount
          from outgoing_transaction o left join payout on payout.transaction_number = o.number
          left join sweep on sweep.transaction_number = o.number
          where o.state = 'confirmed' and o.height between ${from} and ${to} group by o.number
        )
        select hash as subject, coalesce(signed.amount, 0)::text as expected, coalesce(left_us.amount, 0)::text as found
        from left_us full join signed using (hash)
        where left_us.amount is distinct from signed.amount order by subject`,
  );
}

/**
 * Compares what each transaction of the broker has moved from each wallet to each recipient with the deductions that it
 * was signed for.
 */
function checkDeductions(
  db: Queryable,
  transfers: readonly ChainTransfer[],
  from: bigint,
  to: bigint,
): Promise<Difference[]> {
  return differencesIn(
    db,
    'deduction',
    sql`with deducted as (
          select o.hash, d.address as payer, d.recipient, sum(d.amount) as amount
          from outgoing_transaction o join grant_deduction d on d.transaction_number = o.number
          where o.state = 'confirmed' and o.height between ${from} and ${to} group by o.hash, d.address, d.recipient
        ), taken as (
          select t.hash, t.sender as payer, t.recipient, least(sum(t.amount), 9223372036854775807) as amount
          from ${asTable(transfers)}
          where t.hash in (select hash from deducted) group by t.hash, t.sender, t.recipient
        )
        select hash || '/' || payer || '/' || recipient as subject, coalesce(deducted.amount, 0)::text as expected,
               coalesce(taken.amount, 0)::text as found
        from taken full join deducted using (hash, payer, recipient)
        where taken.amount is distinct from deducted.amount order by subject`,
  );
}

/** Runs a statement that returns differences as rows of `subject`, `expected` and `found`. */
async function differencesIn(db: Queryable, kind: Difference['kind'], statement: Sql): Promise<Difference[]> {
  const mismatches = await rows<{ subject: string; expected: string; found: string }>(db, statement);
  return mismatches.map((each) => ({
    kind,
    subject: each.subject,
    expected: BigInt(each.expected),
    found: BigInt(each.found),
  }));
}

/** The transfers as a table. */
const asTable = (transfers: readonly ChainTransfer[]): Sql =>
  sql`unnest(${transfers.map(({ transactionHash }) => transactionHash)}::text[],
        ${transfers.map(({ eventIndex }) => eventIndex)}::int[], ${transfers.map(({ sender }) => sender)}::text[],
        ${transfers.map(({ recipient }) => recipient)}::text[],
        ${transfers.map(({ amount }) => storedAmount(amount))}::bigint[]) t(hash, place, sender, recipient, amount)`;
