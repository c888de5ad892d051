import type { Random } from './random';
import { addresses } from './network-reference';

// Around 256 bytes strings are cut in keys, by characters of one to four bytes.
const head = 'x'.repeat(250);
export const strings = [
  '',
  'a',
  'A',
  'b',
  'ab',
  'Éa',
  'é',
  '10',
  'true',
  'null',
  '\\',
  '"',
  "'; drop",
  '😀',
  '\ue000',
  '\ud7ffx',
  '\ud7ff',
  '\u{10ffff}',
  'a\u{10ffff}',
  'a\u{10ffff}b',
  'a\nb',
  // What looks like a member in the text of a document.
  '"e":2.5}',
  'x":"e',
  '\\"e',
  'e',
  ...[
    '',
    'a',
    'ab',
    'abcdef',
    'abcdeg',
    'abcdéx',
    'abcdéy',
    'abcd€',
    'abc😀',
    'abcdefg',
    'abcdefh',
    'abcdefgz',
    '😀😀',
  ].map((end) => head + end),
];
export const expressions = [
  '',
  '^a',
  '^ab',
  '^x',
  'a$',
  '^a$',
  'b',
  '^',
  '\\d',
  '^k1',
  '(?i)é',
  '/éA/i',
  '/^A/i',
  '/a/',
  '[^a]$',
  '(?s)^.$',
  'a.b',
  '(?s)a.b',
  '(?m)^b$',
  '\\bk',
  '^(?:a|true)',
  `^${head.slice(0, 40)}`,
  `x{250}abcd`,
  `^${'x{50}'.repeat(5)}abcd`,
  '^2024-',
  '😀',
  '^\\p{L}+$',
  '[^[:ascii:]]',
  '$a',
  '^\\Q"',
  "^'; drop$",
  '^null$',
  '^\\\\',
];
export const dates = [
  '2024-01-01T00:00:00Z',
  '2024-01-01T01:00:00+01:00',
  '2023-12-31T23:59:59.999999Z',
  '2024-02-30T00:00:00Z',
  '1969-12-31t23:59:59.5z',
  '2024-01-01',
  'soon',
  '2024-01-01T00:00:00.1234567Z',
  '2024-06-01 12:00:00-15:30',
  '2024-01-01T00:00:00.1234569Z',
  '2024-01-01T23:59:00.123456+23:59',
  '2024-01-01T00:00:60Z',
];
export const numbers = [0, 1, -1, 2.5, 100, 10, 0.1, 1704067200, 1e20, -1e-7];
/** Texts with words, in a field that has a full-text index, and searches in them. */
export const sentences = [
  'The cat sat on the mat',
  'cats and dogs',
  'A dog-cat e-mail',
  'running, ran, runs',
  'über café',
  '',
  'the',
  'well-known: state_of/the#art',
  'C++ & C#',
  'mail@example.org',
  '<b>bold</b> cat',
  "the cat's dog",
  '10 cats',
];
export const searches = [
  'cat',
  'cats dogs',
  '"cat dog"',
  'cat or dog',
  '-cat',
  'dog -cat',
  'run',
  'e-mail',
  'the',
  '',
  'state',
  '"the cat"',
  'ÜBER',
  'cafe',
  'c++',
  'art or -bold',
  '"dog cat" or mat',
  '10',
  "'; drop",
  '\\',
  '"',
  'bold | cat & !dog',
  'cat:*',
];

/** The paths of the documents; `d` is a date field, and `s` has a full-text index. */
export const paths = ['a', 'b', 'n.x', 'n.0', 'n.x.0', 'n.01', 'n.x.y', 'd', 'id', 'gone', 'e'];
export const dateFields: ReadonlySet<string> = new Set(['d']);

export interface Values {
  random: Random;
  pick: <T>(choices: readonly T[]) => T;
  scalar: () => unknown;
  /** Any JSON value but an object that is deep. */
  value: () => unknown;
  document: (at: number) => Record<string, unknown>;
  documents: (count: number) => Array<Record<string, unknown>>;
}

/** Documents whose fields hold values of every type, many of them equal or almost equal. */
export function documentValues(random: Random): Values {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const scalar = (): unknown =>
    pick([pick(strings), pick(strings), pick(addresses), pick(numbers), pick(numbers), true, false]);
  const value = (depth = 0): unknown => {
    const kind = random(depth > 1 ? 8 : 12);
    if (kind < 7) return scalar();
    if (kind === 7) return null;
    if (kind < 10) return Array.from({ length: random(4) }, () => value(depth + 1));
    return Object.fromEntries(Array.from({ length: random(3) }, () => [pick(['x', 'y', '0', '01']), value(depth + 1)]));
  };
  const document = (at: number): Record<string, unknown> => {
    const made: Record<string, unknown> = { id: `${pick(['k', 'K', 'é'])}${at}` };
    if (random(8) > 0) made['a'] = random(3) === 0 ? value() : scalar();
    // Keys that other fields have too, with other values.
    if (random(8) > 0) made['b'] = random(4) > 0 ? value() : { e: pick(numbers), x: scalar() };
    if (random(6) > 0)
      made['n'] = random(3) === 0 ? value() : { x: value(), '01': 1, ...(random(2) ? { 0: 'zero' } : {}) };
    if (random(6) > 0) made['d'] = random(4) > 0 ? pick(dates) : scalar();
    if (random(2) > 0) made['e'] = pick(numbers);
    if (random(4) > 0) made['s'] = random(4) > 0 ? pick(sentences) : pick(sentenceLists);
    return made;
  };
  const documents = (count: number) => Array.from({ length: count }, (_, at) => document(at));
  return { random, pick, scalar, value: () => value(), document, documents };
}

/** What the words of are those of all strings in it, and what has none. */
export const sentenceLists: readonly unknown[] = [['cat', 1, 'dog'], ['the', ['cat']], [], 10, null, { x: 'cat' }];
