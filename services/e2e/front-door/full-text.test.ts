import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { createLogger } from '@granary/shared/logger';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, randomText, send, transports, type Granary, type TestApp } from '../support/granary';

interface Made {
  ticket_id?: string;
  status?: string;
  code?: string;
}

describe.each(transports)('full-text indexes (%s)', (transport) => {
  let granary: Granary;
  let pool: Pool;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    pool = createPool({
      url: granary.databaseUrls.data,
      size: 1,
      applicationName: 'test',
      log: createLogger('test', 'silent'),
    });
  });
  afterAll(async () => {
    await pool.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const create = (definition: object = {}) =>
    app.call<Made>('POST', `${path}/indexes`, {
      name: 'words',
      collection: 'posts',
      field_name: 'text',
      index_type: 'fulltext',
      ...definition,
    });
  const createReady = async (definition: object = {}) => {
    const made = await create(definition);
    if (made.body.ticket_id) expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    else expect(made).toMatchObject({ status: 201, body: { status: 'ready' } });
  };
  const ids = async (find: object, more: object = {}) => {
    const found = await app.list<{ id: string }>('posts', { find, sort: ['id'], ...more });
    expect([found.status, found.text]).toEqual([200, expect.any(String)]);
    return found.body.records.map(({ id }) => id);
  };
  const posts = [
    { id: 'a', text: 'The quick brown foxes jumped over the lazy dog', n: 1 },
    { id: 'b', text: 'A dog sleeps. Write to ann@example.org, or to her e-mail', n: 2 },
    { id: 'c', text: ['Brown bread', 7, null, 'from the wood-fired oven'], n: 3 },
    { id: 'd', text: 17, n: 4 },
    { id: 'e', text: { brown: 'dog' }, n: 5 },
    { id: 'f', n: 6 },
  ];

  test('find documents by their words, in every part of a query', async () => {
    await createReady();
    await app.store('posts', posts);
    const search = (text: string) => ids({ text: { $search: text } });
    expect(await search('DOG')).toEqual(['a', 'b']);
    expect(await search('brown')).toEqual(['a', 'c']);
    expect(await search('brown dog')).toEqual(['a']);
    expect(await search('brown -dog')).toEqual(['c']);
    expect(await search('lazy or oven')).toEqual(['a', 'c']);
    expect(await search('"brown bread"')).toEqual(['c']);
    expect(await search('"bread brown"')).toEqual([]);
    expect(await search('ann@example.org')).toEqual(['b']);
    expect(await search('wood-fired')).toEqual(['c']);
    expect(await search('brow')).toEqual([]);
    expect(await search('')).toEqual([]);
    expect(await ids({ 'text.$search': 'dog', n: { gt: 1 } })).toEqual(['b']);
    expect(await ids({ or: [{ text: { $search: 'lazy' } }, { n: 6 }] })).toEqual(['a', 'f']);
    expect(await ids({ not: [{ text: { $search: 'dog' } }] })).toEqual(['c', 'd', 'e', 'f']);
    expect(await ids({ text: { $search: 'brown', isNotNull: true, startsWith: 'The' } })).toEqual(['a']);
    const page = await send<{ total: number; records: Array<{ id: string }> }>(
      granary.url,
      'GET',
      `${path}/collections/posts/data?text.$search=${encodeURIComponent('brown -dog')}`,
    );
    expect(page.body).toMatchObject({ total: 1, records: [{ id: 'c' }] });
  });

  test('serve the search at the public endpoint, and no other filter or order', async () => {
    await createReady();
    await app.store('posts', posts);
    const read = (query: string) => send(granary.url, 'GET', `${path}/collections/posts/data?${query}`);
    for (const query of ['text=dog', 'text.$startsWith=A', 'text.$exists=true', 'sort=text', 'sort=-text']) {
      expect([query, await read(query)]).toMatchObject([
        query,
        { status: 400, body: { code: 'FIELD_NOT_INDEXED', details: { indexed_fields: ['id'] } } },
      ]);
    }
    expect(await read('n.$search=dog')).toMatchObject({ status: 400, body: { code: 'FIELD_NOT_INDEXED' } });
    expect(await read('text.$search=lazy')).toMatchObject({ status: 200, body: { total: 1 } });
    await app.call('POST', `${path}/indexes`, {
      name: 'plain',
      collection: 'posts',
      field_name: 'text',
      index_type: 'btree',
    });
    expect(await read('text.$startsWith=A&text.$search=dog')).toMatchObject({ status: 200, body: { total: 1 } });
  });

  test('follow each write, and search history, deletions and views as their entrances do', async () => {
    await createReady();
    await app.store('posts', posts);
    await app.store('posts', [
      { id: 'a', text: 'Nothing of that' },
      { id: 'd', text: 'A brown number' },
      { id: 'b', text: 'Brown, but deleted', deleted: true },
    ]);
    expect(await ids({ text: { $search: 'brown' } })).toEqual(['b', 'c', 'd']);
    expect(await ids({ text: { $search: 'brown' } }, { include_history: true })).toEqual(['a', 'b', 'c', 'd']);
    const query = { find: { text: { $search: 'brown' } }, sort_by: ['id'] };
    const view = await app.call<Made>('POST', `${path}/views`, { name: 'found', query, source_collections: ['posts'] });
    expect((await app.ended(view.body.ticket_id!)).status).toBe('Completed');
    const rows = await send<{ records: object[] }>(granary.url, 'GET', `/api/views/${app.appId}/found/data`);
    expect(rows.body.records).toMatchObject([{ id: 'c' }, { id: 'd' }]);
  });

  test('have the words of their language', async () => {
    await createReady({ options: { language: 'English', sparse: true } });
    await app.store('posts', posts);
    expect(await ids({ text: { $search: 'fox jumps' } })).toEqual(['a']);
    const listed = await app.call<object[]>('GET', `${path}/indexes`);
    expect(listed.body).toMatchObject([{ index_type: 'fulltext', options: { language: 'english' }, unique: false }]);
    expect(await create({ options: { defaultLanguage: 'english' } })).toMatchObject({ status: 200 });
    for (const other of [{}, { options: { language: 'german' } }, { index_type: 'hash' }, { name: 'second' }]) {
      expect(await create(other)).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    }
    for (const wrong of [{ options: { language: 'klingon' } }, { options: { unique: true } }, { fields: ['a', 'b'] }]) {
      const refused = await create({ name: 'wrong', field_name: 'title', ...wrong });
      expect(refused).toMatchObject({ status: 400, body: { code: 'VALIDATION_FAILED' } });
    }
  });

  test('are needed for a search, which says so', async () => {
    await app.store('posts', posts);
    await app.call('POST', `${path}/indexes`, {
      name: 'plain',
      collection: 'posts',
      field_name: 'text',
      index_type: 'btree',
    });
    const refused = await app.list('posts', { find: { text: { $search: 'dog' } } });
    expect(refused).toMatchObject({ status: 400, body: { code: 'FIELD_NOT_INDEXED' } });
    expect(refused.text).toContain('fulltext');
    await createReady();
    expect(await ids({ text: { $search: 'dog' } })).toEqual(['a', 'b']);
    for (const wrong of [1, null, ['dog'], { a: 1 }]) {
      expect(await app.list('posts', { find: { text: { $search: wrong } } })).toMatchObject({ status: 400 });
    }
    const long = await app.list('posts', { find: { text: { $search: 'x'.repeat(1_001) } } });
    expect(long).toMatchObject({ status: 400, body: { code: 'LIMIT_EXCEEDED' } });
  });

  test('are built over many documents by a task, filled by bulks, rebuilt and deleted', async () => {
    const many = (from: number) =>
      Array.from({ length: 1_500 }, (_, n) => ({ id: `p${from + n}`, text: `post number ${from + n}`, n }));
    await app.store('posts', many(0));
    const made = await create();
    expect(made.status).toBe(202);
    // Before it is ready a search reads the documents.
    expect(await ids({ text: { $search: '"number 7"' } })).toEqual(['p7']);
    expect((await app.ended(made.body.ticket_id!)).status).toBe('Completed');
    await app.store('posts', many(10_000));
    expect(await ids({ text: { $search: '"number 7"' } })).toEqual(['p7']);
    expect(await ids({ text: { $search: 'post -number or 10007' } })).toEqual(['p10007']);
    const index = `${path}/collections/posts/indexes/words`;
    const rebuilt = await app.call<Made>('POST', `${index}/rebuild`);
    expect((await app.ended(rebuilt.body.ticket_id!)).status).toBe('Completed');
    expect((await app.call('GET', `${index}/status`)).body).toMatchObject({ status: 'ready', error: null });
    const { body } = await app.call<{ size_bytes: number }>('GET', `${index}/statistics`);
    expect(body.size_bytes).toBeGreaterThan(0);
    expect(await ids({ text: { $search: '10007' } })).toEqual(['p10007']);
    expect((await app.call('DELETE', index)).status).toBe(200);
    const { rows } = await pool.query(
      `select attname from pg_attribute a join pg_class t on t.oid = a.attrelid join pg_namespace n on n.oid = t.relnamespace
       join application p on n.nspname = 'a_' || p.number
       where p.app_id = $1 and t.relname ~ '^c_' and attname ~ '^t_' and not attisdropped`,
      [app.appId],
    );
    expect(rows).toEqual([]);
    expect(await app.list('posts', { find: { text: { $search: 'post' } } })).toMatchObject({ status: 400 });
    await app.store('posts', [{ id: 'p1', text: 'changed' }]);
  });

  test('never refuse a document for its text, however large and odd it is', async () => {
    await createReady();
    const odd = ['a_', '<!--', '~/', 'Ⱥ', 'İ ', 'a', 'ab.cd/ef ', '&#', '\\u0001', '😀', '"'];
    for (const part of odd) {
      const text = `treasure ${part.repeat(Math.floor(900_000 / Buffer.byteLength(JSON.stringify(part))))}`;
      await app.store('posts', [{ id: part, text }]);
      expect([part, await ids({ id: part, text: { $search: 'treasure' } })]).toEqual([part, [part]]);
    }
    // What is behind the first 256 KB is not indexed.
    await app.store('posts', [{ id: 'late', text: `${'early '.repeat(50_000)}late` }]);
    expect(await ids({ id: 'late', text: { $search: 'early' } })).toEqual(['late']);
    expect(await ids({ id: 'late', text: { $search: 'late' } })).toEqual([]);
  });

  test('leave an update of another field in its place, whatever the size of the text', async () => {
    await createReady();
    const texts = {
      short: 'a few words',
      repeating: 'many different words '.repeat(2_000),
      random: randomText(60_000),
    };
    const documents = (n: number) => Object.entries(texts).map(([id, text]) => ({ id, text, n }));
    await app.store('posts', documents(0));
    for (const n of [1, 2]) await app.store('posts', documents(n));
    const updates = await eventually(async () => {
      const { rows } = await pool.query<{ all: bigint; hot: bigint }>(
        `select s.n_tup_upd as all, s.n_tup_hot_upd as hot from pg_stat_user_tables s
         join application p on s.schemaname = 'a_' || p.number where p.app_id = $1 and s.relname ~ '^c_'`,
        [app.appId],
      );
      return rows[0]!.all === 6n && rows[0];
    });
    expect(updates).toEqual({ all: 6n, hot: 6n });
    await app.store('posts', [{ id: 'random', text: 'other words', n: 2 }]);
    expect(await ids({ text: { $search: 'words' } })).toEqual(['random', 'repeating', 'short']);
  });
});
