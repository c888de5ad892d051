import {
  borrowGranary,
  newApp,
  operatorKey,
  send,
  transports,
  type Answer,
  type Granary,
  type TestApp,
} from '../support/granary';

const pageBytesMax = 1024 * 1024 + 64 * 1024;

describe.each(transports)('listings (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
  });
  afterAll(() => granary.stop());

  const ofApp = (of: TestApp, path: string) => `/api/apps/${of.appId}/${path}`;
  const get = (path: string) => app.call<unknown>('GET', path);

  /** The pages of a listing, each found by the header of the one before. */
  async function pages(path: string, headers?: Record<string, string>): Promise<Array<Answer<unknown>>> {
    const found: Array<Answer<unknown>> = [];
    for (let next: string | undefined = path; next !== undefined;) {
      const page: Answer<unknown> = await app.call('GET', next, undefined, headers);
      expect(page.status).toBe(200);
      found.push(page);
      next = /^<([^>]+)>; rel="next"$/.exec(page.headers.get('link') ?? '')?.[1];
      expect(found.length).toBeLessThan(100);
    }
    return found;
  }
  const names = (list: unknown) => (list as Array<{ name: string }>).map(({ name }) => name);

  test('collections are listed in pages by name, in the documented shapes', async () => {
    const wanted = Array.from({ length: 7 }, (_, at) => `c${at}`);
    for (const name of [...wanted].reverse()) {
      expect((await app.call('POST', ofApp(app, 'collections'), { name })).status).toBe(201);
    }
    const whole = await get(ofApp(app, 'collections'));
    expect(names(whole.body)).toEqual(wanted);
    expect(whole.headers.get('link')).toBeNull();

    const bare = await pages(ofApp(app, 'collections?limit=3'));
    expect(bare.map(({ body }) => names(body))).toEqual([wanted.slice(0, 3), wanted.slice(3, 6), wanted.slice(6)]);

    let cursor = '';
    const read: string[] = [];
    do {
      const path = `/apps/${app.appId}/api_collections?limit=2${cursor && `&cursor=${cursor}`}`;
      const { body } = await app.call<{ collections: unknown; next_cursor?: string }>('GET', path);
      read.push(...names(body.collections));
      cursor = body.next_cursor ?? '';
    } while (cursor !== '');
    expect(read).toEqual(wanted);
    // As before: what a listing does not know it ignores, and a limit beyond the page gives a page.
    expect(names((await get(ofApp(app, 'collections?include=all&limit=10000'))).body)).toEqual(wanted);
  });

  test('a listing refuses an invalid limit or cursor', async () => {
    const texts = ['', 'x', '!', 'bnVsbA', 'WzFd', Buffer.from('["a\\u0000"]').toString('base64url'), 'W10'];
    for (const path of ['collections', 'indexes', 'keys', 'views', 'queries', 'collections/c1/indexes']) {
      for (const text of texts.slice(1)) {
        const refused = await app.call('GET', ofApp(app, `${path}?cursor=${encodeURIComponent(text)}`));
        expect([path, text, refused.status, refused.body['code']]).toEqual([path, text, 400, 'INVALID_CURSOR']);
      }
      for (const limit of ['0', '-1', '10001', 'x']) {
        expect((await app.call('GET', ofApp(app, `${path}?limit=${limit}`))).status).toBe(400);
      }
    }
    const ofIndexes = Buffer.from('["c1","x"]').toString('base64url');
    expect((await get(ofApp(app, `indexes?cursor=${ofIndexes}`))).status).toBe(400);
  });

  test('queries are listed in pages of 1 MiB, and the definitions of an app have a limit in bytes', async () => {
    const own = await newApp(granary);
    await own.store('docs', [{ id: '1' }]);
    const create = (name: string) =>
      own.call('POST', ofApp(own, 'queries'), {
        name,
        source_collection: 'docs',
        base_query: {},
        example_response: 'x'.repeat(500_000),
      });
    const wanted: string[] = [];
    let refused: Answer | undefined;
    while (!refused) {
      const name = `q${String(wanted.length).padStart(2, '0')}`;
      const made = await create(name);
      if (made.status === 201) wanted.push(name);
      else refused = made;
    }
    expect(refused).toMatchObject({ status: 400, body: { code: 'LIMIT_EXCEEDED' } });
    expect(wanted.length).toBe(16);
    expect((await own.call('GET', ofApp(own, 'queries/q16'))).status).toBe(404);
    // A view is a definition as well, a collection without a schema is none.
    const view = { name: 'v', source_collections: ['docs'], query: { find: { a: { is: 'x'.repeat(450_000) } } } };
    expect((await own.call('POST', ofApp(own, 'views'), view)).body['code']).toBe('LIMIT_EXCEEDED');
    expect((await own.call('POST', ofApp(own, 'collections'), { name: 'plain' })).status).toBe(201);

    const found = await pages(ofApp(own, 'queries'));
    expect(found.length).toBeGreaterThan(3);
    for (const { text } of found) expect(text.length).toBeLessThanOrEqual(pageBytesMax);
    expect(found.flatMap(({ body }) => names((body as { queries: unknown }).queries))).toEqual(wanted);
    expect(Object.keys(found[0]!.body as object)).toEqual(['app_id', 'queries', 'next_cursor']);
  });

  test('indexes, views, keys and applications are listed in pages', async () => {
    const own = await newApp(granary);
    await own.store('docs', [{ id: '1' }]);
    const ofOwn = { 'x-app-key': own.key };
    for (const name of ['a', 'b', 'c']) {
      const index = { name, collection: 'docs', field_name: name, index_type: 'btree' };
      expect((await own.call('POST', ofApp(own, 'indexes'), index)).status).toBe(201);
      const view = { name: `v${name}`, source_collections: ['docs'], query: {} };
      expect((await own.call('POST', ofApp(own, 'views'), view)).status).toBe(202);
      const key = { name, permissions: ['Read'] };
      expect((await own.call('POST', ofApp(own, 'regenerate-key'), key)).status).toBe(200);
    }
    const listed = async (path: string, of: (body: unknown) => unknown) =>
      (await pages(ofApp(own, path), ofOwn)).map(({ body }) => names(of(body)));
    expect(await listed('indexes?limit=2', (body) => body)).toEqual([['a', 'b'], ['c']]);
    expect(await listed('collections/docs/indexes?limit=2', (body) => body)).toEqual([['a', 'b'], ['c']]);
    expect(await listed('views?limit=2', (body) => (body as { views: unknown }).views)).toEqual([['va', 'vb'], ['vc']]);
    expect(await listed('keys?limit=3', (body) => (body as { keys: unknown }).keys)).toEqual([
      ['default', 'a', 'b'],
      ['c'],
    ]);

    const operator = { headers: { 'x-operator-key': operatorKey } };
    const first = await send(granary.url, 'GET', '/api/applications?limit=1', operator);
    expect(first.body).toMatchObject({ limit: 1, offset: 0 });
    expect((first.body['applications'] as unknown[]).length).toBe(1);
    expect(first.headers.get('link')).toBe('</api/applications?limit=1&offset=1>; rel="next"');
  });

  test('the statistics of an app count every collection, whatever the page of a listing shows', async () => {
    const own = await newApp(granary);
    await own.store('a', [{ id: '1' }, { id: '2' }]);
    await own.store('b', [{ id: '1' }, { id: '2', deleted: true }]);
    expect((await own.call('GET', ofApp(own, 'stats'))).body).toEqual({
      app_id: own.appId,
      collection_count: 2,
      document_count: 3,
      size_bytes: 10 + 10 + 10 + 25,
      height: 2,
      total_collections: 2,
      total_indexes: 0,
      total_documents: 3,
      storage_size: 55,
      index_size: 0,
      active_connections: 0,
    });
  });

  test('the names and paths of the variables of a view are limited', async () => {
    const own = await newApp(granary);
    await own.store('docs', [{ id: '1' }]);
    const create = (name: string, variables: object) =>
      own.call('POST', ofApp(own, 'views'), { name, source_collections: ['docs'], query: {}, variables });
    expect((await create('v1', { ['x'.repeat(201)]: 'a' })).body['code']).toBe('LIMIT_EXCEEDED');
    expect((await create('v2', { x: 'a'.repeat(501) })).status).toBe(400);
    expect((await create('v3', { ['x'.repeat(200)]: 'a'.repeat(400) })).status).toBe(202);
  });

  test('the skills document describes what fits into 256 KiB, counts the remaining entries and links to the listings', async () => {
    const own = await newApp(granary);
    await own.store('docs', [{ id: '1' }]);
    const variables = Object.fromEntries(
      Array.from({ length: 64 }, (_, at) => [
        `v${String(at).padStart(3, '0')}`.repeat(49),
        `p${at}.${'y'.repeat(190)}`,
      ]),
    );
    for (let at = 0; at < 14; at++) {
      const name = `view${String(at).padStart(2, '0')}`;
      const made = await own.call('POST', ofApp(own, 'views'), {
        name,
        source_collections: ['docs'],
        query: {},
        variables,
      });
      expect(made.status).toBe(202);
    }
    const query = { name: 'last', source_collection: 'docs', base_query: {}, description: 'Still described' };
    expect((await own.call('POST', ofApp(own, 'queries'), query)).status).toBe(201);
    const { status, text } = await send(granary.url, 'GET', `/api/skills/${own.appId}/skills.md`);
    expect(status).toBe(200);
    expect(Buffer.byteLength(text)).toBeLessThan(257 * 1024);
    expect(text).toContain('### view00');
    expect(text).toContain('### last');
    const described = text.match(/^### view\d\d/gm)!.length;
    expect(described).toBeGreaterThan(1);
    expect(text).toMatch(
      new RegExp(
        `^${14 - described} more are not described here: \`GET http.*/api/apps/${own.appId}/views\` \\(Read\\)\\.$`,
        'm',
      ),
    );
  });
});
