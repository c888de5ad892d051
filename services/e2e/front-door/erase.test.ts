import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { expectChain } from './hash-chain';

/** In every version of the documents that are erased; in lower case, as indexes may keep it. */
const canary = 'canary7f3a9c';

/**
 * Whether a table holds the text, as text or as bytes. The refresh of a view drops tables at any time: they hold
 * nothing.
 */
async function holds(client: Client, table: string, text: string): Promise<boolean> {
  const patterns = [`%${text}%`, `%${Buffer.from(text).toString('hex')}%`];
  try {
    const { rows } = await client.query<{ found: boolean }>(
      `select exists (select from ${table} t where lower(t::text) like any($1)) as found`,
      [patterns],
    );
    return rows[0]!.found;
  } catch (error) {
    // undefined_table
    if ((error as { code?: string }).code === '42P01') return false;
    throw error;
  }
}

/** The tables of all services that hold the text. */
async function tablesWith({ databaseUrls }: Granary, text: string): Promise<string[]> {
  const found: string[] = [];
  for (const [service, url] of Object.entries(databaseUrls)) {
    const client = new Client({ connectionString: url });
    await client.connect();
    try {
      const { rows: tables } = await client.query<{ name: string }>(
        `select format('%I.%I', n.nspname, c.relname) as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where c.relkind in ('r', 'm', 'v') and n.nspname !~ '^(pg_|information_schema)'`,
      );
      for (const { name } of tables) {
        if (await holds(client, name, text)) found.push(`${service} ${name.replace(/\d+/g, '#')}`);
      }
    } finally {
      await client.end();
    }
  }
  return found.sort();
}

describe.each(transports)('erasure (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/collections/people/documents`;
  });

  const erase = (id: string, headers?: Record<string, string>) =>
    app.call('DELETE', `${path}/${id}?erase=true`, undefined, headers);

  test('an erased text is in no table, index, view or kept answer, and the chain still holds', async () => {
    const indexes = [
      { name: 'by_name', field_name: 'name', index_type: 'string' },
      { name: 'by_mail', field_name: 'mail', index_type: 'btree', options: { unique: true } },
      { name: 'words', field_name: 'about', index_type: 'fulltext' },
    ];
    for (const index of indexes) {
      await app.call('POST', `/api/apps/${app.appId}/indexes`, { ...index, collection: 'people' });
    }
    const person = (n: number) => ({ name: `${canary} ${n}`, mail: `${canary}@${n}`, about: `${canary} word ${n}` });
    const key = { 'idempotency-key': `key-${canary.length}` };
    expect((await app.call('PUT', `${path}/a`, person(1), key)).status).toBe(201);
    await app.call('PATCH', `${path}/a`, person(2));
    await app.store('people', [
      { id: 'b', name: 'other' },
      { id: 'a', ...person(3) },
      { id: 'a', ...person(4) },
    ]);
    await app.call('DELETE', `${path}/a`);
    await app.call('PUT', `${path}/a`, person(5));
    const views = [
      { name: 'all', query: {} },
      { name: 'names', query: { aggregate: { least: { $min: 'name' } } } },
    ];
    for (const view of views) {
      const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, {
        ...view,
        source_collections: ['people'],
      });
      await app.ended(made.body.ticket_id);
    }
    const before = await tablesWith(granary, canary);
    expect(before).toEqual(expect.arrayContaining(['data a_#.c_#', 'data a_#.h_#', 'data a_#.v_#']));

    const erased = await erase('a');
    expect([erased.status, erased.body]).toEqual([200, { id: 'a', erased: true, versions: 6 }]);
    expect(await tablesWith(granary, canary)).toEqual([]);
    await expectChain(granary.databaseUrls.data, app.appId, 5);
    // A repeated request whose answer was kept finds no text.
    expect((await app.call('PUT', `${path}/a`, person(1), key)).text).not.toContain(canary);
    const rows = (name: string) =>
      send<{ records: object[] }>(granary.url, 'GET', `/api/views/${app.appId}/${name}/data`);
    await eventually(async () => (await rows('all')).body.records.length === 1);
    expect((await rows('all')).body.records).toEqual([{ id: 'b', name: 'other' }]);
    await eventually(async () => (await rows('names')).body.records.length === 1);
    expect((await rows('names')).body.records).toEqual([{ least: 'other' }]);
    expect(await tablesWith(granary, canary)).toEqual([]);
  });

  test('an erased document is absent, and its id is free again', async () => {
    await app.store('people', [{ id: 'a', n: 1 }]);
    await app.store('people', [
      { id: 'a', n: 2 },
      { id: 'b', n: 1 },
    ]);
    expect((await erase('a')).body).toMatchObject({ versions: 2 });
    expect(await app.call('GET', `${path}/a`)).toMatchObject({ status: 404, body: { code: 'DOCUMENT_NOT_FOUND' } });
    expect(await erase('a')).toMatchObject({ status: 404, body: { code: 'DOCUMENT_NOT_FOUND' } });
    expect((await app.list('people', { include_history: true })).body).toMatchObject({
      total: 1,
      records: [{ id: 'b', n: 1 }],
    });
    const stats = await app.call('GET', `/api/apps/${app.appId}/collections/people/stats`);
    expect(stats.body).toMatchObject({ document_count: 1, version_count: 1, size_bytes: '{"id":"b","n":1}'.length });
    const cost = await eventually(async () => {
      const { body } = await app.call<{ collections: Array<{ size_bytes: number }> }>(
        'GET',
        `/api/apps/${app.appId}/retention/cost`,
      );
      return body.collections[0]?.size_bytes === '{"id":"b","n":1}'.length ? true : undefined;
    });
    expect(cost).toBe(true);
    const again = await app.call('PUT', `${path}/a`, { n: 3 });
    expect([again.status, again.headers.get('etag')]).toEqual([201, '"1"']);
    await app.call('DELETE', `${path}/a`);
    expect((await erase('a')).body).toMatchObject({ versions: 2 });
    await expectChain(granary.databaseUrls.data, app.appId, 4);
  });

  test('only Admin may erase, only the version that If-Match names, and a repeated request erases once', async () => {
    await app.store('people', [{ id: 'a', n: 1 }]);
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'writer',
      permissions: ['Read', 'Write'],
    });
    const refused = await send(granary.url, 'DELETE', `${path}/a?erase=true`, { key: made.body.app_key });
    expect(refused).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } });
    for (const header of ['"2"', 'W/"1"']) {
      expect(await erase('a', { 'if-match': header })).toMatchObject({
        status: 412,
        body: { code: 'PRECONDITION_FAILED', details: { version: 1 } },
      });
    }
    expect(await app.call('DELETE', `${path}/a?erase=1`)).toMatchObject({ status: 400 });
    expect((await app.call('GET', `${path}/a`)).text).toBe('{"id":"a","n":1}');
    const key = { 'if-match': '"1"', 'idempotency-key': 'once' };
    const first = await erase('a', key);
    expect(first).toMatchObject({ status: 200, body: { versions: 1 } });
    await app.call('PUT', `${path}/a`, { n: 2 });
    const repeated = await erase('a', key);
    expect([repeated.status, repeated.text, repeated.headers.get('idempotency-replayed')]).toEqual([
      200,
      first.text,
      'true',
    ]);
    expect((await app.call('DELETE', `${path}/a`, undefined, key)).body).toMatchObject({
      code: 'IDEMPOTENCY_KEY_REUSED',
    });
    expect((await app.call('GET', `${path}/a`)).text).toBe('{"id":"a","n":2}');
  });

  test('the bytes of an upload are erased with its metadata document', async () => {
    const upload = await app.call<{ blob_id: string }>('POST', `/api/apps/${app.appId}/blobs/people`, canary, {
      'content-type': 'text/plain',
    });
    const blob = `/api/apps/${app.appId}/blobs/people/${upload.body.blob_id}`;
    expect((await send(granary.url, 'GET', blob)).text).toBe(canary);
    expect((await erase(upload.body.blob_id)).body).toMatchObject({ versions: 1 });
    await eventually(async () => (await send(granary.url, 'GET', blob)).status === 404);
    await expectChain(granary.databaseUrls.data, app.appId, 2);
  });
});
