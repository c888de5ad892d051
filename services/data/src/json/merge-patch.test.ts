import fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { size } from '@granary/testing/size';
import { applyMergePatch, parseMergePatch } from './merge-patch';

const merge = (target: string, patch: string): string =>
  applyMergePatch(Buffer.from(target), Buffer.from(patch)).toString();

/** The examples of RFC 7396, appendix A, whose target and patch are objects. */
const examples: ReadonlyArray<readonly [target: string, patch: string, result: string]> = [
  ['{"a":"b"}', '{"a":"c"}', '{"a":"c"}'],
  ['{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'],
  ['{"a":"b"}', '{"a":null}', '{}'],
  ['{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'],
  ['{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'],
  ['{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'],
  ['{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'],
  ['{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'],
  ['{"e":null}', '{"a":1}', '{"e":null,"a":1}'],
  ['{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'],
];

describe('applyMergePatch', () => {
  it.each(examples)('merges %s with %s as RFC 7396 says', (target, patch, result) => {
    expect(merge(target, patch)).toBe(result);
  });

  it('keeps the bytes of members that the patch does not name', () => {
    const target = '{ "n" : 1.50 ,\n"deep":{ "x": 9007199254740993, "y":"\\u00e9"}, "z":[1, 2 ] }';
    expect(merge(target, '{"deep":{"y":1}}')).toBe('{"n" : 1.50,"deep":{"x": 9007199254740993,"y":1},"z":[1, 2 ]}');
  });

  it('finds a member by its decoded key', () => {
    expect(merge('{"\\u0061":1,"b":2}', '{"a":3}')).toBe('{"\\u0061":3,"b":2}');
    expect(merge('{"a":1}', '{"\\u0061":null}')).toBe('{}');
  });

  it('merges objects of many members, whose keys come in whatever order', () => {
    const members = Array.from(
      { length: 200 },
      (_, at) => [`"k${at}${at % 7 === 0 ? '\\u00e9' : ''}"`, String(at)] as const,
    );
    const target = `{${members.map((member) => member.join(':')).join()}}`;
    const changes = members.filter((_, at) => at % 3 === 0).reverse();
    const patch = `{"new":0,${changes.map(([key], at) => `${key}:${at % 2 === 0 ? 'null' : '"x"'}`).join()}}`;
    expect(JSON.parse(merge(target, patch))).toStrictEqual(
      algorithm(JSON.parse(target) as Json, JSON.parse(patch) as Json),
    );
  });

  it.each(['[]', '1', '{"a":1,"a":2}', '{"a":', '{"__proto__":1}', '{} x'])('refuses the patch %s', (patch) => {
    expect(() => merge('{}', patch)).toThrow();
  });

  it('does as the algorithm of the RFC does to generated pairs, untouched members byte for byte', async () => {
    const object = fc.letrec<{ value: Json; object: JsonObject }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 3 },
        fc.constantFrom<Json>(null, true, 1.5, 'é"\\'),
        fc.array(tie('value'), { maxLength: 2 }),
        tie('object'),
      ),
      object: fc.dictionary(fc.constantFrom(...'abcde'), tie('value'), { maxKeys: 4, noNullPrototype: true }),
    })).object;
    const check = (before: JsonObject, change: JsonObject, [colon, comma]: readonly [string, string]) => {
      const members = Object.entries(before).map(([key, value]) => [key, `"${key}"${colon}${JSON.stringify(value)}`]);
      const merged = merge(`{${members.map(([, text]) => text).join(comma)}}`, JSON.stringify(change));
      expect(JSON.parse(merged)).toStrictEqual(algorithm(before, change));
      for (const [key, text] of members) if (!Object.hasOwn(change, key!)) expect(merged).toContain(text);
    };
    const spacing = fc.constantFrom([':', ','] as const, [' : ', ' ,\n'] as const);
    await checkProperty(
      'shared/merge-patch',
      size({ run: 1_000, long: 10_000 }),
      fc.property(object, object, spacing, check),
    );
  });
});

it.each([
  ['a', true],
  ['a.x', true],
  ['b', true],
  ['b.c', true],
  ['b.c.d', true],
  ['b.x', false],
  ['gone.x', true],
  ['list.0', true],
  ['empty', true],
  ['empty.x', false],
  ['é', true],
  ['other', false],
])('a patch names %s: %s', (path, expected) => {
  const patch = Buffer.from('{"a":1,"b":{"c":{"d":2}},"gone":null,"list":[1],"empty":{},"\\u00e9":0}');
  expect(parseMergePatch(patch).names(path.split('.'))).toBe(expected);
});

type Json = null | number | string | boolean | Json[] | JsonObject;
type JsonObject = { [key: string]: Json };

/** RFC 7396, section 2. */
function algorithm(target: Json, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const result = isObject(target) ? { ...target } : {};
  for (const [key, member] of Object.entries(patch)) {
    if (member === null) delete result[key];
    else result[key] = algorithm(result[key] ?? null, member);
  }
  return result;
}

const isObject = (json: Json): json is JsonObject => typeof json === 'object' && json !== null && !Array.isArray(json);
