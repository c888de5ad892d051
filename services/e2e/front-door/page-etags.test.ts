import { copyFile, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { prepareRun, readUnderWrites } from '../support/page-readers';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';

const reads = size({ run: 2_000, long: 20_000 });

interface Page {
  records: Array<Record<string, unknown>>;
  total: number | null;
}

describe.each(transports)('ETags of public pages (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let directory: string;
  let networks: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'granary-etags-'));
    networks = join(directory, 'networks.csv');
    await copyFile(join(__dirname, '../support/networks.csv'), networks);
    const data = { COUNTRY_NETWORKS_FILE: networks, MAINTENANCE_EVERY_MS: '100' };
    granary = await startGranary(transport, { settings: { data } });
  });
  afterAll(async () => {
    await granary.stop();
    await rm(directory, { recursive: true, force: true });
  });
  beforeEach(async () => {
    app = await newApp(granary);
    const index = { collection: 'films', index_type: 'string' };
    for (const field of ['kind', 'address']) {
      const made = await app.call('POST', `/api/apps/${app.appId}/indexes`, {
        ...index,
        name: field,
        field_name: field,
      });
      expect(made.status).toBe(201);
    }
    await app.store('films', [
      { id: 'a', kind: 'x', address: '192.0.2.1', studio: 's' },
      { id: 'b', kind: 'x', address: '198.51.100.1', studio: 't' },
      { id: 'c', kind: 'y', address: '192.0.2.2', studio: 's' },
    ]);
    await app.store('studios', [{ id: 's', name: 'one' }]);
  });

  const get = (path: string, etag?: string, headers: Record<string, string> = {}) =>
    send<Page>(granary.url, 'GET', path, { headers: { ...headers, ...(etag && { 'if-none-match': etag }) } });
  const films = (parameters = '') => `/api/apps/${app.appId}/collections/films/data${parameters}`;
  const query = async (baseQuery: object) => {
    const definition = { name: 'q', source_collection: 'films', base_query: baseQuery };
    expect(await app.call('POST', `/apps/${app.appId}/queries`, definition)).toMatchObject({ status: 201 });
    return `/api/queries/${app.appId}/q/data`;
  };
  const view = async (more: object = {}) => {
    const definition = { name: 'v', query: {}, source_collections: ['films'], ...more };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, definition);
    await app.ended(made.body.ticket_id);
    return `/api/views/${app.appId}/v/data`;
  };
  const store = (id: string, more: object) => app.store('films', [{ id, kind: 'x', ...more }]);

  /**
   * The usage of a collection is published after its writes, in its row of the catalog: that changes ETags once more.
   */
  const usagePublished = async () => {
    const database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
    await eventually(async () => {
      const { rows } = await database.query(
        `select from collection c join application a on a.number = c.app_number where a.app_id = $1
         and (c.published_documents, c.published_bytes) is distinct from (c.row_count - c.deleted_count, c.size_bytes)`,
        [app.appId],
      );
      return rows.length === 0;
    });
    await database.end();
  };

  /** Every kind of page. */
  const pages: ReadonlyArray<[string, () => Promise<string> | string]> = [
    ['of a collection', () => films()],
    ['by an index', () => films('?kind=x')],
    ['by an index and with a total', () => films('?kind=x&limit=1')],
    ['by the id', () => films('?id=a')],
    ['without a record', () => films('?kind=none')],
    ['by a scan', () => films('?kind.$includes=x')],
    ['by a data set', async () => (await putDataset(['x']), films('?kind.$inDataset=kinds'))],
    ['by countries', () => films('?address.$inCountry=DE')],
    ['of a predefined query', () => query({ find: { kind: 'x' } })],
    ['of a predefined query without a filter', () => query({})],
    ['with a join', () => query({ find: { of: { resolve: { find: { id: '$data.studio' } }, model: 'studios' } } })],
    ['of a view', () => view()],
  ];
  const putDataset = (values: string[]) => app.call('PUT', `/api/apps/${app.appId}/datasets/kinds`, { values });

  test.each(pages)('spare a page %s that has not changed, and its bytes', async (_, path) => {
    const target = await path();
    await usagePublished();
    const first = await get(target);
    const etag = first.headers.get('etag')!;
    expect([first.status, etag]).toEqual([200, expect.stringMatching(/^W\/"[\w-]{22}"$/)]);
    expect([first.headers.get('cache-control'), first.headers.get('vary')]).toEqual(['no-cache', 'Accept-Encoding']);
    for (const condition of [etag, etag.slice(2), `"other", ${etag}`, '*']) {
      const again = await get(target, condition);
      expect([condition, again.status, again.text]).toEqual([condition, 304, '']);
      for (const name of ['etag', 'cache-control', 'vary']) {
        expect(again.headers.get(name)).toBe(first.headers.get(name));
      }
    }
    const head = await send(granary.url, 'HEAD', target, { headers: { 'if-none-match': etag } });
    expect([head.status, head.headers.get('etag')]).toEqual([304, etag]);
    for (const other of ['"other"', 'W/"AAAAAAAAAAAAAAAAAAAAAA"', 'no tag']) {
      expect(await get(target, other)).toMatchObject({ status: 200, text: first.text });
    }
    // Another collection decides nothing.
    await app.store('others', [{ id: 'a' }]);
    expect((await get(target)).text).toBe(first.text);
  });

  test.each(pages)('change with what a page %s shows', async (name, path) => {
    const target = await path();
    const changes: Array<() => Promise<unknown>> = [
      () => store('a', { address: '192.0.2.1', studio: 's', n: 1 }),
      () => store('d', { address: '192.0.2.9', studio: 's' }),
      () => store('d', { deleted: true }),
      () => app.call('PATCH', `/api/apps/${app.appId}/collections/films/documents/a`, { n: 2 }),
      () => app.call('DELETE', `/api/apps/${app.appId}/collections/films/documents/a`),
      () => app.call('DELETE', `/api/apps/${app.appId}/collections/films/documents/b?erase=true`),
    ];
    if (name === 'with a join') changes.push(() => app.store('studios', [{ id: 's', name: 'two' }]));
    if (name === 'by a data set') changes.push(() => putDataset(['x', 'y']));
    for (const change of changes) {
      const before = await get(target);
      const etag = before.headers.get('etag')!;
      await change();
      if (name === 'of a view') {
        const refresh = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views/v/refresh`);
        await app.ended(refresh.body.ticket_id);
      }
      const after = await get(target, etag);
      expect(after.status).toBe(200);
      expect(after.headers.get('etag')).not.toBe(etag);
      // Not by the condition.
      expect((await get(target)).text).toBe(after.text);
    }
  });

  test('change with the networks of the countries', async () => {
    const target = films('?address.$inCountry=DE&sort=id');
    const before = await get(target);
    expect(before.body.records.map(({ id }) => id)).toEqual(['a', 'c']);
    await writeFile(`${networks}.new`, '198.51.100.0/24,DE\n');
    await rename(`${networks}.new`, networks);
    const after = await eventually(async () => {
      const found = await get(target, before.headers.get('etag')!);
      return found.status === 200 && found.body.records.length === 1 && found;
    });
    expect(after.body.records.map(({ id }) => id)).toEqual(['b']);
    await copyFile(join(__dirname, '../support/networks.csv'), `${networks}.new`);
    await rename(`${networks}.new`, networks);
    await eventually(async () => (await get(target)).text === before.text);
  });

  test('change when documents are purged', async () => {
    const before = await get(films());
    const database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
    const { rows } = await database.query<{ table: string }>(
      `select 'a_' || a.number || '.c_' || c.number as table from collection c join application a on a.number = c.app_number
       where a.app_id = $1 and c.name = 'films'`,
      [app.appId],
    );
    await database.query(`update ${rows[0]!.table} set updated_at = updated_at - interval '9 days' where id = 'a'`);
    await database.end();
    await app.call('POST', `/api/apps/${app.appId}/collections/films/retention`, { retention_days: 7 });
    const after = await eventually(async () => {
      const found = await get(films(), before.headers.get('etag')!);
      return found.status === 200 && found.body.total === 2 && found;
    });
    expect(after.headers.get('etag')).not.toBe(before.headers.get('etag'));
  });

  test('are of the caller: what has become private is refused whatever tag comes with it', async () => {
    const target = films('?kind=x');
    await usagePublished();
    const open = await get(target);
    const keyed = await get(target, undefined, { 'x-app-key': app.key });
    expect([keyed.text, keyed.headers.get('cache-control')]).toEqual([open.text, 'no-store']);
    expect(keyed.headers.get('etag')).not.toBe(open.headers.get('etag'));
    const hide = { access_policy: { read: 'private' } };
    expect((await app.call('PUT', `/api/apps/${app.appId}/collections/films`, hide)).status).toBe(200);
    for (const etag of [undefined, open.headers.get('etag')!, keyed.headers.get('etag')!, '*']) {
      expect((await get(target, etag)).status).toBe(401);
    }
    expect((await get(target, '*', { 'x-app-key': app.key })).status).toBe(304);
  });

  test('hide no other meaning of the same URL: an index of another type, a query or view of the same name', async () => {
    await app.store('films', [
      { id: 'n', kind: 5 },
      { id: 't', kind: '5' },
    ]);
    const ids = async (path: string, etag?: string) => {
      const { status, body, headers } = await get(path, etag);
      const found = status === 200 ? body.records.map(({ id }) => id) : status;
      return { found, etag: headers.get('etag')! };
    };
    const byText = await ids(films('?kind=5'));
    expect(byText.found).toEqual(['t']);
    const indexes = `/api/apps/${app.appId}/collections/films/indexes`;
    expect((await app.call('DELETE', `${indexes}/kind`)).status).toBe(200);
    expect((await get(films('?kind=5'), byText.etag)).status).toBe(400);
    const index = { name: 'kind', collection: 'films', field_name: 'kind', index_type: 'number', force: true };
    expect((await app.call('POST', `/api/apps/${app.appId}/indexes`, index)).status).toBe(201);
    expect((await ids(films('?kind=5'), byText.etag)).found).toEqual(['n']);

    const target = await query({ find: { kind: 'x' } });
    const first = await ids(target);
    await app.call('DELETE', `/apps/${app.appId}/queries/q`);
    expect((await get(target, first.etag)).status).toBe(404);
    await query({ find: { kind: 'y' } });
    expect((await ids(target, first.etag)).found).toEqual(['c']);

    const rows = await view();
    const shown = await ids(rows);
    await app.call('DELETE', `/apps/${app.appId}/views/v`);
    expect((await get(rows, shown.etag)).status).toBe(404);
    await view({ query: { find: { kind: 'y' } } });
    expect((await ids(rows, shown.etag)).found).toEqual(['c']);
  });

  test('are the same in every encoding', async () => {
    await app.store(
      'films',
      Array.from({ length: 200 }, (_, n) => ({ id: `f${n}`, kind: 'many' })),
    );
    await usagePublished();
    const tags = new Set<string | null>();
    for (const encoding of ['identity', 'gzip', 'br']) {
      const found = await get(films('?kind=many'), undefined, { 'accept-encoding': encoding });
      expect([found.status, found.body.records.length, found.headers.get('vary')]).toEqual([
        200,
        100,
        'Accept-Encoding',
      ]);
      tags.add(found.headers.get('etag'));
    }
    expect(tags.size).toBe(1);
  });

  test(
    `never hide an acknowledged write: ${reads} reads under 8 writers`,
    async () => {
      const run = { app, urls: [granary.url], reads, writers: 8, readers: 12 };
      await prepareRun(run);
      expect(await readUnderWrites(run)).toBeGreaterThan(reads / 40);
    },
    sizedLimitMs(limitMs(240_000)),
  );
});
