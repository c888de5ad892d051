import { randomBytes } from 'node:crypto';
import { simulatedChainPrefix } from '@granary/shared/money/play-money';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { BroadcastResult, Chain, ChainAccount, ChainTransfer, FindResult } from '../chain/chain';
import { feeOf } from '../chain/fee';
import {
  readTransaction,
  sdkCodes,
  sdkCodespace,
  TransactionRefused,
  verifySignature,
} from '@granary/shared/money/cosmos/read-transaction';
import { transactionHash } from '../chain/sign-transfer';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { credit, lockHead, produceBlock, readHead, type Head } from './blocks';
import { findAllowance, setGrant, type SimulatedGrant } from './grants';
import type { SimulatedChainSettings } from './settings';

/** How long a hash that is in a block is answered with `known`, as by the cache of a node. */
const cachedBlocks = 20n;

export interface SimulatedNodeOptions {
  /** The pool of a database that has the tables of finance. */
  pool: Pool;
  settings: SimulatedChainSettings;
  /** The initial balance of an address. */
  genesis?: { address: string; amount: bigint };
  /** Decides about losses, delays and evictions. */
  random?: () => number;
}

/** The simulated chain of a database, made at its first use under an id of its own. */
export async function openSimulatedNode(options: SimulatedNodeOptions): Promise<SimulatedNode> {
  const { pool, genesis } = options;
  const id = `${simulatedChainPrefix}${randomBytes(4).toString('hex')}`;
  await retriedTransaction(pool, async (tx) => {
    const isNew = await execute(
      tx,
      sql`insert into simulated_chain (chain_id, height, block_at) values (${id}, 1, clock_timestamp()) on conflict do nothing`,
    );
    if (isNew === 0 || !genesis) return;
    await execute(
      tx,
      sql`insert into simulated_account (address, balance) values (${genesis.address}, ${genesis.amount})`,
    );
  });
  return new SimulatedNode((await readHead(pool)).chainId, options);
}

/**
 * A node of a chain that exists in finance's database only. It takes signed transactions and refuses what a node of the
 * Cosmos SDK refuses, and it may lose, delay and evict what it has accepted. Blocks are produced by the clock of
 * Postgres when the node is called, so that copies of the service share one chain and an idle one costs nothing.
 */
export class SimulatedNode implements Chain {
  constructor(
    readonly id: string,
    private readonly options: SimulatedNodeOptions,
  ) {}

  async height(): Promise<{ height: bigint; at: Date }> {
    const { height, blockAt } = await this.head();
    return { height, at: blockAt };
  }

  async account(address: string): Promise<ChainAccount | undefined> {
    const { height } = await this.head();
    const account = await row<{ number: bigint; sequence: bigint }>(
      this.options.pool,
      sql`select number, sequence from simulated_account where address = ${address}`,
    );
    return account && { ...account, height };
  }

  async balance(address: string): Promise<bigint> {
    await this.head();
    const account = await row<{ balance: bigint }>(
      this.options.pool,
      sql`select balance from simulated_account where address = ${address}`,
    );
    return account?.balance ?? 0n;
  }

  async broadcast(bytes: Uint8Array): Promise<BroadcastResult> {
    const { settings } = this.options;
    const result = await this.change((tx, head) => this.accept(tx, head, bytes));
    if (this.random() < settings.answerLoss) throw new Error('The simulated chain has lost the answer to a broadcast');
    return result;
  }

  async find(hash: string): Promise<FindResult> {
    const { height } = await this.head();
    const indexed = height - this.randomBlocks(this.options.settings.indexLagBlocks);
    const transaction = await row<{ height: bigint; code: number }>(
      this.options.pool,
      sql`select height, code from simulated_transaction where hash = ${hash} and height <= ${indexed}`,
    );
    if (!transaction) return { state: 'absent', height };
    const transfers = await rows<ChainTransfer>(
      this.options.pool,
      sql`select ${transferColumns} from simulated_transfer where hash = ${hash} order by event_index`,
    );
    return { state: 'included', ...transaction, codespace: transaction.code === 0 ? '' : sdkCodespace, transfers };
  }

  async *transfers(from: bigint, to: bigint): AsyncIterable<ChainTransfer> {
    const { height } = await this.head();
    if (to > height) throw new RangeError(`There is no block ${to.toString()} yet`);
    yield* await rows<ChainTransfer>(
      this.options.pool,
      sql`select ${transferColumns} from simulated_transfer where height between ${from} and ${to} order by height, number`,
    );
  }

  /** Sends an address money out of nothing, in a block of its own, and returns the hash of the transaction. */
  fund(address: string, amount: bigint): Promise<string> {
    return retriedTransaction(this.options.pool, (tx) => this.fundIn(tx, address, amount));
  }

  /** Does what `fund` does in a transaction of the caller. The chain stays locked until that transaction ends. */
  async fundIn(tx: Connection, address: string, amount: bigint): Promise<string> {
    const hash = randomBytes(32).toString('hex').toUpperCase();
    const head = await this.catchUp(tx, await lockHead(tx));
    const { height, blockAt } = await this.next(tx, head, await clockOf(tx));
    await execute(tx, sql`insert into simulated_transaction (hash, height, code) values (${hash}, ${height}, 0)`);
    const outputs = [{ address, amount }];
    await credit(tx, { hash, height, at: blockAt, sender: 'faucet', outputs, memo: '' });
    return hash;
  }

  /**
   * Stores what a granter lets a grantee send, as a MsgGrant with a SendAuthorization does; nothing: as a MsgRevoke.
   */
  setGrant(tx: Connection, grant: SimulatedGrant | undefined, granter: string, grantee: string): Promise<void> {
    return setGrant(tx, grant, granter, grantee);
  }

  /** The amount that a granter currently lets a grantee send. */
  allowance(granter: string, grantee: string): Promise<bigint> {
    return findAllowance(this.options.pool, granter, grantee);
  }

  /** Produces a block now. */
  produceBlock(): Promise<void> {
    return this.change(async (tx, head) => {
      await this.next(tx, head, await clockOf(tx));
    });
  }

  private random(): number {
    return (this.options.random ?? Math.random)();
  }

  /** A random number of blocks from 0 to `max`, both included. */
  private randomBlocks(max: number): bigint {
    return max === 0 ? 0n : BigInt(Math.floor(this.random() * (max + 1)));
  }

  private next(tx: Connection, head: Head, at: Date): Promise<Head> {
    return produceBlock(tx, head, at, this.options.settings, () => this.random());
  }

  /** The latest block, after those have been produced whose time has come. */
  private async head(): Promise<Head> {
    const { pool, settings } = this.options;
    const head = await row<Head & { due: boolean }>(
      pool,
      sql`select chain_id as "chainId", height, block_at as "blockAt",
                 ${settings.blockMs} > 0 and clock_timestamp() >= block_at + ${settings.blockMs} * interval '1 millisecond' as due
          from simulated_chain`,
    );
    return head!.due ? this.change(async (_, caughtUp) => caughtUp) : head!;
  }

  /** Runs `work` in a transaction on the locked chain, after the blocks that are due. */
  private change<T>(work: (tx: Connection, head: Head) => Promise<T>): Promise<T> {
    return retriedTransaction(this.options.pool, async (tx) => work(tx, await this.catchUp(tx, await lockHead(tx))));
  }

  private async catchUp(tx: Connection, locked: Head): Promise<Head> {
    const { blockMs } = this.options.settings;
    if (blockMs === 0) return locked;
    const due = BigInt(Math.floor(((await clockOf(tx)).getTime() - locked.blockAt.getTime()) / blockMs));
    const timeAfter = (blocks: bigint) => new Date(locked.blockAt.getTime() + Number(blocks) * blockMs);
    let head = locked;
    while (head.height < locked.height + due) {
      if (!(await row(tx, sql`select from simulated_mempool limit 1`))) {
        // The others are empty.
        head = { ...head, height: locked.height + due, blockAt: timeAfter(due) };
        await execute(tx, sql`update simulated_chain set height = ${head.height}, block_at = ${head.blockAt}`);
      } else head = await this.next(tx, head, timeAfter(head.height - locked.height + 1n));
    }
    return head;
  }

  private async accept(tx: Connection, head: Head, bytes: Uint8Array): Promise<BroadcastResult> {
    const hash = transactionHash(bytes);
    const { settings } = this.options;
    const existing = await row<{ height: bigint | null }>(
      tx,
      sql`select null::bigint as height from simulated_mempool where hash = ${hash}
          union all select height from simulated_transaction where hash = ${hash}`,
    );
    if (existing && (existing.height === null || existing.height + cachedBlocks > head.height))
      return { state: 'known' };
    const checked = await this.check(tx, head, bytes);
    if (typeof checked === 'number') return { state: 'refused', codespace: 'sdk', code: checked };
    if (this.random() < settings.loss) return { state: 'accepted' };
    const dueHeight = head.height + 1n + this.randomBlocks(settings.delayBlocks);
    await execute(
      tx,
      sql`insert into simulated_mempool (hash, bytes, sender, sequence, due_height)
          values (${hash}, ${Buffer.from(bytes)}, ${checked.sender}, ${checked.sequence}, ${dueHeight})`,
    );
    return { state: 'accepted' };
  }

  /** The transfer of the transaction, or the code by which it is refused. */
  private async check(tx: Connection, head: Head, bytes: Uint8Array): Promise<Transfer | number> {
    const { settings } = this.options;
    try {
      const unverified = readTransaction(bytes, { ...settings, chainId: head.chainId, mayExec: true });
      const { sender, denom, fee, sequence, timeoutHeight } = unverified.transfer;
      const account = await row<{ number: bigint; expected: bigint; balance: bigint }>(
        tx,
        sql`select number, balance, sequence + (select count(*) from simulated_mempool where sender = address) as expected
            from simulated_account where address = ${sender}`,
      );
      if (!account) return sdkCodes.unauthorized;
      if (timeoutHeight !== 0n && timeoutHeight <= head.height) return sdkCodes.timeoutHeight;
      if (denom !== settings.denom || fee.amount < feeOf(fee.gas, settings.gasPrice)) return sdkCodes.insufficientFee;
      if (account.balance < fee.amount) return sdkCodes.insufficientFunds;
      if (sequence !== account.expected) return sdkCodes.wrongSequence;
      return verifySignature(unverified, account.number);
    } catch (error) {
      if (error instanceof TransactionRefused) return error.code;
      throw error;
    }
  }
}

const transferColumns = sql`hash as "transactionHash", event_index as "eventIndex", height, at, sender, recipient, amount, memo`;

/** The present time of Postgres: a clock that all copies of the service share. */
const clockOf = async (tx: Connection): Promise<Date> =>
  (await row<{ now: Date }>(tx, sql`select date_trunc('milliseconds', clock_timestamp()) as now`))!.now;
