import fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { compileWatch, documentSizeMaxBytes, readDocument, scalarAt, spliceText, textAt } from './document';
import type { ScannedDocument } from './document';
import { JsonError } from '@granary/shared/json/error';
import { JsonReader } from '@granary/shared/json/reader';
import { JsonNumber } from '@granary/shared/json/value';

const nothing = compileWatch([]);

/** Reads a text that is one document and nothing else. */
function scan(text: string, paths: string[][] = []): { bytes: Buffer; document: ScannedDocument } {
  const bytes = Buffer.from(text);
  const reader = new JsonReader(bytes, { maxDepth: 0 });
  const document = readDocument(reader, compileWatch(paths));
  reader.end();
  return { bytes, document };
}

function errorOf(action: () => unknown): JsonError | undefined {
  try {
    action();
  } catch (error) {
    if (error instanceof JsonError) return error;
    throw error;
  }
  return undefined;
}

function reasonOf(text: string): string {
  return errorOf(() => scan(text))?.reason ?? 'accepted';
}

test('an id is a string of 1 to 256 characters, or a number that stands for its text', () => {
  const idOf = (json: string) => scan(`{"a":1,"id": ${json} }`).document;
  expect(idOf('"x"')).toMatchObject({ id: 'x', idType: 'string' });
  expect(idOf('"\\u0069\\n😀"')).toMatchObject({ id: 'i\n😀', idType: 'string' });
  expect(idOf('1.50')).toMatchObject({ id: '1.50', idType: 'number' });
  expect(idOf('null')).toMatchObject({ id: null, idType: 'null' });
  expect(scan('{"a":{"id":"inner"}}').document).toMatchObject({ id: null, idType: 'missing', idExtent: undefined });
  expect(scan('{"\\u0069d":"x"}').document).toMatchObject({ id: 'x' });
  expect(idOf(`"${'😀'.repeat(256)}"`).id).toBe('😀'.repeat(256));
  const wrong = ['""', `"${'😀'.repeat(257)}"`, `"${'x'.repeat(257)}"`, `"${'x'.repeat(600)}"`, 'true', '[]', '{}'];
  expect(wrong.map((json) => reasonOf(`{"id":${json}}`))).toEqual(wrong.map(() => 'INVALID_ID'));
});

test('a document is deleted when its own field says literally true', () => {
  const texts = ['{"deleted":true}', '{"d\\u0065leted": true}', '{"a":1,"deleted":\ttrue}'];
  const others = [
    '{"deleted":false}',
    '{"deleted":"true"}',
    '{"deleted":1}',
    '{"a":{"deleted":true}}',
    '{"deleted":[true]}',
  ];
  expect([...texts, ...others].filter((text) => scan(text).document.deleted)).toEqual(texts);
});

test('only an object is a document', () => {
  const texts = ['[]', '1', '"a"', 'null', 'true', '[{}]'];
  expect(texts.map(reasonOf)).toEqual(texts.map(() => 'NOT_AN_OBJECT'));
});

test('depth counts from the object of the document, size in bytes of its text', () => {
  const nested = (levels: number) => '{"a":'.repeat(levels) + '1' + '}'.repeat(levels);
  expect(reasonOf(nested(64))).toBe('accepted');
  expect(reasonOf(nested(65))).toBe('TOO_DEEP');
  const sized = (bytes: number) => `{"a":"${'é'.repeat((bytes - 8) / 2)}"}`;
  expect(Buffer.byteLength(sized(documentSizeMaxBytes))).toBe(documentSizeMaxBytes);
  expect(reasonOf(`  ${sized(documentSizeMaxBytes)}  `)).toBe('accepted');
  expect(reasonOf(sized(documentSizeMaxBytes + 2))).toBe('TOO_LARGE');

  const body = (document: string) => new JsonReader(Buffer.from(`{"data":[${document}],"tail":[[]]}`), { maxDepth: 2 });
  const read = (reader: JsonReader) => {
    reader.enterObject();
    reader.nextMember();
    reader.enterArray();
    while (reader.nextElement()) readDocument(reader, nothing);
    while (reader.nextMember()) reader.skipValue();
  };
  expect(errorOf(() => read(body(nested(65))))).toMatchObject({
    reason: 'TOO_DEEP',
    path: expect.stringMatching(/^data\[0\]\.a/) as string,
  });
  // Behind the documents the limit of the caller is in force again.
  expect(errorOf(() => read(body(nested(64))))).toMatchObject({ reason: 'TOO_DEEP', path: 'tail[0]' });
});

test('watched paths are captured through objects and by the index of arrays, and missing where they lead nowhere', () => {
  const text = '{"a" : {"b":[10,{"c":"x\\ty"}],"0":"zero"},"a.b":1,"t":true,"n":null,"e":[ ],"x":-1.0e2,"a2":{"b":1}}';
  const expected: [string[], unknown][] = [
    [['a', 'b', '0'], new JsonNumber('10')],
    [['a', 'b', '1', 'c'], 'x\ty'],
    [['a', '0'], 'zero'],
    [['a', 'b', '2'], undefined],
    [['a', 'b', '01'], undefined],
    [['a', 'b', '-1'], undefined],
    [['a', 'b', 'length'], undefined],
    [['t'], true],
    [['n'], null],
    [['x'], new JsonNumber('-1.0e2')],
    [['x', 'y'], undefined],
    [['toString'], undefined],
    [['a', 'b', '0'], new JsonNumber('10')],
  ];
  const paths = expected.map(([path]) => path);
  const { bytes, document } = scan(text, [...paths, ['a', 'b'], ['e']]);
  expect(document.captures.slice(0, paths.length).map((capture) => scalarAt(bytes, capture))).toEqual(
    expected.map(([, value]) => value),
  );
  const [list, empty] = document.captures.slice(paths.length);
  expect([list?.type, textAt(bytes, list!), scalarAt(bytes, list)]).toEqual(['array', '[10,{"c":"x\\ty"}]', undefined]);
  expect([empty?.type, textAt(bytes, empty!)]).toEqual(['array', '[ ]']);
});

test('what is added stands at one place and leaves every other byte as it came', () => {
  const spliced = (text: string, added: Parameters<typeof spliceText>[2]) => {
    const { bytes, document } = scan(text);
    return spliceText(bytes, document, added).toString();
  };
  const defaults = [{ key: 'n"', jsonText: '1.0' }];
  expect(spliced(' { "a": 1.0 } ', { id: 'i"d', defaults })).toBe('{"id":"i\\"d","n\\"":1.0, "a": 1.0 }');
  expect(spliced('{ }', { id: 'x', defaults: [] })).toBe('{"id":"x" }');
  expect(spliced('{"a":1, "id" : null ,"b":2}', { id: 'x', defaults })).toBe('{"n\\"":1.0,"a":1, "id" : "x" ,"b":2}');
  expect(spliced('{"id":1.50}', { defaults: [] })).toBe('{"id":"1.50"}');
  expect(spliced('{"id":"\\u0061"}', { id: 'a', defaults: [] })).toBe('{"id":"\\u0061"}');
  expect(spliced('{"id":"a"}', { id: 'b', defaults: [] })).toBe('{"id":"b"}');
  expect(spliced('{"a":1}', { defaults: [] })).toBe('{"a":1}');
  expect(spliced('{"id":"a"}', { defaults: [{ key: 'id', jsonText: '1' }] })).toBe('{"id":"a"}');
});

const key = fc.oneof(
  fc.constantFrom('id', 'deleted', 'a', 'k', 'kz', '0', '1', 'é', '😀', 'toString', 'a.b', ''),
  fc.string({ maxLength: 3 }).filter((text) => text !== '__proto__'),
);
const scalar = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.integer(),
  fc.double({ noNaN: true, min: -1e300, max: 1e300 }).map((x) => (Math.abs(x) < 1e-300 ? 0 : x)),
  fc.string({ unit: 'binary', maxLength: 8 }).map((text) => text.replaceAll('\0', '')),
);
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    scalar,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(key, tie('value'), { maxKeys: 5 }),
  ),
}));
const id = fc.oneof(fc.string({ minLength: 1, maxLength: 9 }), fc.integer(), fc.constant(null), fc.constant(undefined));

/** Texts of objects, some with white space, some with escapes in keys and strings. */
const text = fc
  .tuple(fc.dictionary(key, value, { maxKeys: 6 }), id, fc.constantFrom('', ' ', '\t\n'), fc.boolean())
  .map(([members, ownId, indent, escaped]) => {
    const { id: _, ...others } = members;
    const json = JSON.stringify(ownId === undefined ? others : { ...others, id: ownId }, undefined, indent);
    // Neither letter stands in a literal, a number or an escape.
    return escaped ? json.replaceAll('k', '\\u006b').replaceAll('z', '\\u007A') : json;
  });

function follow(root: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((at, step) => {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, step) || (Array.isArray(at) && step === 'length')) {
      return undefined;
    }
    return (at as Record<string, unknown>)[step];
  }, root);
}

test('captures of generated texts are what a parsed reference holds at the same paths', async () => {
  const path = fc.array(key, { minLength: 1, maxLength: 4 });
  await checkProperty(
    'shared/document captures',
    500,
    fc.property(text, fc.array(path, { maxLength: 8 }), (sample, paths) => {
      const reference: unknown = JSON.parse(sample);
      const { bytes, document } = scan(sample, paths);
      const captured = document.captures.map((capture) => capture && (JSON.parse(textAt(bytes, capture)) as unknown));
      expect(captured).toEqual(paths.map((steps) => follow(reference, steps)));
    }),
  );
});

test('1,000 generated texts with an id and defaults spliced in parse equal to a parsed reference', async () => {
  const field = fc.tuple(fc.constantFrom('k', 'a', 'é', 'status', 'a"b'), value);
  await checkProperty(
    'shared/document texts',
    1000,
    fc.property(
      text,
      fc.option(fc.string({ minLength: 1, maxLength: 9 })),
      fc.array(field, { maxLength: 3 }),
      (sample, newId, fields) => {
        const original = JSON.parse(sample) as Record<string, unknown>;
        const missing = new Map(fields.filter(([name]) => !Object.hasOwn(original, name)));
        const { bytes, document } = scan(`\n ${sample} `);
        const spliced = spliceText(bytes, document, {
          ...(newId === null ? {} : { id: newId }),
          defaults: [...missing].map(([name, member]) => ({ key: name, jsonText: JSON.stringify(member) })),
        });
        const expected: Record<string, unknown> = {
          ...original,
          ...(JSON.parse(JSON.stringify(Object.fromEntries(missing))) as object),
        };
        if (newId !== null) expected['id'] = newId;
        else if (typeof original['id'] === 'number') expected['id'] = String(original['id']);
        expect(JSON.parse(spliced.toString())).toEqual(expected);
        // The result is a document again, and there is nothing left to add.
        const again = scan(spliced.toString());
        expect(spliceText(again.bytes, again.document, { defaults: [] })).toEqual(spliced);
      },
    ),
  );
});
