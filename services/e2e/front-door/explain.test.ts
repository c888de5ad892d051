import { eventuallyResolves } from '@granary/testing/eventually';
import { borrowGranary, newApp, transports, type Granary, type TestApp } from '../support/granary';

interface Node {
  node: string;
  index?: string;
  plans: Node[];
}

interface Explained {
  collection: string;
  indexes_used: string[];
  plan: Node;
  cost: { startup: number; total: number };
  access: { method: string; index: string | null; filter: string; alternative: { method: string } | null };
  hints: Array<{ code: string; message: string; fields?: string[] }>;
}

interface Optimized {
  document_count: number;
  missing_indexes: string[];
  unused_indexes: string[];
  recommendations: string[];
  suggested_indexes: Array<{ fields: string[]; index_type: string; queries: number }>;
  indexes: Array<{ name: string; scans: number; last_used_at: string | null }>;
  slow_queries: Array<{
    filter: string;
    sort: string;
    count: number;
    total_ms: number;
    missing_index: string[] | null;
  }>;
  slow_queries_since: string;
}

const count = 12_000;
const indexes: Array<[name: string, fields: string[], type?: string]> = [
  ['by_owner', ['owner']],
  ['by price', ['price']],
  ['by_title', ['title']],
  ['best', ['category', 'score']],
  ['by_code', ['code'], 'hash'],
  ['by_fee', ['fee'], 'price'],
  ['by_words', ['words'], 'fulltext'],
];

const joined = (find: object) => ({ resolve: { find }, model: 'items', many: false });

const indexesIn = (node: Node): string[] => [
  ...(node.index === undefined ? [] : [node.index]),
  ...node.plans.flatMap(indexesIn),
];

describe.each(transports)('explain and optimize (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    for (const [name, fields, single = 'btree'] of indexes) {
      const type =
        fields.length > 1 ? { index_type: 'composite', fields } : { index_type: single, field_name: fields[0] };
      const made = await app.call('POST', path('indexes'), { name, collection: 'items', ...type });
      expect(made.status).toBe(201);
    }
    for (let from = 0; from < count; from += 4_000) {
      const documents = Array.from({ length: 4_000 }, (_, at) => document(from + at));
      expect((await app.store('items', documents)).status).toBe(202);
    }
  });
  afterAll(() => granary.stop());

  const path = (rest: string) => `/api/apps/${app.appId}/${rest}`;
  const document = (at: number) => ({
    id: String(at),
    owner: `o${at % 2_000}`,
    price: at % 4_000,
    title: `title ${at}`,
    category: `c${at % 20}`,
    score: at % 997,
    state: at % 2 === 0 ? 'even' : 'odd',
    code: `code ${at % 3_000}`,
    fee: at % 3_500,
    words: `a text about number${at % 2_500}`,
  });
  const explain = async (query: object): Promise<Explained> => {
    const answer = await app.call<Explained>('POST', path('collections/items/explain'), { query });
    expect(answer.status).toBe(200);
    return answer.body;
  };
  const list = async (query: object) =>
    (await app.call<{ next_cursor?: string }>('POST', '/list', { root: `${app.appId}::items`, ...query })).body;

  test.each<[string, object, string[]]>([
    ['an id', { find: { id: '17' } }, ['primary_key']],
    ['an equality', { find: { owner: 'o17' } }, ['by_owner']],
    ['a range', { find: { price: { gte: 3_990 } } }, ['by price']],
    ['a prefix', { find: { title: { startsWith: 'title 1199' } } }, ['by_title']],
    ['a list', { find: { owner: { in: ['o1', 'o2', 'o3'] } } }, ['by_owner']],
    ['an order', { sort: ['-price'], limit: 20 }, ['by price']],
    ['an order of some matches', { find: { state: 'odd' }, sort: ['price'], limit: 20 }, ['by price']],
    ['a composite', { find: { category: 'c3' }, sort: ['-score'], limit: 20 }, ['best']],
    ['a composite with a range', { find: { category: 'c3', score: { lt: 20 } }, sort: ['score'] }, ['best']],
    ['an equality beside another', { find: { owner: 'o5', state: 'odd' } }, ['by_owner']],
    ['a hash', { find: { code: 'code 17' } }, ['by_code']],
    ['a price', { find: { fee: { between: [100, 101] } }, sort: ['fee'] }, ['by_fee']],
    ['a search', { find: { words: { $search: 'number17' } } }, ['by_words']],
    ['a search beside another condition', { find: { words: { $search: 'number17' }, state: 'odd' } }, ['by_words']],
    ['an expression that forces a prefix', { find: { title: { $regex: '^title 1199' } } }, ['by_title']],
    ['an order of two fields', { find: { category: 'c3' }, sort: ['score', 'id'], limit: 20 }, ['best']],
    ['an order that ends with the id', { sort: ['price', 'id'], limit: 20 }, ['by price']],
    ['a join by an id', { find: { owner: 'o17', same: joined({ id: '$data.id' }) } }, ['by_owner', 'primary_key']],
    ['a join by a field', { find: { owner: 'o17', same: joined({ code: '$data.code' }) } }, ['by_code', 'by_owner']],
    [
      'a join by two fields',
      { find: { fee: 17, same: joined({ category: '$data.category', score: '$data.score' }) } },
      ['best', 'by_fee'],
    ],
  ])('of 12,000 documents the plan uses the index that explain names for %s', async (_, query, expected) => {
    const { indexes_used: used, plan } = await explain(query);
    expect([...used].sort()).toEqual(expected);
    expect(indexesIn(plan)).toEqual(expect.arrayContaining(expected));
    expect(JSON.stringify(plan)).not.toContain('Seq Scan');
  });

  test('so it does for the pages behind a cursor', async () => {
    for (const query of [
      { find: { category: 'c3' }, sort: ['-score'], limit: 20 },
      { find: { state: 'odd' }, sort: ['price'], limit: 20 },
    ]) {
      const { next_cursor: cursor } = await list(query);
      const { indexes_used: used, plan, access } = await explain({ ...query, cursor });
      expect(access).toMatchObject({ is_after_cursor: true, index: used[0] });
      expect(indexesIn(plan)).toEqual(expect.arrayContaining(used));
    }
  });

  test('the plan names how the page is read, by which index, and what is done where that fails', async () => {
    const alone = await explain({ find: { category: 'c3' }, sort: ['-score'] });
    expect(alone.access).toMatchObject({
      method: 'index',
      index: 'best',
      equal_fields: ['category'],
      order: [
        { field: 'score', direction: 'descending' },
        { field: 'id', direction: 'descending' },
      ],
      filter: 'category is',
      joins: [],
      alternative: { method: 'index_order' },
    });
    const sorted = await explain({ find: { or: [{ state: 'odd' }, { price: { gt: 1 } }] }, sort: ['state', '-price'] });
    expect(sorted.access).toMatchObject({
      method: 'sort',
      index: null,
      filter: 'state is or price >',
      alternative: null,
    });
    expect((await explain({ find: { id: '3' } })).access).toMatchObject({
      method: 'id',
      alternative: { method: 'sort' },
    });
    expect(alone.cost.total).toBeGreaterThan(0);
  });

  test('hints name the fields of a missing index, an unindexed sort, mixed directions, a count and a large offset', async () => {
    const hints = async (query: object) => (await explain(query)).hints.map(({ code, fields }) => [code, fields]);
    const counted = ['EXACT_COUNT', undefined];
    expect(await hints({ find: { state: 'odd' } })).toEqual([['MISSING_INDEX', ['state']], counted]);
    expect(await hints({ find: { state: 'odd' }, sort: ['-score'] })).toEqual([
      ['MISSING_INDEX', ['state', 'score']],
      ['UNINDEXED_SORT', ['state', 'score']],
      counted,
    ]);
    expect(await hints({ find: { owner: 'o1' }, sort: ['score', '-price'], count: 'none' })).toEqual([
      ['MIXED_SORT', undefined],
    ]);
    expect(await hints({ sort: ['score'] })).toEqual([['UNINDEXED_SORT', ['score']]]);
    expect(await hints({ sort: ['price'], offset: 5_000 })).toEqual([['LARGE_OFFSET', undefined]]);
    expect(await hints({ find: { owner: 'o1' }, count: 'none' })).toEqual([]);
  });

  test('hints name the index that a join is missing, wherever it is nested', async () => {
    const join = (find: object, model = 'items') => ({ resolve: { find }, model });
    const hints = async (find: object) =>
      (await explain({ find: { owner: 'o1', ...find }, count: 'none' })).hints.map((hint) => hint);
    const missing = (alias: string, fields?: string[]) => ({
      code: 'MISSING_INDEX',
      message: expect.stringMatching(`^The join ${alias} scans all 12000 documents of items`) as string,
      collection: 'items',
      ...(fields && { fields }),
    });
    expect(await hints({ one: join({ owner: '$data.owner' }) })).toEqual([]);
    expect(await hints({ one: join({ state: '$data.owner', score: 1 }) })).toEqual([
      missing('one', ['score', 'state']),
    ]);
    const nested = join({ id: '$data.owner', two: join({ state: { in: '$data.tags' } }), three: join({ note: 'a' }) });
    expect(await hints({ one: nested })).toEqual([missing('two', ['state']), missing('three', ['note'])]);
    expect(await hints({ one: join({ note: { contains: 'a' } }) })).toEqual([missing('one')]);
  });

  test('nothing internal is in the answers, and no value of a query', async () => {
    const answers = [
      JSON.stringify(
        await explain({ find: { owner: 'secret-value', note: { contains: 'secret-value' } }, sort: ['x'] }),
      ),
      JSON.stringify(await explain({ find: { price: { between: [1, 2] } }, include_history: true })),
    ];
    await list({ find: { note: 'secret-value' } });
    answers.push(JSON.stringify((await app.call('GET', path('collections/items/optimize'))).body));
    for (const answer of answers) expect(answer).not.toMatch(/secret-value|\b[acfhinqu]_\d+|bytea|jsonb|pkey|"t\./);
  });

  test('what /list refuses is refused, and a query does not run', async () => {
    const refused = async (body: object, collection = 'items') => {
      const answer = await app.call<{ code: string }>('POST', path(`collections/${collection}/explain`), body);
      return [answer.status, answer.body.code];
    };
    expect(await refused({})).toEqual([400, 'INVALID_QUERY']);
    expect(await refused({ query: { find: { a: { nothing: 1, $eq: 2 } } } })).toEqual([400, 'INVALID_QUERY']);
    expect(await refused({ query: { limit: 10_001 } })).toEqual([400, 'LIMIT_EXCEEDED']);
    expect(await refused({ query: { cursor: 'x' } })).toEqual([400, 'INVALID_CURSOR']);
    expect(await refused({ query: { root: 'other::items' } })).toEqual([400, 'INVALID_QUERY']);
    expect(await refused({ query: {}, analyze: true })).toEqual([400, 'INVALID_QUERY']);
    expect(await refused({ query: {} }, 'missing')).toEqual([404, 'COLLECTION_NOT_FOUND']);
    expect((await app.call('GET', path('collections/missing/optimize'))).status).toBe(404);
  });

  test('optimize lists the index that slow queries miss, until it is there, and the indexes that hardly any read used', async () => {
    const other = await newApp(granary);
    const at = (rest: string) => `/api/apps/${other.appId}/${rest}`;
    const index = (name: string, field: string) =>
      other.call('POST', at('indexes'), { name, collection: 'items', field_name: field, index_type: 'btree' });
    const optimize = async () => (await other.call<Optimized>('GET', at('collections/items/optimize'))).body;
    const ask = (find: object, sort: string[] = []) =>
      other.call('POST', '/list', { root: `${other.appId}::items`, find, sort, limit: 5 });
    await index('by_owner', 'owner');
    await index('by_title', 'title');
    await other.store(
      'items',
      Array.from({ length: 4_000 }, (_, number) => document(number)),
    );

    for (const state of ['odd', 'even', 'odd']) expect((await ask({ state }, ['-price'])).status).toBe(200);
    await ask({ owner: 'o1' });
    // With several processes another one may have answered the queries.
    const found = await eventuallyResolves(async () => {
      await ask({ state: 'odd' }, ['-price']);
      await ask({ owner: 'o1' });
      const optimized = await optimize();
      expect(optimized.indexes.find(({ name }) => name === 'by_owner')!.scans).toBeGreaterThan(10);
      expect(optimized.slow_queries).not.toEqual([]);
      return optimized;
    });
    expect(found.document_count).toBe(4_000);
    expect(found.suggested_indexes).toMatchObject([{ fields: ['state', 'price'], index_type: 'composite' }]);
    expect([found.missing_indexes, found.unused_indexes]).toEqual([['state,price'], ['by_title']]);
    expect(found.recommendations).toEqual([
      expect.stringMatching(/^Create a composite index over state, price: /),
      expect.stringMatching(/^Delete the index by_title /),
    ]);
    expect(found.slow_queries).toMatchObject([
      { filter: 'state is', sort: '-price', missing_index: ['state', 'price'] },
    ]);
    expect(found.slow_queries[0]!.count).toBeGreaterThanOrEqual(1);

    const fields = ['state', 'price'];
    await other.call('POST', at('indexes'), { name: 'wanted', collection: 'items', index_type: 'composite', fields });
    await eventuallyResolves(async () => expect((await optimize()).missing_indexes).toEqual([]));
  });
});
