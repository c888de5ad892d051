import { randomUUID } from 'node:crypto';
import { execute, rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventuallyResolves } from '@granary/testing/eventually';
import { call, startTestFinance, type TestFinance } from './support/harness';

const newApp = () => `a${randomUUID().slice(0, 13)}`;
const GiB = 2 ** 30;
const started = Date.UTC(2026, 0, 1);
const day = (days: number) => new Date(started + days * 86_400_000);

let finance: TestFinance;
beforeEach(async () => {
  finance = await startTestFinance();
});
afterEach(() => finance.stop());

/** A collection of an application, as data and blobs speak of it. */
function collectionOf(app: string, name = 'notes', number = 1) {
  const about = { app_id: app, collection: name };
  const blobs = (atDay: number, bytes: number, more: object) =>
    finance.blobs.publish('blobs.usage', {
      ...about,
      ...more,
      size_bytes: bytes,
      blob_count: 1,
      at: day(atDay).toISOString(),
    });
  return {
    data: (atDay: number, bytes: number, documents = 1, retentionDays: number | null = null) =>
      finance.data.publish('collection.usage', {
        ...about,
        collection_number: number,
        size_bytes: bytes,
        document_count: documents,
        retention_days: retentionDays,
        at: day(atDay).toISOString(),
      }),
    blobs: (atDay: number, bytes: number) => blobs(atDay, bytes, { collection_number: number }),
    /** As before blobs knew the number. */
    unnumberedBlobs: (atDay: number, bytes: number) => blobs(atDay, bytes, {}),
    deleted: (atDay: number) =>
      finance.data.publish('collection.deleted', { ...about, collection_number: number, at: day(atDay).toISOString() }),
  };
}

const cost = (app: string) => finance.client.getRetentionCost({ appId: app }, call());

/** The costs on a day, once the events have arrived that make the sizes as expected. */
async function costOn(atDay: number, app: string, sizes: Record<string, number>) {
  finance.clock.now = day(atDay);
  return eventuallyResolves(async () => {
    const found = await cost(app);
    expect(Object.fromEntries(found.collections.map((each) => [each.collection, Number(each.sizeBytes)]))).toEqual(
      sizes,
    );
    return found;
  });
}

test('thirty days are free; then each day costs its price, of data and blobs together', async () => {
  const app = newApp();
  const notes = collectionOf(app);
  await notes.data(0, 0, 0);
  await notes.data(1, GiB, 12, 90);
  await notes.blobs(2, GiB);
  expect(await costOn(11, app, { notes: 2 * GiB })).toEqual({
    collections: [
      {
        collection: 'notes',
        retentionDays: 90,
        sizeBytes: String(2 * GiB),
        documentCount: '12',
        freeDays: 30,
        pricePerGibDay: '1000',
        // Day 11 to day 41, of which day 31 to 41 is not free.
        monthlyCost: '20000',
        accrued: '0',
        nextChargeAt: day(31).toISOString(),
      },
    ],
    totalMonthlyCost: '20000',
  });
  finance.clock.now = day(31);
  expect((await cost(app)).collections).toMatchObject([
    { accrued: '0', monthlyCost: '60000', nextChargeAt: day(61).toISOString() },
  ]);
  finance.clock.now = day(33.5);
  expect((await cost(app)).collections).toMatchObject([{ accrued: '5000' }]);
  // What it held until then is what counts, not what it holds when somebody looks.
  await notes.data(34, 0, 0);
  await notes.blobs(35, GiB / 2);
  expect((await costOn(36, app, { notes: GiB / 2 })).collections).toMatchObject([
    { accrued: '7500', monthlyCost: '15000', documentCount: '0' },
  ]);
});

test('what indexes take costs as much as documents do', async () => {
  const app = newApp();
  await finance.data.publish('collection.usage', {
    app_id: app,
    collection: 'notes',
    collection_number: 1,
    size_bytes: GiB,
    index_bytes: GiB,
    document_count: 1,
    retention_days: null,
    at: day(0).toISOString(),
  });
  const { collections } = await costOn(32, app, { notes: 2 * GiB });
  expect(collections).toMatchObject([{ accrued: '4000', monthlyCost: '60000' }]);
});

test('a small collection that changes often owes the same as one that lies still, down to the remainder', async () => {
  await finance.setPrices({ freeDays: 0 });
  const app = newApp();
  const [busy, still] = [collectionOf(app, 'busy', 1), collectionOf(app, 'still', 2)];
  // Less than a hundredth of an utia between two changes.
  const bytes = 1_000_000;
  await still.data(0, bytes);
  for (let at = 0; at < 250; at++) await busy.data(at / 100, bytes, at);
  const sizes = { busy: bytes, still: bytes };
  await eventuallyResolves(async () => {
    expect((await costOn(100, app, sizes)).collections).toMatchObject([
      { documentCount: '249' },
      { documentCount: '1' },
    ]);
  });
  const exact = Math.floor((bytes / GiB) * 1_000 * 100);
  expect((await cost(app)).collections).toMatchObject([{ accrued: String(exact) }, { accrued: String(exact) }]);
  expect(exact).toBe(93);
});

test('a change of price counts from the time at which payments has set it; the same price again changes nothing', async () => {
  await finance.setPrices({ freeDays: 0 });
  const app = newApp();
  await collectionOf(app).data(0, GiB);
  expect((await costOn(10, app, { notes: GiB })).collections).toMatchObject([{ accrued: '10000' }]);
  await finance.setPrices({ utiaPerGibDay: 5_000n, freeDays: 0 });
  expect((await cost(app)).collections).toMatchObject([{ pricePerGibDay: '5000', accrued: '10000' }]);
  finance.clock.now = day(11);
  await finance.setPrices({ utiaPerGibDay: 5_000n, freeDays: 0 });
  expect((await cost(app)).collections).toMatchObject([{ pricePerGibDay: '5000', accrued: '15000' }]);
  await finance.restart();
  expect((await cost(app)).collections).toMatchObject([
    { pricePerGibDay: '5000', accrued: '15000', monthlyCost: '150000' },
  ]);
  // The first list, and two changes.
  expect((await rows(finance.pool, sql`select from retention_price`)).length).toBe(3);
});

test('prices that make no sense are dead-lettered, and the last ones hold', async () => {
  await finance.payments.publish('prices.set', {
    retention_utia_per_gib_day: '-1',
    retention_free_days: 0,
    since: 'now',
  });
  const part = async () =>
    (await finance.health.check({}, call())).parts.find((each) => each.name === 'events of payments');
  await eventuallyResolves(async () => expect(await part()).toMatchObject({ status: 'DEGRADED' }));
  const app = newApp();
  await collectionOf(app).data(0, GiB);
  expect((await costOn(31, app, { notes: GiB })).collections).toMatchObject([{ accrued: '1000', freeDays: 30 }]);
});

test('as long as prices were never published the cost is unavailable, and nothing that happened is lost', async () => {
  await finance.stop();
  finance = await startTestFinance({}, { prices: false });
  const app = newApp();
  expect(await cost(app)).toEqual({ collections: [], totalMonthlyCost: '0' });
  const notes = collectionOf(app);
  await notes.data(0, GiB);
  await eventuallyResolves(() => expect(cost(app)).rejects.toMatchObject({ code: 'UNAVAILABLE' }));
  // What it has cost until here is not known, so this event waits.
  await notes.data(1, 2 * GiB);
  await finance.setPrices({ freeDays: 0 });
  expect((await costOn(3, app, { notes: 2 * GiB })).collections).toMatchObject([{ accrued: '5000' }]);
});

test('a deleted collection costs nothing more and is listed while it owes; one of the same name begins anew and owes that too', async () => {
  const app = newApp();
  const [first, second] = [collectionOf(app, 'notes', 1), collectionOf(app, 'notes', 2)];
  await first.data(0, GiB);
  await first.blobs(0, GiB);
  await costOn(1, app, { notes: 2 * GiB });
  await first.deleted(32);
  expect((await costOn(40, app, { notes: 0 })).collections).toMatchObject([
    { accrued: '4000', documentCount: '0', monthlyCost: '0' },
  ]);
  // The blobs go a little later; none of that brings the collection back.
  await first.blobs(32.1, GiB / 2);
  await first.blobs(32.2, 0);
  await second.data(50, GiB);
  // What was on its way from the first one comes too late.
  await first.data(51, 7);
  await first.deleted(51);
  const [found] = (await costOn(60, app, { notes: GiB })).collections;
  expect(found).toMatchObject({ accrued: '4000', nextChargeAt: day(80).toISOString(), monthlyCost: '10000' });
  finance.clock.now = day(81);
  expect((await cost(app)).collections).toMatchObject([{ accrued: '5000' }]);
});

test('what a deleted collection owes counts once, also while the last of its blobs go', async () => {
  const app = newApp();
  const notes = collectionOf(app);
  await notes.data(0, GiB);
  await notes.blobs(0, GiB);
  await costOn(1, app, { notes: 2 * GiB });
  await notes.deleted(32);
  await notes.blobs(32.1, 0);
  finance.clock.now = day(40);
  const owesAll = async () => expect((await cost(app)).collections).toMatchObject([{ accrued: '4000' }]);
  await eventuallyResolves(owesAll);
  const ofApp = sql`where app_id = ${app}`;
  await eventuallyResolves(async () => {
    const found = await rows(
      finance.pool,
      sql`select blob_bytes as bytes, deleted_at as at from collection_generation ${ofApp}`,
    );
    expect(found).toEqual([{ bytes: 0n, at: day(32) }]);
  });
  let isRead = false;
  // As events of the blobs do, over and over.
  const change = async () => {
    for (let bytes = 1; !isRead; bytes = 1 - bytes)
      await execute(finance.pool, sql`update collection_generation set blob_bytes = ${bytes} ${ofApp}`);
  };
  const read = async () => {
    for (let reads = 0; reads < 100; reads++) await owesAll();
  };
  await Promise.all([change(), read().finally(() => (isRead = true))]);
});

test.each(['blobs', 'unnumberedBlobs'] as const)(
  'late events of a deleted collection change nothing of the one that has its name now (%s)',
  async (late) => {
    const app = newApp();
    const [first, second] = [collectionOf(app, 'notes', 1), collectionOf(app, 'notes', 2)];
    await first.data(0, GiB);
    await first[late](0, GiB);
    await costOn(1, app, { notes: 2 * GiB });
    await first.deleted(32);
    await second.data(50, GiB);
    await costOn(60, app, { notes: GiB });
    await first[late](32.1, GiB / 2);
    await first[late](32.2, 0);
    // The last to be applied of what blobs has published.
    await collectionOf(app, 'later', 3).blobs(60, 1);
    await costOn(81, app, { notes: GiB, later: 1 });
    expect((await cost(app)).collections).toMatchObject([
      { collection: 'later' },
      { collection: 'notes', accrued: '5000', nextChargeAt: day(110).toISOString() },
    ]);
  },
);

test('nothing is kept of an application that is gone, also not what comes late', async () => {
  const app = newApp();
  const other = newApp();
  await Promise.all([collectionOf(app, 'a', 1).data(0, GiB), collectionOf(app, 'b', 2).data(0, GiB)]);
  await collectionOf(other, 'c', 3).data(0, GiB);
  await costOn(1, app, { a: GiB, b: GiB });
  await finance.data.publish('app.deleted', { app_id: app, at: day(2).toISOString() });
  await costOn(3, app, {});
  await collectionOf(app, 'a', 1).blobs(4, GiB);
  await collectionOf(other, 'c', 3).blobs(4, GiB);
  await costOn(5, other, { c: 2 * GiB });
  expect(await cost(app)).toEqual({ collections: [], totalMonthlyCost: '0' });
});

test('an event that makes no sense is put aside, shown in health, and the others go on', async () => {
  const app = newApp();
  const part = async (name: string) =>
    (await finance.health.check({}, call())).parts.find((each) => each.name === name);
  await eventuallyResolves(async () => expect(await part('events of data')).toMatchObject({ status: 'HEALTHY' }));
  await finance.data.publish('collection.usage', { app_id: app, collection: 'bad', size_bytes: -1, at: 'yesterday' });
  await finance.data.publish('collection.renamed', { app_id: app, collection: 'unknown' });
  await collectionOf(app).data(0, 5);
  await costOn(1, app, { notes: 5 });
  await eventuallyResolves(async () => expect(await part('events of data')).toMatchObject({ status: 'DEGRADED' }));
  expect(await part('events of blobs')).toMatchObject({ status: 'HEALTHY' });
  expect(await part('database')).toMatchObject({ status: 'HEALTHY' });
});
