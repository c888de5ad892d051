import { Client } from 'pg';
import { eventually, eventuallyHolds } from '@granary/testing/eventually';
import { newApp, send, type Granary } from '../support/granary';
import { startGranaryHere } from '../support/own-granary';

const RealDate = Date;
const dayMs = 86_400_000;
let shiftMs = 0;

/** The clock of this process, and so of all six services, as somebody has set it. */
class ShiftedDate extends RealDate {
  constructor(...args: [] | [number | string | Date]) {
    if (args.length === 0) super(RealDate.now() + shiftMs);
    else super(...(args as [number]));
  }
  static override now(): number {
    return RealDate.now() + shiftMs;
  }
}

beforeAll(() => {
  globalThis.Date = ShiftedDate as DateConstructor;
});
afterEach(() => {
  shiftMs = 0;
});
afterAll(() => {
  globalThis.Date = RealDate;
});

describe('a wrong clock', () => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await startGranaryHere('direct', {
      settings: {
        payments: { RETENTION_FREE_DAYS: '0', RETENTION_UTIA_PER_GIB_DAY: '1000000000' },
        data: { MAINTENANCE_EVERY_MS: '100' },
      },
    });
  });
  afterAll(() => granary.stop());

  const usage = async (app: Awaited<ReturnType<typeof newApp>>) => {
    const { body } = await app.call<{
      collections: Array<{ accrued: number; size_bytes: number; next_charge_at: string }>;
    }>('GET', `/api/apps/${app.appId}/retention/cost`);
    return body.collections[0];
  };
  const sizeOf = (app: Awaited<ReturnType<typeof newApp>>, documents: number) =>
    eventually(async () => {
      const { body } = await app.call<{ size_bytes: number; document_count: number }>(
        'GET',
        `/api/apps/${app.appId}/collections/notes/stats`,
      );
      const found = await usage(app);
      return body.document_count === documents && found?.size_bytes === body.size_bytes ? found : undefined;
    });

  test.each([400, -400])(
    'a clock wrong by %d days during some writes causes no cost for time in which nothing was stored',
    async (days) => {
      const app = await newApp(granary);
      const text = 'x'.repeat(100_000);
      await app.store('notes', [{ id: 'a', text }]);
      await sizeOf(app, 1);
      shiftMs = days * dayMs;
      await app.store('notes', [{ id: 'b', text }]);
      await sizeOf(app, 2);
      shiftMs = 0;
      await app.store('notes', [{ id: 'c', text }]);
      const { accrued, next_charge_at: nextChargeAt } = await sizeOf(app, 3);
      // 200 kB for a day would be 186,000 utia, and this takes seconds.
      expect(accrued).toBeLessThan(2_000);
      const untilChargeMs = RealDate.parse(nextChargeAt) - RealDate.now();
      expect(untilChargeMs).toBeGreaterThan(29 * dayMs);
      expect(untilChargeMs).toBeLessThan(30 * dayMs);
    },
  );

  /** Makes a document as old as if it had been written so many days before. */
  async function age(appId: string, id: string, days: number): Promise<void> {
    const database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
    const { rows } = await database.query<{ table: string }>(
      `select 'a_' || a.number || '.c_' || c.number as table from collection c join application a on a.number = c.app_number
       where a.app_id = $1`,
      [appId],
    );
    await database.query(`update ${rows[0]!.table} set updated_at = updated_at - $1 * interval '1 day' where id = $2`, [
      days,
      id,
    ]);
    await database.end();
  }

  test('with a clock wrong by 400 days documents are purged by the clock of the database', async () => {
    const app = await newApp(granary);
    await app.store('notes', [{ id: 'before' }, { id: 'expired' }]);
    shiftMs = 400 * dayMs;
    await app.store('notes', [{ id: 'meanwhile' }]);
    await age(app.appId, 'expired', 8);
    await app.call('POST', `/api/apps/${app.appId}/collections/notes/retention`, { retention_days: 7 });
    const ids = async () => (await app.list<{ id: string }>('notes')).body.records.map(({ id }) => id).sort();
    // A round of the purge is over.
    await eventuallyHolds(ids, (found) => !found.includes('expired'));
    expect(await ids()).toEqual(['before', 'meanwhile']);
    shiftMs = 0;
    await age(app.appId, 'meanwhile', 8);
    await eventuallyHolds(ids, (found) => !found.includes('meanwhile'));
    expect(await ids()).toEqual(['before']);
  });

  test.each([-25, 25])(
    'with a clock wrong by %d hours an Idempotency-Key still repeats the answer and writes once',
    async (hours) => {
      const app = await newApp(granary);
      const headers = { 'idempotency-key': 'once' };
      const body = { root: `${app.appId}::notes`, data: [{ text: 'written once' }] };
      shiftMs = hours * 3_600_000;
      const first = await app.call('POST', '/store', body, headers);
      expect(first.status).toBe(202);
      for (const shift of [shiftMs, 0]) {
        shiftMs = shift;
        const again = await app.call('POST', '/store', body, headers);
        expect([again.status, again.text]).toEqual([202, first.text]);
        expect(again.headers.get('idempotency-replayed')).toBe('true');
      }
      expect((await app.list('notes')).body.total).toBe(1);
    },
  );

  test('health is degraded beyond 10 s, with the difference, until the clock is right again', async () => {
    const health = async () => (await send<{ status: string }>(granary.url, 'GET', '/health')).text;
    await eventuallyHolds(health, (text) => text.includes('"status":"healthy"') && !text.includes('degraded'));
    shiftMs = -15_000;
    await eventuallyHolds(health, (text) =>
      text.includes('The clock of this process is 15 s behind that of the database'),
    );
    shiftMs = 9_000;
    await eventuallyHolds(health, (text) => text.includes('"status":"healthy"') && !text.includes('degraded'));
    shiftMs = 20_000;
    await eventuallyHolds(health, (text) => text.includes('20 s ahead of'));
    shiftMs = 0;
    await eventuallyHolds(health, (text) => text.includes('"status":"healthy"') && !text.includes('degraded'));
  });
});

test.each([
  [6, 'The clock of this process is 6 minutes ahead of that of the database. Set both clocks'],
  [-25 * 60, 'The clock of this process is 25 hours behind that of the database. Set both clocks'],
])('by %d minutes at the start, the start is refused with a sentence that says so', async (minutes, message) => {
  shiftMs = minutes * 60_000;
  await expect(startGranaryHere('direct')).rejects.toThrow(message);
});
