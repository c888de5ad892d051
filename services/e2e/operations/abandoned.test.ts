import { eventually } from '@granary/testing/eventually';
import { waitMs } from '@granary/testing/speed';
import { Client } from 'pg';
import { newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

/** Less than Postgres itself would let a statement wait for a lock (5 s). */
const soonMs = 3_000;
/** Likewise, and several times what the other requests take. */
const requestMs = Math.min(waitMs(2_000), 4_000);

describe.each(transports)('abandoned reads (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  /** Whoever holds the lock on the rows of the view. */
  let holder: Client;
  /** Within a transaction Postgres would show the activity of its first look. */
  let watcher: Client;
  let rowsOfView: string;

  beforeAll(async () => {
    // The deadline of the request is to end the reads, not that of scans without a key.
    const settings = {
      gateway: { REQUEST_TIMEOUT_MS: String(requestMs) },
      data: { PUBLIC_READ_TIMEOUT_MS: '60000' },
    };
    granary = await startGranary(transport, { settings });
    app = await newApp(granary);
    await app.store('docs', [{ id: '1', text: 'one' }]);
    const view = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, {
      name: 'all',
      query: {},
      source_collections: ['docs'],
    });
    await app.ended(view.body.ticket_id);
    holder = new Client({ connectionString: granary.databaseUrls.data });
    watcher = new Client({ connectionString: granary.databaseUrls.data });
    await Promise.all([holder.connect(), watcher.connect()]);
    const { rows } = await holder.query<{ name: string }>(
      `select 'a_' || v.app_number || '.v_' || v.table_number as name
       from view v join application a on a.number = v.app_number where a.app_id = $1`,
      [app.appId],
    );
    rowsOfView = rows[0]!.name;
  });
  afterAll(async () => {
    await Promise.all([holder.end(), watcher.end()]);
    await granary.stop();
  });

  const viewPath = () => `/api/views/${app.appId}/all/data?filter=${encodeURIComponent('{"text":{"contains":"o"}}')}`;
  const readView = (key?: string) => send(granary.url, 'GET', viewPath(), { key });

  /** Statements that wait for the rows of the view. */
  const waiting = async () => {
    const { rows } = await watcher.query<{ count: string }>(
      `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
         and state = 'active' and query like '%' || $1 || '%'`,
      [rowsOfView],
    );
    return Number(rows[0]!.count);
  };

  /** Nobody can read the rows of the view while `work` runs. */
  async function whileLocked<T>(work: () => Promise<T>): Promise<T> {
    await holder.query(`begin; lock table ${rowsOfView} in access exclusive mode`);
    try {
      return await work();
    } finally {
      await holder.query('rollback');
    }
  }

  test('at the deadline running statements are cancelled, and queued ones never begin', async () => {
    await whileLocked(async () => {
      const reads = Array.from({ length: 12 }, () => readView());
      await eventually(async () => (await waiting()) > 0);
      expect((await Promise.all(reads)).map(({ status }) => status)).toEqual(Array(12).fill(504));
      await eventually(async () => (await waiting()) === 0, soonMs);
      // Not only for a moment: nothing is left that would take the place.
      for (let look = 0; look < 10; look++) expect(await waiting()).toBe(0);
    });
    expect((await readView()).status).toBe(200);
  });

  test('the statement of a disconnected client is cancelled', async () => {
    await whileLocked(async () => {
      const leaving = new AbortController();
      const read = fetch(granary.url + viewPath(), { signal: leaving.signal }).catch(() => 'left');
      await eventually(async () => (await waiting()) === 1, soonMs);
      leaving.abort();
      expect(await read).toBe('left');
      // Sooner than the deadline would have done it.
      await eventually(async () => (await waiting()) === 0, 1_000);
    });
  });

  test('scans without a key do not block scans with a key', async () => {
    await whileLocked(async () => {
      const strangers = Array.from({ length: 80 }, () => readView());
      await eventually(async () => (await waiting()) > 0);
      const scans = await Promise.all(
        Array.from({ length: 8 }, () => app.list('docs', { find: { text: { contains: 'o' } } })),
      );
      expect(scans.map(({ status }) => status)).toEqual(Array(8).fill(200));
      const statuses = (await Promise.all(strangers)).map(({ status }) => status);
      expect(new Set(statuses)).toEqual(new Set([429, 504]));
    });
  });

  test('an app reads its view while another app is scanned with and without its key', async () => {
    const neighbour = await newApp(granary);
    await neighbour.store('docs', [{ id: '1', text: 'one' }]);
    await whileLocked(async () => {
      const scans = [
        ...Array.from({ length: 20 }, () => readView()),
        ...Array.from({ length: 20 }, () => readView(app.key)),
      ];
      await eventually(async () => (await waiting()) > 1);
      const read = await neighbour.list('docs', { find: { text: { contains: 'o' } } });
      expect(read.status).toBe(200);
      await Promise.all(scans);
    });
  });
});
