import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import { measureIndexes } from '../src/usage/index-sizes';
import { newApp, noIdempotency, storeRequest, type App, type DataService } from './support/data-service';
import { startTwoCopies } from './support/write-fixture';

describe('what collections use', () => {
  let pool: Pool;
  let one: DataService;
  let two: DataService;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ pool, one, two, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });

  const store = (copy: DataService, collection: string, data: object[]) =>
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
      index_bytes: number;
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

  test('events carry what the indexes take, as of their last measurement; those of an empty collection take nothing', async () => {
    const index = async (collection: string) => {
      await one.methods.createIndex({
        appId: app.appId,
        appNumber: app.number.toString(),
        name: `${collection}_n`,
        collection,
        fieldName: 'n',
        fields: [],
        indexType: 'btree',
        unique: false,
        ticketId: newTicket('j', app.number),
      });
      const list = { appId: app.appId, collection, limit: 10, cursor: '' };
      await eventually(async () => (await one.methods.listIndexes(list)).indexes[0]!.status === 'ready');
    };
    // Under load there may be no event yet.
    const last = async () => (await told('films')).at(-1);
    await store(
      one,
      'films',
      Array.from({ length: 2_000 }, (_, n) => ({ id: `${n}`, n: `text ${n}` })),
    );
    await store(one, 'empty', [{ id: 'a' }]);
    await index('films');
    await pool.query(`update collection set size_bytes = 0 where app_number = $1 and name = 'empty'`, [app.number]);
    await index('empty');
    await measureIndexes(pool);
    await store(two, 'films', [{ id: 'one more' }]);
    const { rows } = await pool.query<{ name: string; index_bytes: bigint }>(
      `select name, index_bytes from collection where app_number = $1 order by name`,
      [app.number],
    );
    const { indexes } = await one.methods.listIndexes({ appId: app.appId, collection: 'films', limit: 10, cursor: '' });
    expect(Number(indexes[0]!.sizeBytes)).toBeGreaterThan(20_000);
    expect(rows).toEqual([
      { name: 'empty', index_bytes: 0n },
      { name: 'films', index_bytes: BigInt(indexes[0]!.sizeBytes) },
    ]);
    await eventually(async () => (await last())?.index_bytes === Number(indexes[0]!.sizeBytes));
    // A measurement that finds the same changes no row.
    const versions = () =>
      pool.query(`select xmin::text from collection where app_number = $1 order by name`, [app.number]);
    const before = (await versions()).rows;
    await measureIndexes(pool);
    expect((await versions()).rows).toEqual(before);
    await one.methods.deleteIndex({
      appId: app.appId,
      collection: 'films',
      name: 'films_n',
      ticketId: newTicket('j', app.number),
    });
    await measureIndexes(pool);
    await store(two, 'films', [{ id: 'and another' }]);
    await eventually(async () => (await last())?.index_bytes === 0);
  });

  test('a commit says which collection of its name it was for, at once, when it is repeated, and after that was deleted', async () => {
    const upload = async () => {
      const ticketId = newTicket('c', app.number);
      const request = {
        appId: app.appId,
        appNumber: app.number.toString(),
        collection: 'files',
        ticketId,
        blobId: ticketId.slice(-20),
        contentType: 'text/plain',
        sizeBytes: '1',
        sha256: 'ab'.repeat(32),
        uploadedAt: new Date().toISOString(),
        metadata: Buffer.alloc(0),
        idempotency: noIdempotency,
      };
      const first = await one.methods.commitUpload(request);
      // As after an answer that was lost; that the commit made the collection is in its first answer only.
      const { createdCollection: _, ...committed } = first;
      expect(await two.methods.commitUpload(request)).toEqual(committed);
      return { ticketId, number: first.collectionNumber };
    };
    const live = async () => {
      const { rows } = await pool.query<{ number: bigint }>(
        `select number from collection where app_number = $1 and name = 'files' and deleted_at is null`,
        [app.number],
      );
      return rows[0]!.number.toString();
    };
    const uploads: Array<Awaited<ReturnType<typeof upload>>> = [];
    for (let generation = 0; generation < 3; generation++) {
      if (generation > 0)
        await one.methods.deleteCollection({ appId: app.appId, name: 'files', force: true, cascade: false });
      uploads.push(await upload());
      expect(uploads.at(-1)!.number).toBe(await live());
    }
    expect(new Set(uploads.map(({ number }) => number)).size).toBe(3);
    for (const { ticketId, number } of uploads) {
      expect((await two.methods.getCommit({ ticketId })).collectionNumber).toBe(number);
    }
  });
});
