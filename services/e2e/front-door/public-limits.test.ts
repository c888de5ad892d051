import { limitMs } from '@granary/testing/speed';
import { newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

interface Refusal {
  code: string;
  error: string;
  details: { missing_index?: string[]; count?: string[] };
}

const rowsMax = 500;
/** A collection that has more. */
const manyDocuments = 600;

const refused = (answer: { status: number; body: Refusal }) => [answer.status, answer.body.code];
const isRefused = [400, 'SCAN_LIMIT_EXCEEDED'];

describe.each(transports)('records that a public read passes without an index (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { data: { PUBLIC_READ_ROWS_MAX: String(rowsMax) } } });
    app = await newApp(granary);
    for (const field of ['kind', 'name']) {
      await app.call('POST', `/api/apps/${app.appId}/indexes`, {
        name: field,
        collection: 'many',
        field_name: field,
        index_type: 'string',
      });
    }
    const documents = Array.from({ length: manyDocuments }, (_, n) => ({
      id: `${n}`,
      kind: `k${n % 100}`,
      name: `name ${n}`,
      n,
    }));
    await app.store('many', documents);
    await app.store('few', [{ id: 'one', n: 1, kind: 'k1' }]);
  });
  afterAll(() => granary.stop());

  const read = (path: string, key?: string) => send<Refusal>(granary.url, 'GET', `/api${path}`, { key });
  let queries = 0;
  /** The path of a new predefined query. */
  const query = async (baseQuery: object, source = 'many') => {
    const name = `q${queries++}`;
    const definition = { name, source_collection: source, base_query: baseQuery };
    const made = await app.call('POST', `/apps/${app.appId}/queries`, definition);
    expect(made).toMatchObject({ status: 201 });
    return `/queries/${app.appId}/${name}/data`;
  };
  const collection = (parameters: string) => `/apps/${app.appId}/collections/many/data?${parameters}`;

  test.each([
    ['a filter', { find: { n: { gte: 5 } } }, ['n']],
    ['an order', { sort: '-n' }, ['n']],
    ['both', { find: { 'a.b': 1 }, sort: '-n' }, ['a.b', 'n']],
    ['a filter of which one alternative is not indexed', { find: { or: [{ kind: 'k1' }, { n: 1 }] } }, undefined],
    ['a filter that no index can serve', { find: { name: { contains: 'e' } } }, undefined],
  ])('are limited for %s: the error names the index, and a key reads on', async (_, baseQuery, missing) => {
    const path = await query(baseQuery);
    const answer = await read(path);
    expect(refused(answer)).toEqual(isRefused);
    expect(answer.body.details.missing_index).toEqual(missing);
    expect(answer.body.error).toContain(missing ? missing.join(', ') : 'no index serves it');
    expect(await read(path, app.key)).toMatchObject({ status: 200 });
  });

  test.each([
    ['the order of the ids', {}],
    ['an equality', { find: { kind: 'k1', n: { gte: 0 } }, sort: 'n' }],
    ['a list', { find: { kind: { in: ['k1', 'k2'] }, n: { gte: 0 } } }],
    ['a prefix', { find: { name: { startsWith: 'name 1' }, n: { gte: 0 } } }],
    ['a regular expression with a fixed beginning', { find: { name: { $regex: '^name 1' } } }],
    ['alternatives that are all indexed', { find: { or: [{ kind: 'k1' }, { name: 'name 2' }, { id: '3' }] } }],
    ['the order of an index', { find: { name: { contains: '1' } }, sort: 'name', limit: 5 }],
  ])('are not limited where an index narrows them: %s', async (_, baseQuery) => {
    const answer = await read(`${await query(baseQuery)}?count=none`);
    expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('"records":[{')]);
  });

  test('are limited for a total, which the error advises to leave out', async () => {
    const page = collection('name.$includes=e&sort=name&limit=5');
    const answer = await read(page);
    expect(refused(answer)).toEqual(isRefused);
    expect(answer.body).toMatchObject({
      error: expect.stringContaining('count=none') as string,
      details: { count: ['none leaves the total out'] },
    });
    expect(await read(`${page}&count=none`)).toMatchObject({ status: 200, body: { total: null } });
    expect(await read(page, app.key)).toMatchObject({ status: 200, body: { total: manyDocuments } });
    // Counted by an index.
    expect(await read(collection('kind=k1&limit=2'))).toMatchObject({ status: 200, body: { total: 6 } });
    // Known without counting.
    expect(await read(collection('limit=2'))).toMatchObject({ status: 200, body: { total: manyDocuments } });
  });

  test('are limited for joins', async () => {
    const join = (model: string, field: string) => ({
      find: { others: { resolve: { find: { [field]: `$data.${field}` } }, model } },
    });
    const answer = await read(await query(join('many', 'n'), 'few'));
    expect(refused(answer)).toEqual(isRefused);
    expect(answer.body.details.missing_index).toEqual(['many.n']);
    expect(await read(await query(join('many', 'kind'), 'few'))).toMatchObject({ status: 200 });
    expect(await read(await query(join('few', 'n'), 'few'))).toMatchObject({ status: 200 });
  });

  test('are limited for the rows of a view', async () => {
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, {
      name: 'all',
      query: {},
      source_collections: ['many'],
    });
    await app.ended(made.body.ticket_id);
    const rows = `/views/${app.appId}/all/data`;
    const filter = encodeURIComponent(JSON.stringify({ n: { gte: 5 } }));
    expect(await read(rows)).toMatchObject({ status: 200, body: { total: manyDocuments } });
    expect(refused(await read(`${rows}?filter=${filter}`))).toEqual(isRefused);
    expect(refused(await read(`${rows}?sort=n`))).toEqual(isRefused);
    expect(await read(`${rows}?filter=${filter}&sort=n`, app.key)).toMatchObject({ status: 200 });
  });
});

describe.each(transports)('the time of a public read (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    // Forty searches in each of 20 MB of texts take many times as long.
    granary = await startGranary(transport, { settings: { data: { PUBLIC_READ_TIMEOUT_MS: String(limitMs(10)) } } });
    app = await newApp(granary);
    for (let from = 0; from < 400; from += 80) {
      const texts = Array.from({ length: 80 }, (_, n) => ({
        id: `${from + n}`,
        order: n,
        kind: 'a',
        text: `${from + n} `.repeat(10_000),
      }));
      await app.store('texts', texts);
    }
    const index = { name: 'order', collection: 'texts', field_name: 'order', index_type: 'number' };
    const made = await app.call<{ ticket_id: string }>('POST', `/api/apps/${app.appId}/indexes`, index);
    // Of so many bytes it is built later.
    expect(made.status).toBe(202);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
  });
  afterAll(() => granary.stop());

  test('is limited: what takes longer is 400 with advice, and does not hold up others', async () => {
    // Each document has the kind, so that every plan does the searches too.
    const slow = { or: Array.from({ length: 40 }, (_, n) => ({ text: { contains: `none ${n}` } })) };
    const path = async (name: string, baseQuery: object) => {
      const definition = { name, source_collection: 'texts', base_query: baseQuery };
      expect(await app.call('POST', `/apps/${app.appId}/queries`, definition)).toMatchObject({ status: 201 });
      return `/api/queries/${app.appId}/${name}/data`;
    };
    const read = (target: string, key?: string) => send<Refusal>(granary.url, 'GET', target, { key });
    const scan = await path('scan', { find: slow });
    const sorted = await path('sorted', { find: slow, sort: 'order' });
    const unsorted = await path('unsorted', { find: { and: [slow, { kind: 'a' }] } });
    for (const target of [scan, sorted, unsorted]) expect(refused(await read(target))).toEqual(isRefused);
    expect((await read(unsorted)).body.details.missing_index).toEqual(['kind']);
    expect((await read(scan, app.key)).status).toBe(200);
    const data = `/api/apps/${app.appId}/collections/texts/data`;
    expect(await read(`${data}?order=7&select=id`)).toMatchObject({ status: 200, body: { total: 5 } });
  });
});
