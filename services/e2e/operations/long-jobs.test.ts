import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { newApp, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

/** Rows that one transaction of each kind of work may write, and documents that it may remove. */
const rowsOfBatch = { build: 1_000, refresh: 2_000, purge: 500 };
const documents = 6_000;

describe.each(transports)('long work on a large collection (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let database: Client;
  let path: string;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { data: { MAINTENANCE_EVERY_MS: '100' } } });
    database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
  });
  afterAll(async () => {
    await database.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
    for (let from = 0; from < documents; from += 1_000) {
      const films = Array.from({ length: 1_000 }, (_, n) => ({ id: `d${from + n}`, year: from + n }));
      await app.store('films', films);
    }
  });

  const row = async <T>(text: string, ...values: unknown[]) => (await database.query(text, values)).rows[0] as T;
  const tableOf = async () =>
    (
      await row<{ name: string }>(
        `select format('a_%s.c_%s', c.app_number, c.number) as name
         from collection c join application a on a.number = c.app_number where a.app_id = $1`,
        app.appId,
      )
    ).name;
  /** How many transactions wrote the rows that a table has, and how many rows one of them did at most. */
  const transactionsOf = (table: string) =>
    row<{ count: number; rows: number }>(
      `select count(*)::int as count, max(rows)::int as rows from (select count(*) as rows from ${table} group by xmin) t`,
    );

  test('an index is filled in transactions of a batch each', async () => {
    const index = { name: 'by_year', collection: 'films', field_name: 'year', index_type: 'number' };
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/indexes`, index);
    expect(made.status).toBe(202);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    const { count, rows } = await transactionsOf(await tableOf());
    expect(count).toBeGreaterThanOrEqual(documents / rowsOfBatch.build);
    expect(rows).toBeLessThanOrEqual(rowsOfBatch.build);
  });

  test('a view is filled in transactions of a batch each', async () => {
    const view = { name: 'v', source_collections: ['films'], query: {} };
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/views`, view);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    const { name } = await row<{ name: string }>(
      `select format('a_%s.v_%s', v.app_number, v.table_number) as name
       from view v join application a on a.number = v.app_number where a.app_id = $1`,
      app.appId,
    );
    const { count, rows } = await transactionsOf(name);
    expect(count).toBeGreaterThanOrEqual(documents / rowsOfBatch.refresh);
    expect(rows).toBeLessThanOrEqual(rowsOfBatch.refresh);
  });

  test('documents are purged in transactions of a batch each', async () => {
    const expired = 1_200;
    await database.query(
      `update ${await tableOf()} set updated_at = updated_at - interval '9 days' where substr(id, 2)::int < ${expired}`,
    );
    const set = await app.call('POST', `${path}/collections/films/retention`, { retention_days: 7 });
    expect(set.status).toBe(200);
    // Each transaction appends the events of what it removes.
    const removed = async () =>
      (
        await database.query<{ documents: number }>(
          `select sum(jsonb_array_length(payload::jsonb -> 'ids'))::int as documents from outbox
           where type = 'documents.purged' and payload::jsonb ->> 'app_id' = $1 group by xid`,
          [app.appId],
        )
      ).rows.map((one) => one.documents);
    const batches = await eventually(async () => {
      const found = await removed();
      return found.reduce((sum, one) => sum + one, 0) === expired ? found : undefined;
    });
    expect(Math.max(...batches)).toBeLessThanOrEqual(rowsOfBatch.purge);
  });
});
