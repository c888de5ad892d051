import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { newApp, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

describe.each(transports)('a build of an index (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let holder: Client;
  /** A session of its own: within a transaction pg_stat_activity stays as it was first read. */
  let observer: Client;
  beforeAll(async () => {
    granary = await startGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store(
      'films',
      Array.from({ length: 1_500 }, (_, n) => ({ id: `d${n}`, year: n })),
    );
    holder = new Client({ connectionString: granary.databaseUrls.data });
    observer = new Client({ connectionString: granary.databaseUrls.data });
    await Promise.all([holder.connect(), observer.connect()]);
  });
  afterEach(() => Promise.all([holder.end(), observer.end()]));

  const build = async (definition: object = {}): Promise<string> => {
    const index = { name: 'by_year', collection: 'films', field_name: 'year', index_type: 'number', ...definition };
    const { status, body } = await app.call('POST', `/api/apps/${app.appId}/indexes`, index);
    expect(status).toBe(202);
    return body['ticket_id'] as string;
  };
  /**
   * The task says so as soon as the event of its start has arrived, and says nothing else while the build cannot go on.
   */
  const isRunning = (ticket: string) =>
    eventually(async () => (await app.call('GET', `/api/tasks/${ticket}`)).body['status'] === 'StoringData');
  /** The session of the build, once it waits in a statement that begins so. */
  const waits = (statement: string) =>
    eventually(async () => {
      const { rows } = await observer.query<{ has_xid: boolean }>(
        `select backend_xid is not null as has_xid from pg_stat_activity
         where datname = current_database() and application_name like 'granary-index-%' and wait_event_type = 'Lock'
           and starts_with(query, $1)`,
        [statement],
      );
      return rows[0];
    });
  const documentsOf = async (of: TestApp): Promise<unknown> => {
    const { body } = await of.call<{ collections: Array<{ document_count: number }> }>(
      'GET',
      `/api/apps/${of.appId}/retention/cost`,
    );
    return body.collections[0]?.document_count;
  };

  test('that waits for a long reader holds no event back: those of other apps arrive before it ends', async () => {
    await holder.query('begin isolation level repeatable read; select from application limit 1');
    const ticket = await build();
    expect(await waits('create index concurrently')).toEqual({ has_xid: false });
    const other = await newApp(granary);
    await other.store('notes', [{ n: 1 }, { n: 2 }, { n: 3 }]);
    expect(await eventually(async () => (await documentsOf(other)) === 3)).toBe(true);
    const view = { name: 'v', source_collections: ['notes'], query: {} };
    const { body } = await other.call('POST', `/api/apps/${other.appId}/views`, view);
    expect((await other.ended(body['ticket_id'] as string)).status).toBe('Completed');
    expect(await isRunning(ticket)).toBe(true);
    await holder.query('commit');
    expect((await app.ended(ticket)).status).toBe('Completed');
  });

  /**
   * Keeps the table of films locked as a reader does, without a snapshot: those the earlier statements of a build wait
   * for.
   */
  const readFilms = async (client: Client) => {
    const { rows } = await client.query<{ name: string }>(
      `select format('a_%s.c_%s', c.app_number, c.number) as name
       from collection c join application a on a.number = c.app_number where a.app_id = $1`,
      [app.appId],
    );
    await client.query(`begin; lock table ${rows[0]!.name} in access share mode`);
  };
  const writersGoOn = async (ticket: string) => {
    await app.store('films', [{ id: 'later', year: 2_000 }]);
    expect(await isRunning(ticket)).toBe(true);
  };

  test('that drops the old index of a rebuild while a reader has locked its table does not stop writers', async () => {
    await app.ended(await build());
    await readFilms(holder);
    const path = `/api/apps/${app.appId}/collections/films/indexes/by_year/rebuild`;
    const ticket = String((await app.call('POST', path)).body['ticket_id']);
    await waits('drop index');
    await writersGoOn(ticket);
    await holder.query('commit');
    expect((await app.ended(ticket)).status).toBe('Completed');
  });

  test('that adds a unique constraint while a reader has locked its table does not stop writers', async () => {
    await holder.query('begin isolation level repeatable read; select from application limit 1');
    const ticket = await build({ unique_constraint: true });
    await waits('create index concurrently');
    const reader = new Client({ connectionString: granary.databaseUrls.data });
    await reader.connect();
    try {
      await readFilms(reader);
      await holder.query('commit');
      await waits('alter table');
      await writersGoOn(ticket);
    } finally {
      await reader.end();
    }
    expect((await app.ended(ticket)).status).toBe('Completed');
  });

  test('is created and dropped beside a reader of its table without stopping writers', async () => {
    const path = `/api/apps/${app.appId}/collections/films/indexes/by_year`;
    const changes = [() => build({}), () => app.call('DELETE', path).then(({ status }) => expect(status).toBe(200))];
    for (const change of changes) {
      await readFilms(holder);
      let isHeld = true;
      const changed = change().finally(() => (isHeld = false));
      // By the clock of Postgres: how long the writers of the app wait behind an attempt.
      const longestMs = limitMs(1_000);
      for (let attempts = new Set<string>(); attempts.size < 3;) {
        const { rows } = await observer.query<{ began: string; ms: number }>(
          `select xact_start::text as began, 1000 * extract(epoch from clock_timestamp() - query_start)::float8 as ms
           from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
             and query ~ '^(alter table|drop index)'`,
        );
        for (const { began, ms } of rows) {
          attempts.add(began);
          expect(ms).toBeLessThan(longestMs);
        }
        expect(isHeld).toBe(true);
      }
      await app.store('films', [{ id: 'later', year: 2_000 }]);
      await holder.query('commit');
      const ticket = await changed;
      if (ticket) await app.ended(ticket);
    }
  });
});
