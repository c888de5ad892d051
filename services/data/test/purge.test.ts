import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import { AfterPlan } from '../src/commit/after-plan';
import { liveViewRows } from '../src/views/live/live-rows';
import { purgeExpired } from '../src/usage/retention-purge';
import { checkChain } from './support/check-chain';
import { log, newApp, noIdempotency, storeRequest, type App, type DataService } from './support/data-service';
import { collectionNumber, startTwoCopies } from './support/write-fixture';

describe('a purge', () => {
  let pool: Pool;
  let one: DataService;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ pool, one, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });

  const store = (data: object[]) => one.methods.store(storeRequest(app, 'films', data));
  const keepDays = (retentionDays: number) =>
    one.methods.setRetention({
      appId: app.appId,
      collection: 'films',
      retentionDays,
      idempotency: noIdempotency,
    });
  const tableNumber = () => collectionNumber(pool, app, 'films');
  const age = async (ids: string[]) =>
    pool.query(
      `update a_${app.number}.c_${await tableNumber()} set updated_at = updated_at - interval '8 days' where id = any($1)`,
      [ids],
    );

  test('takes no lock where nothing is due, and reads the table by its index', async () => {
    await store([{ id: 'a' }, { id: 'b' }]);
    await keepDays(7);
    const indexScans = async () => {
      const { rows } = await pool.query<{ scans: bigint }>(
        'select idx_scan as scans from pg_stat_user_indexes where schemaname = $1 and indexrelname = $2',
        [`a_${app.number}`, `b_${await tableNumber()}`],
      );
      return rows[0]!.scans;
    };
    const before = await indexScans();
    const writer = await pool.connect();
    try {
      await writer.query('begin');
      await writer.query(`select from head where app_number = ${app.number} for update`);
      const purged = purgeExpired({ pool, log, derived: new AfterPlan(liveViewRows).removals }).then(() => 'done');
      expect(await purged).toBe('done');
      await writer.query('rollback');
    } finally {
      writer.release();
    }
    // Postgres counts with a delay.
    await eventually(async () => (await indexScans()) > before);
  });

  test('removes what is due with a long history in bounded transactions, and leaves exact counters and a whole chain', async () => {
    const versions = Array.from({ length: 3_000 }, (_, n) => ({ id: 'long', n }));
    await store(versions);
    await store(versions);
    await store([{ id: 'kept' }, ...Array.from({ length: 90 }, (_, n) => ({ id: `d${n}` }))]);
    await store([{ id: 'd0', n: 1 }]);
    await keepDays(7);
    await age(['long', ...Array.from({ length: 90 }, (_, n) => `d${n}`)]);
    const sequence = async () => {
      const { rows } = await pool.query<{ sequences: bigint[]; most: number }>(
        `select array_agg(agg_seq order by agg_seq) as sequences,
           max(case when type = 'documents.purged' then json_array_length(payload::json -> 'ids') end) as most
         from outbox where key = $1 and agg_id = $2`,
        [app.appId, `collection/${await tableNumber()}`],
      );
      return rows[0]!;
    };
    await purgeExpired({ pool, log, derived: new AfterPlan(liveViewRows).removals });
    const { rows } = await pool.query<{ id: string }>(`select id from a_${app.number}.c_${await tableNumber()}`);
    expect(rows).toEqual([{ id: 'kept' }]);
    const { rows: history } = await pool.query(`select from a_${app.number}.h_${await tableNumber()}`);
    expect(history).toHaveLength(0);
    await checkChain(pool, app);
    const { sequences, most } = await sequence();
    expect(sequences.map(Number)).toEqual(sequences.map((_, at) => at + Number(sequences[0])));
    // Two transactions of older versions only; then 91 documents, which three events name.
    expect(sequences.length).toBeGreaterThanOrEqual(6);
    expect(most).toBe(40);
  });
});
