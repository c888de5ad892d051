import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { countTurns } from '@granary/testing/event-loop';
import { seedOf } from '@granary/testing/seeds';
import { parseSchema } from '../catalog/schema';
import { OrderedKeys } from '../values/ordered-key';
import { appendStoredKeys } from './keys';
import { prepareBody, prepareLargeBody } from './parser';
import { compileRules } from './rules';
import { readLargeStoreRoot, readStoreRoot, type StoreRoot } from './store-root';

const field = (number: bigint, name: string) => ({ number, name, path: name.split('.'), isDate: false });
const fields = [field(1n, 'n'), field(2n, 'email'), field(3n, 'a.b'), field(4n, 'kind'), field(5n, 'id')];
const usual = { declaredType: 'btree', status: 'ready' as const };
const indexes = fields.map((key) => ({ ...usual, fieldName: key.name, unique: key.name === 'email', keys: [key] }));
indexes.push({ ...usual, fieldName: 'n', unique: true, keys: [fields[0]!, fields[4]!] });
for (const fieldName of ['email', 'a.b', 'kind', 'id']) {
  indexes.push({ ...usual, declaredType: 'fulltext', fieldName, unique: false, keys: [] });
}

const schema = parseSchema('{"fields":{"n":{"type":"number"},"kind":{"type":"string","default":"usual"}}}');
const rules = compileRules(fields, indexes, schema);

/**
 * Texts of documents that are right, that break a rule of their collection, and that are none. An id is always given.
 */
const right = fc
  .record({ id: fc.oneof(fc.uuid(), fc.nat()), n: fc.nat(), email: fc.string(), a: fc.record({ b: fc.string() }) })
  .map((document) => JSON.stringify(document));
const wrong = fc.constantFrom('{"id":1,"n":"text"}', '{"id":2,"kind":3}');
const broken = fc.constantFrom('{"id":true}', '{"id":1,"id":1}', '{"id":1', '[]', '{"id":1,"n":1e99999999}', '');
const oneBody = (element: fc.Arbitrary<string>) =>
  fc
    .tuple(
      fc.array(element, { minLength: 1, maxLength: 12 }),
      fc.constantFrom('}', ',"more":[1]}', ',"root":"a::b"}', ''),
    )
    .map(([documents, end]) => Buffer.from(`{"data":[${documents.join(',')}]${end}`));
const mostly = (other: fc.Arbitrary<string>) =>
  fc.oneof({ weight: 9, arbitrary: right }, { weight: 1, arbitrary: other });
const bodies = fc.oneof(oneBody(right), oneBody(mostly(wrong)), oneBody(mostly(broken)));

/** What reading gives, or its error in full. */
async function outcomeOf(read: () => unknown): Promise<unknown> {
  try {
    return { result: await read() };
  } catch (error) {
    const { name, message, code, reason, details } = error as Error & Record<string, unknown>;
    return { name, message, code, reason, details };
  }
}

describe('a body that is read in slices', () => {
  let clock: jest.SpyInstance;
  beforeEach(() => {
    let ms = 0;
    // Each look at the clock finds a slice over.
    clock = jest.spyOn(performance, 'now').mockImplementation(() => (ms += 1));
  });
  afterEach(() => clock.mockRestore());

  test('gives the documents, or the error, that it gives when it is read at once', async () => {
    const reasons = new Set<unknown>();
    await fc.assert(
      fc.asyncProperty(bodies, async (body) => {
        const atOnce = await outcomeOf(() => prepareBody(body, rules));
        expect(await outcomeOf(() => prepareLargeBody(body, rules))).toEqual(atOnce);
        reasons.add((atOnce as { reason?: string }).reason);
      }),
      { numRuns: 400, seed: seedOf('large bodies') },
    );
    expect([...reasons].sort()).toEqual(['MALFORMED_JSON', 'SCHEMA_VIOLATION', 'VALIDATION_FAILED', undefined]);
  });

  test('is for the collection that it is for when it is read at once, wherever the root stands', async () => {
    const data = fc.array(mostly(broken), { maxLength: 5 }).map((documents) => `"data":[${documents.join(',')}]`);
    const root = fc.constantFrom('"root":"a::things"', '"root":"b::things"', '"root":"things"', '"root":["a::things"]');
    const reasons = new Set<unknown>();
    const isFirst = new Set<boolean>();
    await fc.assert(
      fc.asyncProperty(
        fc.shuffledSubarray([data, root], { minLength: 1 }).chain((parts) => fc.tuple(...parts)),
        async (parts) => {
          const body = Buffer.from(`{${parts.join(',')}}`);
          const atOnce = await outcomeOf(() => readStoreRoot(body, 'a'));
          expect(await outcomeOf(() => readLargeStoreRoot(body, 'a'))).toEqual(atOnce);
          const { rest } = (atOnce as { result?: StoreRoot }).result ?? {};
          if (!('reason' in (atOnce as object))) isFirst.add(rest !== undefined);
          const whole = await outcomeOf(() => prepareBody(body, rules));
          if (rest) expect(await outcomeOf(() => prepareBody(body, rules, { rest }))).toEqual(whole);
          const large = await readLargeStoreRoot(body, 'a').catch(() => undefined);
          if (large?.rest) expect(await outcomeOf(() => prepareLargeBody(body, rules, large))).toEqual(whole);
          reasons.add((atOnce as { reason?: string }).reason);
        },
      ),
      { numRuns: 400, seed: seedOf('roots of large bodies') },
    );
    expect([...reasons].sort()).toEqual(['FORBIDDEN', 'MALFORMED_JSON', 'VALIDATION_FAILED', undefined]);
    expect(isFirst.size).toBe(2);
  });

  test('leaves turns of the event loop to others between its documents, of several bodies together one for each', async () => {
    const body = Buffer.from(`{"data":[${Array.from({ length: 50 }, (_, id) => `{"id":${id}}`).join(',')}]}`);
    const turns = countTurns();
    try {
      const prepared = await Promise.all([1, 2, 3].map(() => prepareLargeBody(body, rules)));
      expect(prepared.map(({ length }) => length)).toEqual([50, 50, 50]);
      expect(turns.count()).toBeGreaterThanOrEqual(3 * 50);
    } finally {
      turns.stop();
    }
  });
});

test('a document has the hash and the keys of its text with id and defaults, wherever that stands', () => {
  const schema = parseSchema('{"fields":{"kind":{"type":"string"},"a":{"type":"object","default":{"b":"usual"}}}}');
  const ofSchema = compileRules(fields, indexes, schema);
  const ofNone = compileRules(fields, indexes, undefined);
  const member = (key: string, value: fc.Arbitrary<string>) =>
    fc.option(
      value.map((text) => `"${key}":${text}`),
      { nil: undefined },
    );
  const texts = fc.string({ maxLength: 400 }).map((text) => JSON.stringify(text));
  const document = fc
    .tuple(
      member('id', fc.constantFrom('7', 'null', '"seven"')),
      member('n', fc.constantFrom('1.50', '1e3', 'true', 'null', '[1]')),
      member('email', texts),
      member('a', fc.constantFrom('{"b":1}', '{"b":"\\u0041"}', '{}')),
      member('kind', texts),
      member('deleted', fc.constantFrom('true', 'false')),
    )
    .map((members) => `{${members.filter((text) => text !== undefined).join(' , ')}}`);
  fc.assert(
    fc.property(fc.array(document, { minLength: 1, maxLength: 4 }), fc.constantFrom(ofSchema, ofNone), (all, rules) => {
      for (const prepared of prepareBody(Buffer.from(`{"data":[${all.join(',')}]}`), rules)) {
        const text = prepared.text.subarray(prepared.start, prepared.end);
        const given = rules === ofSchema && !prepared.deleted ? ['a', 'id'] : ['id'];
        expect(Object.keys(JSON.parse(text.toString()) as object)).toEqual(expect.arrayContaining(given));
        expect(JSON.parse(text.toString())).toHaveProperty('id', prepared.id);
        expect(Buffer.from(prepared.sha256, 'latin1')).toEqual(createHash('sha256').update(text).digest());
        const stored = new OrderedKeys(0);
        const values = appendStoredKeys(text, rules, stored);
        const keys = prepared.keys.bytes.subarray(prepared.keysStart, prepared.keysEnd);
        expect(keys.toString('hex')).toBe(stored.bytes.toString('hex', 0, stored.length));
        expect({ uniques: prepared.uniques, searches: prepared.searches }).toEqual(values);
      }
    }),
    { seed: seedOf('prepared documents') },
  );
});
