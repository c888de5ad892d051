import { RE2JS } from 're2js';
import { charSet, hasCharacter, type CharSet } from './char-set';
import { folded } from './case-folding';
import { RegexpSyntaxError } from './reader';
import { parseRegexp, RegexpLimitError } from './regexp';
import { propertySet, propertyNames } from './unicode';

/** The characters that both know: Node.js and RE2's port may come with different versions of Unicode. */
const assigned = Array.from({ length: 0x30000 }, (_, code) => code).filter(
  (code) => code > 0 && !/[\p{Cn}\p{Cs}\p{Co}]/u.test(String.fromCodePoint(code)),
);
const unknownToRe2 = RE2JS.compile('^\\p{Cn}$');

const textOf = (codes: readonly number[]): string => codes.map((code) => String.fromCodePoint(code)).join('');
const found = (expression: string, text: string): string[] => {
  const matcher = RE2JS.compile(expression).matcher(text);
  const characters: string[] = [];
  while (matcher.find()) characters.push(matcher.group()!);
  return characters;
};
const within = (set: CharSet, codes: readonly number[]): string[] =>
  codes.filter((code) => hasCharacter(set, code)).map((code) => String.fromCodePoint(code));

test('a character ignores case with the same characters as in RE2', () => {
  const cased = assigned.filter((code) => /[\p{CWCM}\p{CWCF}]/u.test(String.fromCodePoint(code)));
  const known = cased.filter((code) => !unknownToRe2.matcher(String.fromCodePoint(code)).find());
  const text = textOf(known);
  expect(known.length).toBeGreaterThan(2_500);
  for (const code of known) {
    const expected = found(`(?i)\\x{${code.toString(16)}}`, text);
    expect({ code, equal: within(folded(charSet([code, code])), known) }).toEqual({ code, equal: expected });
  }
});

test('a property has the same characters as in RE2', () => {
  const known = assigned.filter((code) => !unknownToRe2.matcher(String.fromCodePoint(code)).find());
  // Every seventh: all of them take RE2's port a minute.
  const some = known.filter((code, at) => code < 0x3000 || at % 7 === 0);
  const text = textOf(some);
  for (const name of propertyNames) {
    const expected = found(`\\p{${name}}+`, text).join('');
    expect({ name, characters: within(propertySet(name)!, some).join('') === expected }).toEqual({
      name,
      characters: true,
    });
  }
});

test.each([
  ['a(b', 2, 'the group is not closed by )'],
  ['ab)', 3, 'the ) has no ('],
  ['a**', 3, 'a repetition cannot be repeated without a group'],
  ['😀*+', 3, 'a repetition cannot be repeated without a group'],
  ['*a', 1, 'there is nothing to repeat'],
  ['a{1001}', 2, 'a repetition may count to 1000'],
  ['(a{40}){30}', 8, 'nested repetitions may count to 1000 together'],
  ['a{3,2}', 2, 'the repetition ends before it begins'],
  ['x(a)\\1', 5, 'back-references are not supported'],
  ['(?<n>a)\\k<n>', 8, 'there is no such escape'],
  ['a(?=b)', 2, 'look-ahead and look-behind are not supported'],
  ['a(?!b)', 2, 'look-ahead and look-behind are not supported'],
  ['(?<=b)a', 1, 'look-ahead and look-behind are not supported'],
  ['(?<!b)a', 1, 'look-ahead and look-behind are not supported'],
  ['(?>a)', 1, 'there is no such group; RE2 has (…), (?:…), (?<name>…) and the flags i, m, s, U'],
  ['(?<n>a)(?<n>b)', 8, 'two groups have the same name'],
  ['x[a', 2, 'the class is not closed by ]'],
  ['[b-a]', 2, 'the range ends before it begins'],
  ['[[:letters:]]', 2, 'there is no class of this name'],
  ['\\p{Klingon}', 1, 'the property is not supported; general categories such as Lu and common scripts are'],
  ['a\\', 2, 'the expression ends in a backslash'],
  ['\\x{110000}', 1, 'is beyond the last character of Unicode'],
  ['/a(b/i', 3, 'the group is not closed by )'],
])('%s is refused at character %i: %s', (expression, position, reason) => {
  expect(() => parseRegexp(expression)).toThrow(new RegexpSyntaxError(position, reason));
});

/** Forty characters, each of them a group of its own. */
const distinct = Array.from({ length: 40 }, (_, at) => String.fromCharCode(0x4e3c + at)).join('');

test.each([
  ['200 characters', 'a'.repeat(201)],
  ['200 characters between slashes', `/${'a'.repeat(201)}/i`],
  ['complexity: optional groups in optional groups', '((a?b?c?d?e?f?g?h?){0,60})'],
  ['complexity: counts in counts', '(((a{0,10}){0,10}){0,10})'],
  ['complexity: many optional parts', `^${'a?.?'.repeat(49)}$`],
  ['complexity: repeated boundaries', '(?:\\ba?){200}'],
  ['pairs of boundaries', '(?:\\b|a)+(?:\\b|a)+(?:\\b|a)+(?:\\b|a)+(?:\\b|a)+'],
  ['ranges', '\\pL'.repeat(7)],
  ['complexity: a boundary before many parts', `${distinct}\\B(((一|.|(丁b丂七丄){0,30})){0,5})?`],
  ['complexity: boundaries in loops', '((((((a)+||(|b*)|a?|)+|b*)?|c?(\\b\\b|\\B|d|e*\\b)|f*|).)*){2,9}'],
  ['complexity: many groups of characters', `${distinct}((.)?(((一?丁b.).?)?){0,30})?`],
])('an expression beyond the limit is refused: %s', (_, expression) => {
  expect(() => parseRegexp(expression)).toThrow(RegexpLimitError);
});

test.each([
  ['200 characters', 'é'.repeat(200)],
  ['200 characters between slashes', `/${'a'.repeat(200)}/i`],
  ['a thousand letters', '[a-z]{1000}'],
  ['up to 200 of any character between words', 'error.{0,200}failed'],
  ['words in a row', '\\bone\\b\\W*\\btwo\\b\\W*\\bthree\\b\\W*\\bfour\\b'],
  ['words beside each other', ['one', 'two', 'three', 'four', 'five', 'six'].map((word) => `\\b${word}\\b`).join('|')],
  ['an address of e-mail', '(?i)^[a-z0-9._%+-]+@(?:[a-z0-9-]{1,63}\\.){1,8}[a-z]{2,63}$'],
  ['a date', '^\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])$'],
  ['a UUID', '(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'],
  ['an IPv4 address', '^(?:(?:25[0-5]|2[0-4]\\d|1?\\d?\\d)(?:\\.|$)){4}$'],
  ['words of any language', '^[\\p{L}\\p{M}\\p{N} _-]{1,64}$'],
  ['words', '(?i)\\b(?:alpha|bravo|charlie|delta|echo|foxtrot|golf|hotel|india|juliett|kilo|lima|mike|november)\\b'],
  ['words in a loop', '(?i)(?:\\b(?:red|green|blue|yellow|black|white|orange|purple)\\b\\W*)+'],
  ['the number of an account', '(?i)\\b[A-Z]{2}\\d{2}(?: ?[A-Z0-9]{4}){2,7} ?[A-Z0-9]{1,4}\\b'],
  ['a line of a log', '(?m)^(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) /\\S* HTTP/\\d\\.\\d$'],
  ['an amount', '\\$\\s?\\d{1,3}(?:,\\d{3})*(?:\\.\\d\\d)?\\b'],
])('an expression of everyday use is within the limits: %s', (_, expression) => {
  expect(parseRegexp(expression).tree.kind).not.toBe('never');
});

test.each([
  ['^abc', 'abc'],
  ['^abc.*', 'abc'],
  ['\\Aab?', 'a'],
  ['^\\Qa.b\\E', 'a.b'],
  ['/^é😀/', 'é😀'],
  ['^a|b', ''],
  ['(?i)^a', ''],
  ['(?i)^1a', '1'],
  ['(?m)^a', ''],
  ['abc', ''],
])('%s forces texts to begin with "%s"', (expression, prefix) => {
  expect(parseRegexp(expression).prefix).toBe(prefix);
});
