import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/shared/testing/eventually';
import { newApp, startTwoCopies, storeRequest, type App, type Copy } from './write-fixture';

describe('what collections use', () => {
  let pool: Pool;
  let one: Copy;
  let two: Copy;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ pool, one, two, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });

  const store = (copy: Copy, collection: string, data: object[]) =>
    copy.methods.store(storeRequest(app, collection, data));
  /** The events of a collection in their order, each as its sequence and what it told. */
  const told = async (collection: string) => {
    const { rows } = await pool.query<{ agg_seq: bigint; payload: string }>(
      `select agg_seq, payload from outbox where key = $1 and type = 'collection.usage' order by agg_seq`,
      [app.appId],
    );
    return rows
      .map(({ agg_seq: sequence, payload }) => ({ sequence, ...(JSON.parse(payload) as Record<string, unknown>) }))
      .filter((event) => (event as unknown as { collection: string }).collection === collection) as unknown as Array<{
      sequence: bigint;
      document_count: number;
      size_bytes: number;
    }>;
  };
  const counters = async (collection: string) => {
    const { rows } = await pool.query<{ number: bigint; documents: number; bytes: number }>(
      `select number, (row_count - deleted_count)::int as documents, size_bytes::int as bytes
       from collection where app_number = $1 and name = $2`,
      [app.number, collection],
    );
    return rows[0]!;
  };

  test('the last event of two copies tells what is there, and sequences have no gap and no repeat', async () => {
    for (let round = 0; round < 6; round++) {
      await Promise.all(
        [one, two].flatMap((copy, at) =>
          ['films', 'other'].map((name) => store(copy, name, [{ id: `${at}-${round}` }, { deleted: round % 3 === 0 }])),
        ),
      );
      await new Promise((resolve) => setTimeout(resolve, 90));
    }
    for (const name of ['films', 'other']) {
      const { documents, bytes } = await counters(name);
      const events = await eventually(async () => {
        const found = await told(name);
        const last = found.at(-1);
        return last?.document_count === documents && last.size_bytes === bytes && found;
      });
      expect(events.length).toBeGreaterThan(1);
      expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, at) => BigInt(at + 1)));
    }
  });
});
