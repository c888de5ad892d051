import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { countTurns } from '@granary/shared/testing/event-loop';
import type { CollectionRef, IndexDescriptor } from '../catalog/collection';
import { keysOfStored, prepareBody, prepareLargeBody, readLargeStoreRoot, readStoreRoot, rulesOf } from './parser';
import { keyAt, keyText } from '../values/key';
import { parseSchema } from '../catalog/schema';

const index = (number: bigint, fieldName: string, unique = false): IndexDescriptor => ({
  ...{ number, part: 0, name: fieldName, fieldName, path: fieldName.split('.') },
  ...{ type: 'any', unique, uniqueParts: 1, status: 'ready' },
});

const handle: CollectionRef = {
  ...{ appNumber: 1n, appId: 'app', number: 1n, name: 'things', namespace: null, readAccess: 'public' },
  ...{ retentionDays: null, definitions: [], indexes: [index(1n, 'n'), index(2n, 'email', true), index(3n, 'a.b')] },
  schema: parseSchema('{"fields":{"n":{"type":"number"},"kind":{"type":"string","default":"usual"}}}'),
  ...{ rowCount: 0n, deletedCount: 0n, versionCount: 0n, sizeBytes: 0n, revision: 1n },
};
const rules = rulesOf(handle);

/** Texts of documents that are right, that break a rule of their collection, and that are none. An id is always given. */
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
      { numRuns: 400 },
    );
    expect([...reasons].sort()).toEqual(['MALFORMED_JSON', 'SCHEMA_VIOLATION', 'VALIDATION_FAILED', undefined]);
  });

  test('is for the collection that it is for when it is read at once, wherever the root stands', async () => {
    const data = fc.array(mostly(broken), { maxLength: 5 }).map((documents) => `"data":[${documents.join(',')}]`);
    const root = fc.constantFrom('"root":"a::things"', '"root":"b::things"', '"root":"things"', '"root":["a::things"]');
    const reasons = new Set<unknown>();
    await fc.assert(
      fc.asyncProperty(
        fc.shuffledSubarray([data, root], { minLength: 1 }).chain((parts) => fc.tuple(...parts)),
        async (parts) => {
          const body = Buffer.from(`{${parts.join(',')}}`);
          const atOnce = await outcomeOf(() => readStoreRoot(body, 'a'));
          expect(await outcomeOf(() => readLargeStoreRoot(body, 'a'))).toEqual(atOnce);
          reasons.add((atOnce as { reason?: string }).reason);
        },
      ),
      { numRuns: 400 },
    );
    expect([...reasons].sort()).toEqual(['FORBIDDEN', 'MALFORMED_JSON', 'VALIDATION_FAILED', undefined]);
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
  const indexes = [index(1n, 'n'), index(2n, 'email', true), index(3n, 'a.b'), index(4n, 'kind'), index(5n, 'id')];
  const ofSchema = rulesOf({ ...handle, schema, indexes });
  const ofNone = rulesOf({ ...handle, schema: undefined, indexes });
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
        const stored = keysOfStored(text, rules);
        expect(indexes.map((_, at) => keyText(prepared.source, keyAt(prepared.keys, at)))).toEqual(
          stored.keys.map((key) => keyText(text, key)),
        );
        expect(indexes.map((_, at) => prepared.uniques?.[at] ?? null)).toEqual(stored.uniques);
      }
    }),
  );
});
