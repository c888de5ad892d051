import { randomUUID } from 'node:crypto';
import * as fc from 'fast-check';
import { rows, execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { checkProperty } from '@granary/testing/properties';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { usageHandler } from '../src/events';
import { openAccounts } from '../src/ledger/accounts';
import { walletAccount } from '../src/ledger/kinds';
import { postTransfer } from './support/ledger';
import { transferId } from '@granary/shared/money/transfer-id';
import type { Prices } from '../src/usage/prices';
import { dayMs, periodMs, type PriceList } from '../src/usage/retention';
import { chargeDelayMs, chargeDuePeriods } from '../src/usage/retention-charges';
import { listRetentionCosts } from '../src/usage/retention-costs';
import { financePool, log } from './support/harness';
import { modelUnits, RetentionModel, type KnownCollection } from './support/retention-model';

const histories = size({ run: 30, long: 300 });
const startMs = Date.UTC(2026, 0, 1);
const hourMs = 3_600_000;

let pool: Pool;
beforeAll(async () => {
  pool = (await financePool(4)).pool;
  await openAccounts(pool, [
    { id: 'platform:fees', unit: 'utia', mayOverdraw: false },
    { id: 'chain:test', unit: 'utia', mayOverdraw: true },
  ]);
});
afterAll(() => pool.end());

/** Something that happens at an hour; about usage it is heard of `lateHours` later. */
type Happening =
  | { what: 'data' | 'blobs'; hour: number; collection: number; bytes: bigint; lateHours: number }
  | { what: 'deleted'; hour: number; collection: number; lateHours: number }
  | { what: 'deposit'; hour: number; app: number; amount: bigint }
  | { what: 'charge'; hour: number };

// Two apps with two collections each; 150 days are five periods.
const hour = fc.nat({ max: 150 * 24 });
const collection = fc.nat({ max: 3 });
const lateHours = fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat({ max: 40 * 24 }));
const bytes = fc.bigInt({ min: 0n, max: 2n ** 34n });
const happening: fc.Arbitrary<Happening> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ what: fc.constant('data' as const), hour, collection, bytes, lateHours }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant('blobs' as const), hour, collection, bytes, lateHours }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant('deleted' as const), hour, collection, lateHours }) },
  {
    weight: 2,
    arbitrary: fc.record({
      what: fc.constant('deposit' as const),
      hour,
      app: fc.nat({ max: 1 }),
      amount: fc.bigInt({ min: 1n, max: 1_000_000n }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ what: fc.constant('charge' as const), hour }) },
);
const priceLists: fc.Arbitrary<PriceList> = fc
  .array(
    fc.record({
      sinceMs: fc.nat({ max: 100 }).map((day) => startMs + day * dayMs),
      utiaPerGibDay: fc.bigInt({ min: 0n, max: 2_000n }),
      freeDays: fc.nat({ max: 40 }),
    }),
    { minLength: 1, maxLength: 3 },
  )
  .map((list) => list.sort((a, b) => a.sinceMs - b.sinceMs) as unknown as PriceList);

const timeOf = (each: Happening): number => startMs + each.hour * hourMs;
const heardAt = (each: Happening): number => timeOf(each) + ('lateHours' in each ? each.lateHours * hourMs : 0);

/** Applies a history to finance and to the model, in the order in which finance hears of it. */
class Replay {
  readonly collections: KnownCollection[];
  readonly model: RetentionModel;
  private readonly apps = [0, 1].map(() => `a${randomUUID().slice(0, 13)}`);
  private readonly handle;
  private nowMs = startMs;

  constructor(
    private readonly prices: PriceList,
    private readonly source: Prices,
  ) {
    this.handle = usageHandler(() => source);
    this.model = new RetentionModel(prices, periodMs);
    this.collections = [0, 1, 2, 3].map((at) => ({
      app: this.apps[at % 2]!,
      name: at < 2 ? 'notes' : 'pictures',
      number: at + 1,
      data: [],
      blobs: [],
    }));
  }

  async begin(): Promise<void> {
    await execute(pool, sql`truncate collection_generation, retention_charge`);
    await openAccounts(
      pool,
      this.apps.map((app) => ({ id: walletAccount(app), unit: 'utia', mayOverdraw: false })),
    );
  }

  async apply(each: Happening): Promise<void> {
    this.nowMs = heardAt(each);
    if (each.what === 'charge') return this.charge();
    if (each.what === 'deposit') return this.deposit(each.app, each.amount);
    const known = this.collections[each.collection]!;
    if (known.deletedMs !== undefined) return;
    // Events of one aggregate never overtake each other.
    const list = each.what === 'blobs' ? known.blobs : known.data;
    const atMs = Math.max(timeOf(each), list.at(-1)?.atMs ?? 0);
    if (each.what === 'deleted') known.deletedMs = atMs;
    else list.push({ atMs, bytes: each.bytes });
    this.model.touched(known.number);
    await this.publish(known, each, atMs);
  }

  private async publish(known: KnownCollection, each: Happening, atMs: number): Promise<void> {
    const type = { data: 'collection.usage', blobs: 'blobs.usage', deleted: 'collection.deleted' }[each.what as 'data'];
    const at = new Date(atMs).toISOString();
    const payload = {
      app_id: known.app,
      collection: known.name,
      collection_number: known.number,
      ...('bytes' in each && { size_bytes: Number(each.bytes), document_count: 1, retention_days: null }),
      at,
    };
    const about = { id: randomUUID(), topic: 'usage', key: known.app, aggregateId: 'a', aggregateSequence: 1n };
    await transaction(pool, (tx) => this.handle(tx, { ...about, type, payload, at }));
  }

  private async deposit(at: number, amount: bigint): Promise<void> {
    const app = this.apps[at]!;
    this.model.balances.set(app, (this.model.balances.get(app) ?? 0n) + amount);
    await postTransfer(pool, {
      id: transferId(new Date(this.nowMs), 'deposit', randomUUID()),
      kind: 'deposit',
      debitAccount: 'chain:test',
      creditAccount: walletAccount(app),
      amount,
      ref: 'test',
    });
  }

  async charge(): Promise<void> {
    const now = () => new Date(this.nowMs);
    while ((await chargeDuePeriods({ pool, pricesIn: () => this.source, now, log })) > 0);
    this.model.run(this.collections, this.nowMs - chargeDelayMs);
  }

  async end(): Promise<void> {
    this.nowMs = Math.max(this.nowMs, startMs + 200 * dayMs);
    await this.charge();
    await this.compare();
  }

  private async compare(): Promise<void> {
    const charges = await rows(
      pool,
      sql`select app_id as app, collection, period, amount::bigint as amount, moved from retention_charge
          order by app_id, collection, number, period`,
    );
    const key = (each: { app: string; collection: string; period: number }) =>
      [each.app, each.collection, String(each.period).padStart(4, '0')].join(' ');
    expect(charges).toEqual(this.model.charges.sort((a, b) => (key(a) < key(b) ? -1 : 1)));
    for (const app of this.apps) {
      const account = await rows<{ left: bigint }>(
        pool,
        sql`select credits_posted - debits_posted as left from account where id = ${walletAccount(app)}`,
      );
      expect(account).toEqual([{ left: this.model.balances.get(app) ?? 0n }]);
      const costs = await listRetentionCosts(pool, this.source, app, new Date(this.nowMs));
      expect(
        costs.filter(({ accrued }) => accrued > 0n).map(({ collection: name, accrued }) => [name, accrued]),
      ).toEqual(this.owedOf(app));
    }
  }

  /** What each collection owes by the model, with what it has cost since its last charge. */
  private owedOf(app: string): Array<[string, bigint]> {
    return this.collections
      .filter((each) => each.app === app)
      .map((each): [string, bigint] => {
        const moved = this.model.charges
          .filter((charge) => charge.app === app && charge.collection === each.name)
          .reduce((sum, charge) => sum + charge.moved, 0n);
        const cost = modelUnits(each, this.prices, this.nowMs) / (2n ** 30n * BigInt(dayMs));
        return [each.name, cost - moved];
      })
      .filter(([, utia]) => utia > 0n);
  }
}

test(
  'of any history of usage, deposits, late events and late runs, each period is charged as an exact model charges it',
  async () => {
    await checkProperty(
      'finance/retention-model',
      histories,
      fc.asyncProperty(fc.array(happening, { maxLength: 40, size: 'max' }), priceLists, async (list, prices) => {
        const replay = new Replay(prices, { list: async () => prices });
        await replay.begin();
        for (const each of [...list].sort((a, b) => heardAt(a) - heardAt(b))) await replay.apply(each);
        await replay.end();
      }),
    );
  },
  sizedLimitMs(limitMs(240_000)),
);
