import { partsOf } from '@granary/testing/seeds';
import { seededRandom } from '@granary/testing/random';
import { size } from '@granary/testing/size';
import { borrowGranary, newApp, transports, type Answer, type Granary, type TestApp } from '../support/granary';

/*
 * Instants at every entrance, against exact arithmetic on microseconds: offsets, decimals of any number, and days.
 */

const caseCount = size({ run: 40, long: 2_000 });
const documentCount = 24;

interface Instant {
  text: string;
  micros: bigint;
}

/** Texts of instants around one moment, so that many are equal and many differ only in what decimals or offsets say. */
function instantGenerator(next: () => number) {
  const random = (bound: number): number => Math.floor(next() * bound);
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const two = (value: number): string => String(value).padStart(2, '0');
  const baseMs = Date.UTC(2024, 1, 29, 23, 59, 58);

  function instant(): Instant {
    const seconds = random(4);
    const decimals = pick(['', '0', '5', '50', '123456', '1234561', '123456789', '123457', '999999', '999999999999']);
    const offsetMinutes = pick([0, 0, 60, -90, 14 * 60, 16 * 60, 23 * 60 + 59, -(23 * 60 + 59)]);
    const local = new Date(baseMs + seconds * 1_000 + offsetMinutes * 60_000).toISOString().slice(0, 19);
    const absolute = Math.abs(offsetMinutes);
    const sign = offsetMinutes < 0 ? '-' : '+';
    const numeric = `${sign}${two(Math.floor(absolute / 60))}:${two(absolute % 60)}`;
    const zone = offsetMinutes === 0 ? pick(['Z', 'z', '+00:00', '-00:00']) : numeric;
    const text = `${local.replace('T', pick(['T', 't', ' ']))}${decimals === '' ? '' : `.${decimals}`}${zone}`;
    return { text, micros: BigInt(baseMs + seconds * 1_000) * 1_000n + BigInt(decimals.slice(0, 6).padEnd(6, '0')) };
  }

  function day(): Instant {
    const text = pick(['2024-02-29', '2024-03-01', '2024-02-28']);
    return { text, micros: BigInt(Date.parse(`${text}T00:00:00Z`)) * 1_000n };
  }

  return { pick, instant, day };
}

const comparisons = {
  $eq: (a: bigint, b: bigint) => a === b,
  $gt: (a: bigint, b: bigint) => a > b,
  $gte: (a: bigint, b: bigint) => a >= b,
  $lt: (a: bigint, b: bigint) => a < b,
  $lte: (a: bigint, b: bigint) => a <= b,
} as const;
type Operator = keyof typeof comparisons;

/** How the field of dates is known: by a schema with or without an index, or by an index alone. */
const collections = {
  declared: { at: { type: 'date' } },
  indexed: { at: { type: 'date', index: true } },
  days: { at: { type: 'date', format: 'day', index: true } },
  keyed: undefined,
} as const;
type Collection = keyof typeof collections;

describe.each(transports)('instants (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
    for (const [name, fields] of Object.entries(collections)) {
      const schema = fields === undefined ? {} : { schema_definition: { fields } };
      expect((await app.call('POST', `${path}/collections`, { name, ...schema })).status).toBe(201);
    }
    const index = { name: 'keyed_at', collection: 'keyed', field_name: 'at', index_type: 'date' };
    expect((await app.call('POST', `${path}/indexes`, index)).status).toBe(201);
  });

  type Page = { records: Array<{ id: string; at: string }> };
  const idsOf = async (answer: Promise<Answer>): Promise<string[]> => {
    const { status, body, text } = await answer;
    expect([status, text]).toEqual([200, expect.anything()]);
    return (body as unknown as Page).records.map(({ id }) => id).sort();
  };
  const find = (collection: string, at: object, more = {}) =>
    app.call('POST', '/list', { root: `${app.appId}::${collection}`, find: { at }, limit: 100, ...more });

  test.each(partsOf('instants', caseCount))(
    '$cases comparisons at each entrance are those of exact arithmetic (seed $seed)',
    async ({ seed, cases }) => {
      const { pick, instant, day } = instantGenerator(seededRandom(seed));
      const stored = new Map<Collection, Map<string, Instant>>();
      for (const name of Object.keys(collections) as Collection[]) {
        const valueOf = name === 'days' ? day : name === 'keyed' ? () => pick([instant, instant, day])() : instant;
        const documents = new Map(Array.from({ length: documentCount }, (_, at) => [`d${at}`, valueOf()]));
        stored.set(name, documents);
        await app.store(
          name,
          [...documents].map(([id, { text }]) => ({ id, at: text })),
        );
        const query = { find: {}, select: ['id', 'at'] };
        const view = { name: `${name}_view`, source_collections: [name], query, variables: { from: 'at.$gte' } };
        const { body } = await app.call<{ ticket_id: string }>('POST', `${path}/views`, view);
        expect((await app.ended(body.ticket_id)).status).toBe('Completed');
        const parameters = [{ name: 'until', field_path: 'at.$lte' }];
        const predefined = { name: `${name}_query`, source_collection: name, base_query: { find: {} }, parameters };
        expect((await app.call('POST', `${path}/queries`, predefined)).status).toBe(201);
      }
      for (let round = 0; round < cases; round += 1) {
        const name = pick(Object.keys(collections) as Collection[]);
        const takesDays = name === 'days' || name === 'keyed';
        const bound = (takesDays ? pick([instant, day]) : instant)();
        const operator = pick(Object.keys(comparisons) as Operator[]);
        const expected = (which: Operator): string[] =>
          [...stored.get(name)!]
            .flatMap(([id, { micros }]) => (comparisons[which](micros, bound.micros) ? [id] : []))
            .sort();
        const text = encodeURIComponent(bound.text);
        const found = {
          list: await idsOf(find(name, { [operator]: bound.text })),
          history: await idsOf(find(name, { [operator]: bound.text }, { include_history: true })),
          within: await idsOf(find(name, { or: [{ [operator]: bound.text }, { in: [bound.text], isNull: true }] })),
          url:
            name === 'declared'
              ? expected(operator)
              : await idsOf(app.call('GET', `${path}/collections/${name}/data?at.${operator}=${text}&limit=100`)),
          view: await idsOf(app.call('GET', `/api/views/${app.appId}/${name}_view/data?from=${text}&limit=100`)),
          query: await idsOf(app.call('GET', `/api/queries/${app.appId}/${name}_query/data?until=${text}&limit=100`)),
        };
        const right = {
          list: expected(operator),
          history: expected(operator),
          within: expected(operator),
          url: expected(operator),
          view: expected('$gte'),
          query: expected('$lte'),
        };
        expect({ name, operator, bound: bound.text, ...found }).toEqual({
          name,
          operator,
          bound: bound.text,
          ...right,
        });
      }
      for (const [name, documents] of stored) {
        const { body } = await find(name, { isNotNull: true }, { sort: ['at'] });
        const sorted = [...documents].sort(([a, one], [b, other]) =>
          one.micros === other.micros ? (a < b ? -1 : 1) : one.micros < other.micros ? -1 : 1,
        );
        expect((body as unknown as Page).records.map(({ id, at }) => [id, at])).toEqual(
          // Texts are kept as they were written.
          sorted.map(([id, { text }]) => [id, text]),
        );
      }
    },
  );

  test('a unique date takes one text of an instant only, whatever its decimals and offset', async () => {
    const index = {
      name: 'keyed_once',
      collection: 'keyed',
      field_name: 'at',
      index_type: 'date',
      options: { unique: true },
    };
    expect((await app.call('POST', `${path}/indexes`, index)).status).toBe(201);
    await app.store('keyed', [{ id: 'a', at: '2024-01-01T00:00:00.1234567Z' }]);
    const root = `${app.appId}::keyed`;
    const same = await app.call('POST', '/store', {
      root,
      data: [{ id: 'b', at: '2024-01-01T23:59:00.123456+23:59' }],
    });
    expect([same.status, same.body['code']]).toEqual([409, 'UNIQUE_VIOLATION']);
    await app.store('keyed', [{ id: 'b', at: '2024-01-01T00:00:00.123457Z' }]);
  });

  test.each([
    ['a day', '2024-01-01', 'write 2024-01-01T00:00:00Z'],
    ['a time without an offset', '2024-01-01T00:00:00', 'an instant'],
    ['second 60', '2016-12-31T23:59:60Z', 'an instant'],
    ['the offset 24:00', '2024-01-01T00:00:00+24:00', 'an instant'],
    ['a day that there is not', '2023-02-29T00:00:00Z', 'an instant'],
    ['an empty text', '', 'an instant'],
    ['a number', 5, 'an instant'],
  ])('%s is no operand for a date, at any entrance', async (_, operand, sentence) => {
    const refused = async (answer: Promise<Answer>) => {
      const { status, body } = await answer;
      expect([status, body['code']]).toEqual([400, 'INVALID_QUERY']);
      expect(body['error']).toContain('at ');
      expect(body['error']).toContain(sentence);
    };
    const text = encodeURIComponent(String(operand));
    for (const operator of ['is', 'isNot', 'gte', 'lt']) await refused(find('indexed', { [operator]: operand }));
    await refused(find('indexed', { in: ['2024-01-01T00:00:00Z', operand] }));
    await refused(find('indexed', { between: ['2024-01-01T00:00:00Z', operand] }));
    await refused(find('declared', { not: [{ is: operand }] }));
    await refused(app.call('GET', `${path}/collections/indexed/data?at=${text}`));
    await refused(app.call('GET', `${path}/collections/indexed/data?at.$gte=${text}`));
    const update = {
      operation: 'update',
      collection: 'indexed',
      data: { id: 'a', n: 1 },
      conditions: { at: { lt: operand } },
    };
    await app.store('indexed', [{ id: 'a', at: '2020-01-01T00:00:00Z' }]);
    await refused(app.call('POST', `${path}/batch`, { operations: [update], atomic: true }));
    const base = {
      name: 'q',
      source_collection: 'indexed',
      base_query: { find: { at: { gte: operand } } },
      parameters: [],
    };
    await refused(app.call('POST', `${path}/queries`, base));
    const parameters = [{ name: 'from', field_path: 'at.$gte' }];
    expect((await app.call('POST', `${path}/queries`, { ...base, base_query: {}, parameters })).status).toBe(201);
    await refused(app.call('GET', `/api/queries/${app.appId}/q/data?from=${text}`));
    await refused(
      app.call('POST', `${path}/views`, {
        name: 'v',
        source_collections: ['indexed'],
        query: { find: { at: { gte: operand } } },
      }),
    );
    const joined = { model: 'indexed', resolve: { find: { at: { gte: operand } } } };
    await refused(app.call('POST', '/list', { root: `${app.appId}::declared`, find: { others: joined } }));
  });

  test('a plus that a URL has turned into a space is told so', async () => {
    const { status, body } = await app.call(
      'GET',
      `${path}/collections/indexed/data?at.$gte=2024-01-01T00:00:00+02:00`,
    );
    expect([status, body['error']]).toEqual([400, expect.stringContaining('%2B')]);
  });

  test('a schema takes days where it says so, whole numbers, and instants of any number of decimals', async () => {
    const fields = {
      due: { type: 'date', format: 'day' },
      count: { type: 'integer', index: true },
      at: { type: 'date' },
    };
    expect(
      (await app.call('POST', `${path}/collections`, { name: 'tasks', schema_definition: { fields } })).status,
    ).toBe(201);
    const store = async (document: object) => {
      const { status, body } = await app.call('POST', '/store', { root: `${app.appId}::tasks`, data: [document] });
      return status === 202
        ? 202
        : [status, (body['details'] as Record<string, string[]>)[`data[0].${Object.keys(document)[0]}`]];
    };
    expect(await store({ due: '2024-02-29' })).toBe(202);
    expect(await store({ due: '2024-02-29T00:00:00Z' })).toEqual([422, ['must be a day, YYYY-MM-DD']]);
    expect(await store({ due: '2023-02-29' })).toEqual([422, ['must be a day, YYYY-MM-DD']]);
    expect(await store({ at: '2024-01-01T00:00:00.123456789Z' })).toBe(202);
    expect(await store({ at: '2024-01-01' })).toEqual([422, ['must be an RFC 3339 date and time with offset']]);
    for (const whole of [1, -3, 1e3]) expect(await store({ count: whole })).toBe(202);
    expect(await store({ count: 1.5 })).toEqual([422, ['must be a number without a fraction']]);
    const found = await app.call<Page>('GET', `${path}/collections/tasks/data?count.$gte=2`);
    expect(found.body.records).toHaveLength(1);
    const wrong = { count: { type: 'number', format: 'day' } };
    const { status } = await app.call('POST', `${path}/collections`, {
      name: 'wrong',
      schema_definition: { fields: wrong },
    });
    expect(status).toBe(400);
  });
});
