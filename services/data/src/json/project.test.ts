import fc from 'fast-check';
import { checkProperty } from '@granary/testing/properties';
import { JsonError } from '@granary/shared/json/error';
import { compileProjection, project } from './project';
import { readJson } from '@granary/shared/json/value';

function select(json: unknown, text: string): string {
  return project(text, compileProjection(readJson(Buffer.from(JSON.stringify(json)), { maxDepth: 100 })));
}

function refusal(selected: unknown): JsonError {
  try {
    select(selected, record);
  } catch (error) {
    if (error instanceof JsonError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

const record =
  '{"id": "1", "price":1.50 ,"a":{"b" : 1e2,"c":{"d":[1, 2],"e":null}},"tags":["x","y"],"a.b":0,"\\u006b":true}';

const examples: [unknown, string][] = [
  [{}, record],
  [null, record],
  [[], record],
  ['', record],
  [{ price: true, id: true }, '{"id":"1","price":1.50}'],
  ['price, id', '{"id":"1","price":1.50}'],
  [['a.c.d', 'missing', 'a.b'], '{"a":{"b":1e2,"c":{"d":[1, 2]}}}'],
  [{ 'a.c.d': true, a: { b: true } }, '{"a":{"b":1e2,"c":{"d":[1, 2]}}}'],
  [{ a: {} }, '{"a":{"b" : 1e2,"c":{"d":[1, 2],"e":null}}}'],
  [['a', 'a.b'], '{"a":{"b" : 1e2,"c":{"d":[1, 2],"e":null}}}'],
  [{ a: false, tags: false, 'missing.x': false }, '{"id":"1","price":1.50,"a.b":0,"\\u006b":true}'],
  [
    { a: { b: false, c: { d: false } }, id: false, tags: false },
    '{"price":1.50,"a":{"c":{"e":null}},"a.b":0,"\\u006b":true}',
  ],
  [{ id: true, a: { c: false } }, '{"id":"1","a":{"b":1e2}}'],
  [{ id: false, price: false, tags: false, a: { b: true } }, '{"a":{"b":1e2},"a.b":0,"\\u006b":true}'],
  [['k'], '{"\\u006b":true}'],
  [['tags.1', 'a.c.d.0'], '{"a":{"c":{"d":[1]}},"tags":[null,"y"]}'],
  [['tags.0', 'tags.1', 'tags.7', 'a.c.d.1.x'], '{"tags":["x","y"]}'],
  [{ a: false, price: false, 'tags.0': false }, '{"id":"1","tags":["y"],"a.b":0,"\\u006b":true}'],
  [['id.x', 'a.x', 'tags.x', 'tags.7', 'toString'], '{}'],
];

test.each(examples)('select %j', (selected, expected) => {
  expect(select(selected, record)).toBe(expected);
  expect(select(selected, expected === record ? record : `\n${record} `)).toBe(expected);
});

test('bytes give bytes', () => {
  expect(project(Buffer.from('{"a":"é","b":1}'), compileProjection(['a']))).toEqual(Buffer.from('{"a":"é"}'));
});

test('a select that contradicts itself or is none is refused with the field', () => {
  const wrong: [unknown, string | undefined][] = [
    [{ a: true, b: false }, undefined],
    [{ x: { a: true, b: false } }, 'x'],
    [{ 'x.a': true, 'x.b': false }, 'x'],
    [{ x: { a: true }, y: { b: false } }, undefined],
    [{ a: true, 'a.b': false }, 'a'],
    [{ a: { b: true }, 'a.b': false }, 'a.b'],
    [{ a: 1 }, 'a'],
    [{ a: { b: 'x' } }, 'a.b'],
    [{ a: [] }, 'a'],
    [['a', 1], undefined],
    [['a..b'], 'a.'],
    ['a,,b', undefined],
    [['tags.-1'], 'tags.-1'],
    [5, undefined],
    [true, undefined],
  ];
  for (const [selected, path] of wrong) {
    expect({ selected, ...refusal(selected) }).toMatchObject({ selected, reason: 'INVALID_SELECT', path });
  }
  expect(refusal([Array(65).fill('a').join('.')]).reason).toBe('INVALID_SELECT');
});

type Tree = Map<string, boolean | Tree>;

const key = fc.constantFrom('a', 'b', 'k', 'id', '0', '1', 'é', 'toString');
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.oneof(fc.constant(null), fc.boolean(), fc.integer(), fc.string()),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(key, tie('value'), { maxKeys: 6 }),
  ),
}));
/** Trees whose leaves are all `keep`, so that no level is mixed. */
const treeOf = (keep: boolean) =>
  fc.letrec<{ tree: Tree }>((tie) => ({
    tree: fc
      .array(fc.tuple(key, fc.oneof({ maxDepth: 3 }, fc.constant(keep), tie('tree'))), { minLength: 1, maxLength: 4 })
      .map((fields) => new Map(fields)),
  })).tree;
const tree = fc.boolean().chain((keep) => fc.tuple(fc.constant(keep), treeOf(keep)));

/** What is left of a parsed value; undefined where nothing is. */
function keepNamed(from: unknown, fields: Tree): unknown {
  if (typeof from !== 'object' || from === null) return undefined;
  if (Array.isArray(from)) {
    const parts = from.map((element, at) => keepNamed({ [at]: element as unknown }, fields)) as Array<
      Record<string, unknown> | undefined
    >;
    const length = parts.findLastIndex((part) => part !== undefined) + 1;
    return length === 0 ? undefined : parts.slice(0, length).map((part, at) => part?.[at] ?? null);
  }
  const kept: [string, unknown][] = [];
  for (const [name, member] of Object.entries(from)) {
    const field = fields.get(name);
    if (field === undefined) continue;
    const part: unknown = field instanceof Map ? keepNamed(member, field) : member;
    if (part !== undefined) kept.push([name, part]);
  }
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

function dropNamed(from: unknown, fields: Tree): unknown {
  if (typeof from !== 'object' || from === null) return from;
  const kept = Object.entries(from)
    .filter(([name]) => fields.get(name) !== false)
    .map(([name, member]): [string, unknown] => {
      const field = fields.get(name);
      return [name, field instanceof Map ? dropNamed(member, field) : member];
    });
  return Array.isArray(from) ? kept.map(([, member]) => member) : Object.fromEntries(kept);
}

function toObject(fields: Tree): unknown {
  return Object.fromEntries([...fields].map(([name, field]) => [name, field instanceof Map ? toObject(field) : field]));
}

function toPaths(fields: Tree): string[] {
  return [...fields].flatMap(([name, field]) =>
    field instanceof Map ? toPaths(field).map((path) => `${name}.${path}`) : [name],
  );
}

test('projections of generated texts are what a parsed reference keeps, in every form of select', async () => {
  const text = fc
    .tuple(fc.dictionary(key, value), fc.constantFrom('', '\t'), fc.boolean())
    .map(([sample, indent, escaped]) => {
      const json = JSON.stringify(sample, undefined, indent);
      return escaped ? json.replaceAll('k', '\\u006b') : json;
    });
  await checkProperty(
    'shared/project',
    1000,
    fc.property(text, tree, (sample, [keep, fields]) => {
      const reference: unknown = JSON.parse(sample);
      const expected: unknown = keep ? (keepNamed(reference, fields) ?? {}) : dropNamed(reference, fields);
      const forms: unknown[] = [toObject(fields), Object.fromEntries(toPaths(fields).map((path) => [path, keep]))];
      if (keep) forms.push(toPaths(fields), toPaths(fields).join(','));
      for (const form of forms) {
        const projected = JSON.parse(select(form, sample)) as unknown;
        expect(projected).toEqual(expected);
        expect(JSON.stringify(projected)).toBe(JSON.stringify(expected));
      }
    }),
  );
});
