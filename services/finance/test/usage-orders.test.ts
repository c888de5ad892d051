import { randomUUID } from 'node:crypto';
import * as fc from 'fast-check';
import type { BusEvent } from '@granary/shared/bus/inbox';
import type { Pool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { checkProperty } from '@granary/testing/properties';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { usageHandler } from '../src/events';
import type { Prices } from '../src/usage/prices';
import { costUnits, dayMs, unitsPerUtia, wholeUtia, type PriceList } from '../src/usage/retention';
import { listRetentionCosts } from '../src/usage/retention-costs';
import { financePool } from './support/harness';

const orders = size({ run: 500, long: 5_000 });
const eventsMax = 6;
const now = new Date(100 * dayMs);
const priceList: PriceList = [{ sinceMs: 0, utiaPerGibDay: 1_000n, freeDays: 3 }];
const prices: Prices = { list: async () => priceList };

let pool: Pool;
beforeAll(async () => {
  pool = (await financePool(2)).pool;
});
afterAll(() => pool.end());

interface Point {
  day: number;
  gib: number;
}

/** What happened to two collections of one name, the second made after the first was deleted. */
interface History {
  generations: Array<{ data: Point[]; blobs: Point[]; deleted: boolean }>;
}

const GiB = 2n ** 30n;
/** The first of these days is in the life of the first collection, and so on; blobs of it may go later. */
const lives = [
  { begins: 1, ends: 40 },
  { begins: 50, ends: 90 },
] as const;

const points = (begins: number, ends: number, length: { minLength: number; maxLength: number }) =>
  fc
    .uniqueArray(fc.integer({ min: begins, max: ends - 1 }), length)
    .chain((days) =>
      fc.tuple(
        ...days
          .sort((a, b) => a - b)
          .map((day) => fc.record({ day: fc.constant(day), gib: fc.integer({ min: 0, max: 3 }) })),
      ),
    );

const histories: fc.Arbitrary<History> = fc
  .record({
    generations: fc.tuple(
      ...lives.map(({ begins, ends }, at) =>
        fc.record({
          data: points(begins, ends, { minLength: 1, maxLength: 2 }),
          blobs: points(begins, ends + 9, { minLength: 0, maxLength: 2 }),
          deleted: at === 0 ? fc.constant(true) : fc.boolean(),
        }),
      ),
    ),
  })
  .filter(({ generations }) => countEvents({ generations }) <= eventsMax);

const countEvents = ({ generations }: History) =>
  generations.reduce((sum, { data, blobs, deleted }) => sum + data.length + blobs.length + Number(deleted), 0);

/** The events of each aggregate, which alone keep their order. */
function aggregatesOf({ generations }: History): Array<Array<Pick<BusEvent, 'type' | 'payload'>>> {
  const at = (day: number) => new Date(day * dayMs).toISOString();
  return generations.flatMap(({ data, blobs, deleted }, index) => {
    const about = { app_id: 'app', collection: 'notes', collection_number: index + 1 };
    const usage = ({ day, gib }: Point) => ({ ...about, size_bytes: gib * Number(GiB), at: at(day) });
    return [
      [
        ...data.map((point) => ({
          type: 'collection.usage',
          payload: { ...usage(point), document_count: 1, retention_days: null },
        })),
        ...(deleted ? [{ type: 'collection.deleted', payload: { ...about, at: at(lives[index]!.ends) } }] : []),
      ],
      blobs.map((point) => ({ type: 'blobs.usage', payload: usage(point) })),
    ];
  });
}

/** What it all costs, by looking at each day for itself. */
function expectedCost({ generations }: History): { gib: number; accrued: bigint } | undefined {
  let units = 0n;
  for (const [index, { data, blobs, deleted }] of generations.entries()) {
    const began = data.find(({ gib }) => gib > 0)?.day;
    if (began === undefined) continue;
    const ends = deleted ? lives[index]!.ends : 100;
    const held = (kept: readonly Point[], day: number) => kept.filter((point) => point.day <= day).at(-1)?.gib ?? 0;
    for (let day = 0; day < ends; day++) {
      const bytes = BigInt(held(data, day) + held(blobs, day)) * GiB;
      units += costUnits({ bytes, fromMs: day * dayMs, toMs: (day + 1) * dayMs, beganMs: began * dayMs }, priceList);
    }
  }
  const [, second] = generations as [unknown, History['generations'][number]];
  if (second.deleted) return units >= unitsPerUtia ? { gib: 0, accrued: wholeUtia(units) } : undefined;
  const gib = (second.data.at(-1)?.gib ?? 0) + (second.blobs.at(-1)?.gib ?? 0);
  return { gib, accrued: wholeUtia(units) };
}

test(
  'the events of two collections of one name are applied alike in whatever order they arrive',
  async () => {
    const handle = usageHandler(() => prices);
    const undo = new Error('undo');
    await checkProperty(
      'finance/usage-orders',
      orders,
      fc.asyncProperty(histories, fc.scheduler(), async (history, scheduler) => {
        const check = transaction(pool, async (tx) => {
          for (const events of aggregatesOf(history)) {
            scheduler.scheduleSequence(
              events.map((event) => async () => {
                const about = { id: randomUUID(), topic: 'usage', key: 'app', aggregateId: 'a', aggregateSequence: 1n };
                await handle(tx, { ...about, ...event, at: now.toISOString() });
              }),
            );
          }
          await scheduler.waitIdle();
          const found = await listRetentionCosts(tx, prices, 'app', now);
          const expected = expectedCost(history);
          const sizes = found.map(({ sizeBytes, accrued }) => ({ gib: Number(sizeBytes / GiB), accrued }));
          expect(sizes).toEqual(expected ? [expected] : []);
          throw undo;
        });
        await check.catch((error: unknown) => {
          if (error !== undo) throw error;
        });
      }),
    );
  },
  sizedLimitMs(limitMs(240_000)),
);
