import { Client } from 'pg';
import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventually } from '@granary/testing/eventually';
import { dataSchema } from '../src/service';
import { newApp, storeRequest, type App, type DataService } from './support/data-service';
import { collectionNumber, fields, startCopy, startTwoCopies } from './support/write-fixture';

describe('builds of indexes with two replicas on one database', () => {
  let url: string;
  let one: DataService;
  let two: DataService;
  let pool: Pool;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ url, pool, one, two, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });

  const updateSchema = (name: string, rules: object) =>
    one.methods.updateCollection({ appId: app.appId, name, schemaJson: fields(rules), force: true });
  const store = (collection: string, data: string | object[], copy = one) =>
    copy.methods.store(storeRequest(app, collection, data));
  const createIndex = (collection: string, fieldName: string, more: object = {}) =>
    one.methods.createIndex({
      appId: app.appId,
      appNumber: app.number.toString(),
      name: `${collection}_${fieldName}`,
      collection,
      fieldName,
      fields: [],
      indexType: 'btree',
      unique: false,
      ticketId: newTicket('j', app.number),
      ...more,
    });
  const ended = (ticketId: string) =>
    eventually(async () => {
      const job = await one.methods.getJob({ ticketId });
      return (job.status === 'Completed' || job.status === 'Failed') && job;
    });
  const numberOf = (name: string) => collectionNumber(pool, app, name);
  const storeMany = async (collection: string, count: number) => {
    await store(
      collection,
      Array.from({ length: count }, (_, n) => ({ id: `d${n}`, n, m: n })),
    );
  };
  /** A session whose snapshot keeps an index build waiting, as a long report would. */
  const holdSnapshot = async (of = url) => {
    const client = new Client({ connectionString: of });
    await client.connect();
    await client.query('begin isolation level repeatable read');
    await client.query('select count(*) from application');
    return client;
  };
  const buildRuns = () =>
    eventually(async () => {
      const { rows } = await pool.query<{ pid: number }>(
        `select pid from pg_stat_activity where datname = current_database() and query like 'create index concurrently%'
           and application_name like 'granary-index-%' and state = 'active'`,
      );
      return rows[0]?.pid;
    });

  test('a repeated rebuild is the first one', async () => {
    await store('films', [{ n: 1 }]);
    await createIndex('films', 'n');
    const request = { appId: app.appId, collection: 'films', name: 'films_n', ticketId: newTicket('j', app.number) };
    const first = await one.methods.rebuildIndex(request);
    expect((await ended(first.ticketId)).status).toBe('Completed');
    expect(await two.methods.rebuildIndex(request)).toEqual(first);
    const { status } = await one.methods.getIndex({ ...request, ticketId: '' });
    expect(status).toBe('ready');
  });

  test('a build whose connection is lost starts again', async () => {
    await storeMany('films', 1_500);
    const holder = await holdSnapshot();
    const { ticketId } = await createIndex('films', 'n');
    const pid = await buildRuns();
    await pool.query('select pg_terminate_backend($1)', [pid]);
    await holder.end();
    expect((await ended(ticketId)).status).toBe('Completed');
    expect(
      (await one.methods.getIndex({ appId: app.appId, collection: 'films', name: 'films_n', ticketId: '' })).status,
    ).toBe('ready');
  });

  test('a second index is taken while the first is being built, and both get ready', async () => {
    await storeMany('films', 1_500);
    const holder = await holdSnapshot();
    const first = await createIndex('films', 'n');
    await buildRuns();
    const second = await createIndex('films', 'm');
    await store('films', [{ id: 'late', n: -1, m: -1 }]);
    await holder.end();
    for (const { ticketId } of [first, second]) expect((await ended(ticketId)).status).toBe('Completed');
    const { indexes } = await one.methods.listIndexes({ appId: app.appId, collection: 'films' });
    expect(indexes.map(({ status }) => status)).toEqual(['ready', 'ready']);
    const { rows } = await pool.query<{ count: bigint }>(
      `select count(*) from document_index i join pg_class c on c.relname = 'i_' || i.number join pg_index p on p.indexrelid = c.oid
       where i.app_number = $1 and p.indisvalid`,
      [app.number],
    );
    expect(rows[0]!.count).toBe(2n);
  });

  test('an index under construction can be deleted, and a collection whose index is being built is dropped', async () => {
    await storeMany('films', 1_500);
    const number = await numberOf('films');
    const holder = await holdSnapshot();
    try {
      await createIndex('films', 'n');
      await buildRuns();
      await one.methods.deleteIndex({ appId: app.appId, collection: 'films', name: 'films_n', ticketId: '' });
      const { ticketId } = await createIndex('films', 'm');
      await buildRuns();
      await one.methods.deleteCollection({ appId: app.appId, name: 'films', force: true, cascade: false });
      await eventually(
        async () =>
          (await pool.query('select from collection where number = $1 and dropped_at is not null', [number]))
            .rowCount === 1,
      );
      expect(await ended(ticketId)).toMatchObject({ status: 'Failed', error: 'The index was deleted' });
    } finally {
      await holder.end();
    }
  });

  test('a build beside busy writers misses no key', async () => {
    await storeMany('films', 3_000);
    let building = true;
    const writers = Array.from({ length: 4 }, async (_, writer) => {
      for (let round = 0; building || round === 0; round++) {
        const data = Array.from({ length: 200 }, () => {
          const n = Math.floor(Math.random() * 3_000);
          return { id: `d${n}`, n: round * 10_000 + n, m: n };
        });
        await store('films', data, writer % 2 === 0 ? one : two);
      }
    });
    const job = await createIndex('films', 'n')
      .then(({ ticketId }) => ended(ticketId))
      .finally(() => {
        building = false;
      });
    await Promise.all(writers);
    expect(job.status).toBe('Completed');
    const { rows } = await pool.query<{ number: bigint }>('select number from indexed_field where app_number = $1', [
      app.number,
    ]);
    const table = `a_${app.number}.c_${await numberOf('films')}`;
    const wrong = await pool.query(
      `select id from ${table} where f_${rows[0]!.number} <> sort_key(body::jsonb -> 'n')`,
    );
    expect(wrong.rows).toEqual([]);
  });

  test('a field that becomes a date is keyed by instant, its unique values too', async () => {
    await storeMany('films', 1_200);
    const at = (n: number) => new Date(1_700_000_000_000 + n * 1_000).toISOString();
    await store(
      'films',
      Array.from({ length: 1_200 }, (_, n) => ({ id: `d${n}`, at: at(n) })),
    );
    const made = await createIndex('films', 'at', { unique: true });
    expect((await ended(made.ticketId)).status).toBe('Completed');
    const same = (text: string) => [{ id: 'same', at: text }];
    const offset = at(7).replace('Z', '+00:00');
    await store('films', same(offset));
    await store('films', [{ id: 'same', at: null }]);
    await updateSchema('films', { at: { type: 'date' } });
    await eventually(async () => {
      const [index] = (await one.methods.listIndexes({ appId: app.appId, collection: 'films' })).indexes;
      return index!.status === 'ready';
    });
    for (const copy of [one, two]) {
      await expect(store('films', same(offset), copy)).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
    }
    const { rows } = await pool.query<{ number: bigint }>('select number from indexed_field where app_number = $1', [
      app.number,
    ]);
    const wrong = await pool.query(
      `select id from a_${app.number}.c_${await numberOf('films')}
       where f_${rows[0]!.number} <> date_sort_key(body::jsonb -> 'at')`,
    );
    expect(wrong.rows).toEqual([]);
  });

  test('builds of several indexes at once all get ready', async () => {
    const made = [];
    for (const collection of ['a', 'b', 'c']) {
      await storeMany(collection, 1_100);
      made.push(await createIndex(collection, 'n'), await createIndex(collection, 'm', { unique: true }));
    }
    for (const { ticketId } of made) expect((await ended(ticketId)).status).toBe('Completed');
    const { indexes } = await two.methods.listIndexes({ appId: app.appId, collection: '' });
    expect(indexes.map(({ status }) => status)).toEqual(Array.from({ length: 6 }, () => 'ready'));
  });

  test('a service that stops does not wait for a build, and the next start does it', async () => {
    const { url: own } = await serviceDatabase(dataSchema);
    const first = await startCopy(own);
    const made = await newApp(first);
    const data = Array.from({ length: 1_100 }, (_, n) => ({ n }));
    await first.methods.store(storeRequest(made, 'films', data));
    const holder = await holdSnapshot(own);
    const ticketId = newTicket('j', made.number);
    const request = {
      ...made,
      appNumber: made.number.toString(),
      name: 'films_n',
      collection: 'films',
      fieldName: 'n',
      fields: [],
    };
    await first.methods.createIndex({ ...request, indexType: 'btree', unique: false, ticketId });
    const active = `select pid from pg_stat_activity where query like 'create index concurrently%' and state = 'active'
      and datname = current_database()`;
    await eventually(async () => {
      // What is seen of other sessions stays the same within a transaction.
      await holder.query('select pg_stat_clear_snapshot()');
      return (await holder.query(active)).rowCount === 1;
    });
    await first.stop();
    await holder.end();
    const second = await startCopy(own);
    await eventually(async () => (await second.methods.getJob({ ticketId })).status === 'Completed');
    await second.stop();
  });
});
