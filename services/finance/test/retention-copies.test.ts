import { randomUUID } from 'node:crypto';
import { row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { transferId } from '@granary/shared/money/transfer-id';
import { usageHandler } from '../src/events';
import { openAccounts, readAccount } from '../src/ledger/accounts';
import { walletAccount } from '../src/ledger/kinds';
import { postTransfer } from './support/ledger';
import { dayMs, type PriceList } from '../src/usage/retention';
import { chargeDuePeriods } from '../src/usage/retention-charges';
import { financePool, log } from './support/harness';

const GiB = 2 ** 30;
const startMs = Date.UTC(2026, 0, 1);
const day = (days: number) => new Date(startMs + days * dayMs);
const list: PriceList = [{ sinceMs: 0, utiaPerGibDay: 1_000n, freeDays: 30 }];
const prices = { list: () => Promise.resolve(list) };
const handle = usageHandler(() => prices);

let pool: Pool;
let app: string;
beforeEach(async () => {
  pool = (await financePool(6)).pool;
  app = `a${randomUUID().slice(0, 13)}`;
  const account = { unit: 'utia', mayOverdraw: false };
  await openAccounts(pool, [
    { ...account, id: 'platform:fees' },
    { ...account, id: walletAccount(app) },
    { ...account, id: 'chain:test', mayOverdraw: true },
  ]);
  const gift = { id: transferId(day(0), 'deposit', app), kind: 'deposit', ref: '', amount: 100_000_000n };
  await postTransfer(pool, { ...gift, debitAccount: 'chain:test', creditAccount: walletAccount(app) });
});
afterEach(() => pool.end());

async function stores(tx: Connection, number: number, atDay: number, bytes: number): Promise<void> {
  const at = day(atDay).toISOString();
  const payload = {
    app_id: app,
    collection: `notes${number}`,
    collection_number: number,
    at,
    size_bytes: bytes,
    document_count: 1,
    retention_days: null,
  };
  const about = { id: randomUUID(), topic: 'usage', key: app, aggregateId: 'a', aggregateSequence: 1n };
  await handle(tx, { ...about, type: 'collection.usage', payload, at });
}
const charge = (atDay: number) => chargeDuePeriods({ pool, pricesIn: () => prices, now: () => day(atDay), log });
const spent = async () => (await readAccount(pool, walletAccount(app))).debitsPosted;

test('periods that four copies charge at the same time, late and again, cost what they cost one copy', async () => {
  await transaction(pool, async (tx) => {
    for (let number = 1; number <= 300; number++) await stores(tx, number, 0, GiB);
  });
  const copy = async () => {
    while ((await charge(151)) > 0);
  };
  await Promise.all([copy(), copy(), copy(), copy()]);
  await copy();
  // Of five periods the first is free.
  expect(await spent()).toBe(300n * 4n * 30_000n);
  expect(await row(pool, sql`select count(*), sum(moved)::bigint as moved from retention_charge`)).toEqual({
    count: 1_200n,
    moved: 300n * 4n * 30_000n,
  });
  expect(await rows(pool, sql`select distinct charged_periods as periods from collection_generation`)).toEqual([
    { periods: 5 },
  ]);
});

test('a collection about which an event is being applied is charged after it, with what it says', async () => {
  await transaction(pool, (tx) => stores(tx, 1, 0, GiB));
  while ((await charge(59)) > 0);
  await transaction(pool, async (tx) => {
    await stores(tx, 1, 50, 3 * GiB);
    expect(await charge(61)).toBe(0);
  });
  expect(await charge(61)).toBe(1);
  expect(await spent()).toBe(20_000n + 30_000n);
});
