import type { Logger } from '@granary/shared/logger';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { storedAmount, type Chain, type ChainTransfer } from '../chain/chain';
import { applyCommands } from '../ledger/apply-commands';
import type { TransferCommand } from '../ledger/commands';
import { transferId } from '@granary/shared/money/transfer-id';

/** Blocks that are read at a time. */
const blocksMax = 100n;
/** Deposits that one call to the ledger credits. */
const commandsMax = 500;

export interface WatchOptions {
  pool: Pool;
  chain: Chain;
  /** The account of the ledger that stands for the world behind the chain. */
  chainAccount: string;
  /** A transfer is credited once so many blocks have followed its own. */
  depthBlocks: number;
  log: Logger;
}

/** Reads a chain from now on that was not read before. To be called before the first address is given out. */
export async function beginWatch({ pool, chain }: Pick<WatchOptions, 'pool' | 'chain'>): Promise<void> {
  if (await row(pool, sql`select from chain_watch where chain_id = ${chain.id}`)) return;
  const { height } = await chain.height();
  await execute(
    pool,
    sql`insert into chain_watch (chain_id, height, checked_height) values (${chain.id}, ${height}, ${height})
        on conflict do nothing`,
  );
}

/**
 * Credits what arrived at wallets in the next blocks, and returns the applications that got something; undefined when
 * all final blocks have been read. A deposit, its transfer and the height up to which the chain was read are one
 * transaction, so that each is credited once, whatever is interrupted or runs twice.
 */
export async function creditDeposits(options: WatchOptions): Promise<string[] | undefined> {
  const { pool, chain, depthBlocks } = options;
  const read = await readUpTo(pool, chain.id);
  const final = (await chain.height()).height - BigInt(depthBlocks);
  if (final <= read) return undefined;
  const to = final < read + blocksMax ? final : read + blocksMax;
  const transfers: ChainTransfer[] = [];
  for await (const transfer of chain.transfers(read + 1n, to)) transfers.push(transfer);
  return retriedTransaction(pool, async (tx) => {
    // Another process may have read the same blocks.
    if ((await readUpTo(tx, chain.id, sql` for no key update`)) !== read) return [];
    await execute(tx, sql`update chain_watch set height = ${to} where chain_id = ${chain.id}`);
    const deposits = await findDeposits(tx, transfers);
    for (let offset = 0; offset < deposits.length; offset += commandsMax) {
      await credit(tx, options, deposits.slice(offset, offset + commandsMax));
    }
    return [...new Set(deposits.map(({ appId }) => appId))];
  });
}

async function readUpTo(db: Pool | Connection, chainId: string, lock = sql``): Promise<bigint> {
  const watch = await row<{ height: bigint }>(
    db,
    sql`select height from chain_watch where chain_id = ${chainId}${lock}`,
  );
  return watch!.height;
}

interface Deposit {
  transfer: ChainTransfer;
  appId: string;
  accountId: string;
  addressIndex: number;
}

/** The transfers to wallets. */
async function findDeposits(tx: Connection, transfers: readonly ChainTransfer[]): Promise<Deposit[]> {
  if (transfers.length === 0) return [];
  const recipients = [...new Set(transfers.map(({ recipient }) => recipient))];
  const wallets = await rows<{ address: string } & Omit<Deposit, 'transfer'>>(
    tx,
    sql`select address, app_id as "appId", account_id as "accountId", address_index as "addressIndex"
        from wallet where address = any(${recipients})`,
  );
  const byAddress = new Map(wallets.map((wallet) => [wallet.address, wallet]));
  return transfers.flatMap((transfer) => {
    const wallet = byAddress.get(transfer.recipient);
    return wallet ? [{ transfer, ...wallet }] : [];
  });
}

async function credit(
  tx: Connection,
  { chain, chainAccount, log }: WatchOptions,
  deposits: readonly Deposit[],
): Promise<void> {
  const groups = deposits.map(({ transfer, accountId }): [TransferCommand] => {
    const cause = `${chain.id}/${transfer.transactionHash}/${transfer.eventIndex}`;
    return [
      {
        type: 'transfer',
        id: transferId(transfer.at, 'deposit', cause),
        kind: 'deposit',
        debitAccount: chainAccount,
        creditAccount: accountId,
        amount: transfer.amount,
        ref: transfer.transactionHash,
      },
    ];
  });
  const results = await applyCommands(tx, groups);
  const transferIds = results.map(([result], index) => {
    if (result!.outcome !== 'refused') return groups[index]![0].id;
    const { appId: app, transfer } = deposits[index]!;
    const { transactionHash: hash, amount } = transfer;
    log.error({ app, hash, amount: amount.toString(), reason: result!.reason }, 'a deposit cannot be credited');
    return null;
  });
  await store(tx, chain.id, deposits, transferIds);
}

async function store(
  tx: Connection,
  chainId: string,
  deposits: readonly Deposit[],
  transferIds: ReadonlyArray<string | null>,
): Promise<void> {
  const pick = <T>(value: (each: Deposit) => T): T[] => deposits.map(value);
  await execute(
    tx,
    sql`insert into deposit (chain_id, transaction_hash, event_index, app_id, amount, sender, height, transfer_id)
        select ${chainId}, * from unnest(${pick(({ transfer }) => transfer.transactionHash)}::text[],
          ${pick(({ transfer }) => transfer.eventIndex)}::int[], ${pick(({ appId }) => appId)}::text[],
          ${pick(({ transfer }) => storedAmount(transfer.amount))}::bigint[], ${pick(({ transfer }) => transfer.sender)}::text[],
          ${pick(({ transfer }) => transfer.height)}::bigint[], ${[...transferIds]}::uuid[])`,
  );
  await execute(
    tx,
    sql`insert into unswept as u (address, address_index, amount)
        select address, min(index), least(sum(amount), 9223372036854775807) from unnest(${pick(({ transfer }) => transfer.recipient)}::text[],
          ${pick(({ addressIndex }) => addressIndex)}::int[], ${pick(({ transfer }) => storedAmount(transfer.amount))}::bigint[])
          d(address, index, amount)
        group by address order by address
        on conflict (address) do update set amount = least(u.amount::numeric + excluded.amount, 9223372036854775807)`,
  );
}
