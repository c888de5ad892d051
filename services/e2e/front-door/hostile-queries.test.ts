import { borrowGranary, newApp, transports, type Granary, type TestApp } from '../support/granary';

const manyCount = 70_000;
const many = <T>(make: (at: number) => T): T[] => Array.from({ length: manyCount }, (_, at) => make(at));
const nested = (levels: number, open: string, core: string, close: string): string =>
  open.repeat(levels) + core + close.repeat(levels);
const joined = nested(20, '{"x":{"model":"texts","resolve":{"find":', '{}', '}}}');

/** The query as JSON text, and what the answer says of the limit. */
const beyondLimits: Array<[title: string, query: string, says: string]> = [
  ['70,000 values', JSON.stringify({ find: { a: { in: many((at) => at) } } }), '1000 values'],
  ['70,000 values that are not', JSON.stringify({ find: { a: { notIn: many(() => 1) } } }), '1000 values'],
  ['70,000 networks', JSON.stringify({ find: { a: { CIDR: many(() => '::') } } }), '1000 values'],
  ['70,000 countries', JSON.stringify({ find: { a: { inCountry: many(() => 'DE') } } }), '1000 values'],
  ['70,000 conditions', JSON.stringify({ find: { or: many(() => ({})) } }), '256 conditions'],
  [
    '30,000 fields',
    `{"find":{${many((at) => `"f${at}":1`)
      .slice(0, 30_000)
      .join()}}}`,
    '256 conditions',
  ],
  ['a path of 70,000 steps', JSON.stringify({ find: { [many(() => 'a').join('.')]: 1 } }), '64 steps'],
  ['an order of 70,000 fields', JSON.stringify({ sort: many(() => 'a') }), '16'],
  ['objects 17 deep', `{"find":${nested(17, '{"a":', '1', '}')}}`, '16 levels'],
  ['objects 70,000 deep', `{"find":${nested(manyCount, '{"a":', '1', '}')}}`, '64 levels'],
  ['arrays 70,000 deep', `{"find":{"a":{"is":${nested(manyCount, '[', '', ']')}}}}`, '64 levels'],
  ['alternatives in alternatives', `{"find":${nested(9, '{"or":[', '{"a":1}', ']}')}}`, '16 levels'],
  ['joins 20 deep', `{"find":${joined}}`, 'levels'],
  [
    '17 joins',
    `{"find":{${Array.from({ length: 17 }, (_, at) => `"j${at}":{"model":"texts","resolve":{}}`).join()}}}`,
    '16 joins',
  ],
  ['an expression of 201 characters', JSON.stringify({ find: { a: { $regex: 'a'.repeat(201) } } }), '200'],
  ['a search of 1,001 characters', JSON.stringify({ find: { words: { $search: 'a'.repeat(1_001) } } }), '1000'],
];

describe.each(transports)('hostile queries (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    await app.store('texts', [
      { id: 'long', a: 'a'.repeat(100_000) },
      { id: 'almost', a: `${'a'.repeat(20_000)}b` },
      { id: 'words', a: 'ab '.repeat(10_000) },
      { id: 'short', a: 'ab', b: 1 },
      { id: 'other', a: 'ab', b: 2 },
    ]);
  });
  afterAll(() => granary.stop());

  test.each(beyondLimits)('%s are 400 with the limit', async (_, query, says) => {
    const refused = await app.call('POST', '/list', `{"root":"${app.appId}::texts",${query.slice(1)}`);
    expect([refused.status, refused.headers.get('content-type')]).toEqual([400, 'application/json; charset=utf-8']);
    expect(refused.text.replaceAll(',', '')).toContain(says);
  });

  // Engines that backtrack need exponential time for these.
  test.each([
    '(a+)+$',
    '(a|aa)+$',
    '(a*)*b$',
    '([a-z]+)*\\d',
    '(a|a)*b',
    '(.*)(.*)(.*)(.*)(.*)x',
    '^(([a-z])+.)+[A-Z]$',
    '(?:a?){50}a{50}$',
    '(?:a{0,30}){30}c',
    '(x+x+)+y',
    '(\\w+\\s?)*!$',
    '^(a?){1,9}(b?){1,9}$',
  ])('the expression %s is evaluated or refused, and other queries are answered', async (expression) => {
    const { status, body } = await app.list('texts', { find: { a: { $regex: expression } } });
    if (status === 200) expect(body.records.length).toBeLessThanOrEqual(5);
    else expect([status, (body as unknown as { code: string }).code]).toEqual([400, 'LIMIT_EXCEEDED']);
    expect((await app.list('texts', { find: { id: 'short' } })).body.records).toHaveLength(1);
  });

  test('a cursor of another query, of another collection, and one that was altered are 400', async () => {
    const query = { find: { a: 'ab' }, sort: ['b'], limit: 1 };
    const { body } = await app.list('texts', query);
    const cursor = (body as unknown as { next_cursor: string }).next_cursor;
    await app.store('others', [{ id: 'a' }]);
    for (const [collection, other] of [
      ['texts', { ...query, find: { a: 'other' }, cursor }],
      ['texts', { ...query, sort: ['-b'], cursor }],
      ['texts', { ...query, find: { a: { $regex: 'ab' } }, cursor }],
      ['texts', { ...query, cursor: `${cursor.slice(0, -2)}AA` }],
      ['texts', { ...query, cursor: 'x'.repeat(manyCount) }],
      ['others', { ...query, cursor }],
    ] as const) {
      const refused = await app.list(collection, other);
      expect(refused).toMatchObject({ status: 400, body: { code: 'INVALID_CURSOR' } });
    }
    expect((await app.list('texts', { ...query, cursor })).body.records).toMatchObject([{ id: 'other' }]);
  });
});
