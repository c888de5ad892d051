import { randomUUID } from 'node:crypto';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openAccounts, readBalances } from '@granary/finance/ledger/accounts';
import { postTransfer } from '../../finance/test/support/ledger';
import { createLogger } from '@granary/shared/logger';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually, eventuallyResolves } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { startPostgres, type EmbeddedPostgres } from '@granary/local/postgres/postgres';
import type { Order, Receipt } from './ledger-process';
import { endAllProcesses, endProcess, forkTracked } from '../support/own-process';

const kills = size({ run: 5, long: 1_000 });
const transfers = size({ run: 10_000, long: 1_000_000 });
const seed = seedOf('system/ledger-crash');
const random = seededRandom(seed);
/** Of each wallet at the beginning: so little that some have to wait for more. */
const funds = 400n;
/**
 * Postgres is killed every fifth time, but not so often that it gives up: when it crashes more than five times in a
 * minute.
 */
const postgresKillsMax = 5;
const postgresKillsWithinMs = 65_000;
const underWayMax = 1_000;
const log = createLogger('test', 'silent');

/**
 * Sends transfers to a process of the ledger, again whenever that had to be replaced, until each result is definite.
 */
class Customers {
  readonly sent = new Map<string, Order>();
  readonly outcomes = new Map<string, string>();
  private readonly open = new Map<string, Order>();
  private child: ChildProcess | undefined;

  constructor(
    private readonly url: string,
    private readonly accounts: readonly string[],
  ) {}

  async startProcess(): Promise<void> {
    const child = await forkTracked(join(__dirname, 'ledger-process.ts'));
    this.child = child;
    child.send(this.url);
    child.on('message', (receipt: Receipt) => this.note(receipt));
    child.send([...this.open.values()]);
    this.sendMore();
  }

  /** Kills it at any moment; or after `until`, while what it acknowledges is lost. */
  async killProcess(until: () => Promise<boolean> = () => Promise.resolve(true)): Promise<void> {
    const child = this.child!;
    this.child = undefined;
    child.removeAllListeners('message');
    await eventually(until);
    await endProcess(child, 'SIGKILL');
  }

  /** How many of the transfers that it knows of have moved money. */
  moved(): number {
    return [...this.outcomes.values()].filter((outcome) => outcome !== 'INSUFFICIENT_FUNDS').length;
  }

  async untilDefinite(count: number): Promise<void> {
    await eventually(() => this.outcomes.size >= Math.min(count, transfers), 120_000);
  }

  private note({ id, outcome }: Receipt): void {
    this.outcomes.set(id, outcome);
    this.open.delete(id);
    if (this.open.size < underWayMax / 2) this.sendMore();
  }

  private sendMore(): void {
    const more: Order[] = [];
    while (this.open.size < underWayMax && this.sent.size < transfers) {
      const order = this.newOrder();
      this.sent.set(order.id, order);
      this.open.set(order.id, order);
      more.push(order);
    }
    if (more.length > 0) this.child?.send(more);
  }

  private newOrder(): Order {
    const from = Math.floor(random() * this.accounts.length);
    const to = (from + 1 + Math.floor(random() * (this.accounts.length - 1))) % this.accounts.length;
    const amount = String(1 + Math.floor(random() * 50));
    return { id: randomUUID(), debitAccount: this.accounts[from]!, creditAccount: this.accounts[to]!, amount };
  }
}

describe('kill -9 of the ledger and of its Postgres', () => {
  let dataDir: string;
  let postgres: EmbeddedPostgres;
  let pool: Pool;
  let url: string;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'granary-ledger-'));
    const quiet = { info: () => undefined, warn: () => undefined };
    postgres = await startPostgres({ dataDir, log: quiet });
    url = await postgres.ensureDatabase('ledger', 'ledger');
    pool = createPool({ url, size: 4, applicationName: 'test', log });
    await migrate(pool, join(__dirname, '..', '..', 'finance', 'migrations'));
  });
  afterAll(async () => {
    await endAllProcesses();
    await pool?.end();
    await postgres?.stop();
    await rm(dataDir, { recursive: true, force: true });
  });

  test(`${kills} kills in ${transfers} transfers by the seed ${seed}: what was acknowledged is there once, and no money appears or is lost`, async () => {
    const accounts = Array.from({ length: 50 }, (_, at) => `app:${at}`);
    const wallets = accounts.map((id) => ({ id, unit: 'utia', mayOverdraw: false }));
    await openAccounts(pool, [{ id: 'world', unit: 'utia', mayOverdraw: true }, ...wallets]);
    for (const creditAccount of accounts) {
      const gift = { debitAccount: 'world', creditAccount, amount: funds, kind: 'deposit', ref: '' };
      await postTransfer(pool, { id: randomUUID(), ...gift });
    }

    const customers = new Customers(url, accounts);
    const postgresKilledAtMs: number[] = [];
    const mayKillPostgres = () =>
      (postgresKilledAtMs.at(-postgresKillsMax) ?? -Infinity) < performance.now() - postgresKillsWithinMs;
    const isAheadOfAcknowledgements = async () => {
      const found = await row<{ count: bigint }>(pool, sql`select count(*) from transfer where kind = 'spend'`);
      return found!.count > BigInt(customers.moved());
    };
    await customers.startProcess();
    for (let kill = 1; kill <= kills; kill++) {
      await customers.untilDefinite(Math.floor(((kill - random()) * transfers) / kills));
      if (kill % 5 === 0 && mayKillPostgres()) {
        postgresKilledAtMs.push(performance.now());
        process.kill(postgres.postmasterPid(), 'SIGKILL');
      } else {
        // The others fall at any moment; this one surely after a commit whose acknowledgement is lost.
        await customers.killProcess(kill === 1 ? isAheadOfAcknowledgements : undefined);
        await customers.startProcess();
      }
    }
    await customers.untilDefinite(transfers);
    expect(postgresKilledAtMs.length).toBeGreaterThanOrEqual(Math.min(4, Math.floor(kills / 5)));

    const outcomes = new Set(customers.outcomes.values());
    // Some were committed and their acknowledgement was lost: repeated, they moved nothing.
    expect(outcomes).toEqual(new Set(['created', 'exists', 'INSUFFICIENT_FUNDS']));
    await assertBooks(pool, customers, accounts);
  });
});

/**
 * Compares the ledger with what was acknowledged, transfer by transfer, and its counters with the sum of the transfers.
 */
async function assertBooks(pool: Pool, customers: Customers, accounts: readonly string[]): Promise<void> {
  // A backend answers for a moment after its Postgres was killed, so all is read by one attempt.
  const { stored, balances } = await eventuallyResolves(async () => ({
    stored: await rows<{ id: string; debit: string; credit: string; amount: bigint }>(
      pool,
      sql`select id, debit_account as debit, credit_account as credit, amount from transfer where kind = 'spend'`,
    ),
    balances: await readBalances(pool, [...accounts, 'world']),
  }));
  const moved = [...customers.outcomes].filter(([, outcome]) => outcome !== 'INSUFFICIENT_FUNDS').map(([id]) => id);
  expect(stored.map(({ id }) => id).sort()).toEqual(moved.sort());
  const expected = new Map(accounts.map((id) => [id, funds]));
  for (const { id, debit, credit, amount } of stored) {
    const order = customers.sent.get(id)!;
    expect([debit, credit, amount.toString()]).toEqual([order.debitAccount, order.creditAccount, order.amount]);
    expected.set(debit, expected.get(debit)! - amount);
    expected.set(credit, expected.get(credit)! + amount);
  }
  const found = balances.map(({ id, creditsPosted, debitsPosted }) => [id, creditsPosted - debitsPosted] as const);
  expect(new Map(found)).toEqual(expected.set('world', -funds * BigInt(accounts.length)));
  expect(found.reduce((sum, [, balance]) => sum + balance, 0n)).toBe(0n);
  for (const { debitsPending, creditsPending } of balances) expect([debitsPending, creditsPending]).toEqual([0n, 0n]);
}
