import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql } from '@granary/shared/postgres/sql';
import { feeCollector } from '../chain/module-accounts';
import { readTransaction, sdkCodes } from '@granary/shared/money/cosmos/read-transaction';
import type { Output, Transfer } from '@granary/shared/money/cosmos/transaction';
import { spendGrants } from './grants';
import { gasUsed, type SimulatedChainSettings } from './settings';

/** The state of the chain between two blocks. */
export interface Head {
  chainId: string;
  height: bigint;
  blockAt: Date;
}

const headColumns = sql`chain_id as "chainId", height, block_at as "blockAt"`;

export const readHead = async (db: Queryable): Promise<Head> =>
  (await row<Head>(db, sql`select ${headColumns} from simulated_chain`))!;

/** Locks the chain until the transaction ends: nothing else changes it meanwhile. */
export const lockHead = async (tx: Connection): Promise<Head> =>
  (await row<Head>(tx, sql`select ${headColumns} from simulated_chain for no key update`))!;

/**
 * Produces the next block on a locked chain: includes the transactions of the mempool that are due, in the order of
 * their arrival. Those that are not valid any more are dropped, and so are some others by `eviction`.
 */
export async function produceBlock(
  tx: Connection,
  head: Head,
  time: Date,
  settings: SimulatedChainSettings,
  random: () => number,
): Promise<Head> {
  const next = { ...head, height: head.height + 1n, blockAt: time };
  await execute(tx, sql`update simulated_chain set height = ${next.height}, block_at = ${time}`);
  const due = await rows<{ hash: string; bytes: Buffer }>(
    tx,
    sql`with due as (delete from simulated_mempool where due_height <= ${next.height} returning hash, bytes, place)
        select hash, bytes from due order by place`,
  );
  for (const { hash, bytes } of due) {
    if (random() < settings.eviction) continue;
    // Its signature was verified when it entered the mempool.
    const { transfer } = readTransaction(bytes, { ...settings, chainId: head.chainId, mayExec: true });
    await include(tx, next, hash, transfer, settings);
  }
  return next;
}

async function include(
  tx: Connection,
  { height, blockAt }: Head,
  hash: string,
  transfer: Transfer,
  settings: SimulatedChainSettings,
): Promise<void> {
  const { sender, sequence, fee, timeoutHeight, outputs, memo } = transfer;
  if (timeoutHeight !== 0n && timeoutHeight < height) return;
  const charged = await row<{ balance: bigint }>(
    tx,
    sql`update simulated_account set sequence = sequence + 1, balance = balance - ${fee.amount}
        where address = ${sender} and sequence = ${sequence} and balance >= ${fee.amount} returning balance`,
  );
  if (!charged) return;
  const total = outputs.reduce((sum, { amount }) => sum + amount, 0n);
  const isGranted = outputs[0].granter !== undefined;
  const code = isGranted
    ? await spendGrants(tx, { sender, outputs, fee, at: blockAt })
    : resultOf(transfer, total, charged.balance, settings);
  await execute(tx, sql`insert into simulated_transaction (hash, height, code) values (${hash}, ${height}, ${code})`);
  if (code !== 0) return;
  if (!isGranted) {
    await execute(tx, sql`update simulated_account set balance = balance - ${total} where address = ${sender}`);
  }
  await credit(tx, { hash, height, at: blockAt, sender, outputs, memo });
}

function resultOf(
  { fee, outputs }: Transfer,
  total: bigint,
  balance: bigint,
  { prefix }: SimulatedChainSettings,
): number {
  if (fee.gas < gasUsed(outputs.length)) return sdkCodes.outOfGas;
  if (total > balance) return sdkCodes.insufficientFunds;
  const blocked = feeCollector(prefix);
  return outputs.some(({ address }) => address === blocked) ? sdkCodes.unauthorized : 0;
}

export interface Credit {
  hash: string;
  height: bigint;
  at: Date;
  sender: string;
  outputs: readonly Output[];
  memo: string;
}

/** Credits the recipients of an included transaction, and stores its transfers. */
export async function credit(tx: Connection, { hash, height, at: time, sender, outputs, memo }: Credit): Promise<void> {
  const received = new Map<string, bigint>();
  for (const { address, amount } of outputs) received.set(address, (received.get(address) ?? 0n) + amount);
  await execute(
    tx,
    sql`insert into simulated_account as a (address, balance)
        select * from unnest(${[...received.keys()]}::text[], ${[...received.values()]}::bigint[])
        on conflict (address) do update set balance = a.balance + excluded.balance`,
  );
  const values = outputs.map(
    ({ address, amount, granter }, index) =>
      sql`(${hash}, ${index}::int, ${height}::bigint, ${time}::timestamptz, ${granter ?? sender}, ${address}, ${amount}::bigint, ${memo})`,
  );
  await execute(
    tx,
    sql`insert into simulated_transfer (hash, event_index, height, at, sender, recipient, amount, memo)
        values ${join(values, ', ')}`,
  );
}
