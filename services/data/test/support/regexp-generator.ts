import type { Random } from './random';

const atoms = [
  'a',
  'b',
  'c',
  'A',
  'k',
  'K',
  '\u212a',
  's',
  'ſ',
  'é',
  'É',
  'ß',
  'İ',
  'ı',
  'σ',
  'ς',
  'Σ',
  '😀',
  '_',
  '-',
  ' ',
  '',
  '.',
  '\\d',
  '\\w',
  '\\s',
  '\\D',
  '\\W',
  '\\S',
  '\\.',
  '\\n',
  '\\t',
  '\\/',
  '/',
  '\n',
  ']',
  '}',
  '{',
  '{,3}',
  'x{',
  '[ab]',
  '[^ab]',
  '[a-c]',
  '[^\\n]',
  '[\\d_-]',
  '[^\\W_]',
  '[]a]',
  '[^]a]',
  '[a\\-z]',
  '[+--]',
  '[\\x{1F600}-\\x{1F64F}]',
  '[[:alpha:]]',
  '[[:^alpha:]x]',
  '[^[:space:]]',
  '[[:word:][:punct:]]',
  '[^\\x00-\\x{10FFFF}]',
  '\\x00',
  '\\x{D800}',
  '\\x41',
  '\\x{1F600}',
  '\\101',
  '\\Qa.b\\E',
  '\\Q*\\E',
  '\\Q\\E',
  '(?i)',
  '(?s)',
  '(?m)',
  '(?-i)',
  '(?U)',
  '^',
  '$',
  '\\b',
  '\\B',
  '\\A',
  '\\z',
  '^',
  '$',
  '\\b',
  '\\B',
  '\\p{L}',
  '\\p{Lu}',
  '\\PL',
  '\\pN',
  '\\p{Greek}',
  '[\\p{Nd}a]',
  '[^\\p{L}]',
  '\\p{^Lu}',
  '\\P{^Ll}',
];
const groups = ['(', '(?:', '(?i:', '(?s:', '(?m:', '(?-i:', '(?i-s:', '(?ms:', '(?U:'];
const repetitions = ['*', '+', '?', '*?', '+?', '??', '{2}', '{0,2}', '{1,}', '{2,3}?', '{0}', '{3,}', '{0,0}', '{1}'];

/** Expressions of RE2's syntax, most of them valid, by a grammar; a quantifier may also lie where there is none. */
export function expressionGenerator(random: Random): () => string {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  const expression = (depth: number): string => {
    switch (random(depth > 3 ? 3 : 10)) {
      case 0:
      case 1:
      case 2:
        return pick(atoms);
      case 3:
      case 4:
      case 5:
        return Array.from({ length: 1 + random(4) }, () => expression(depth + 1)).join('');
      case 6:
        return `${random(9) === 0 ? `(?<n${random(99)}>` : pick(groups)}${expression(depth + 1)})`;
      case 7:
        return `(?:${expression(depth + 1)}|${expression(depth + 1)})`;
      case 8:
        return expression(depth + 1) + pick(repetitions);
      default:
        return `(?:${expression(depth + 1)})${pick(repetitions)}`;
    }
  };
  return () => expression(0);
}

const pieces = [
  'a',
  'b',
  'c',
  'A',
  'K',
  'k',
  's',
  'S',
  'ſ',
  '\u212a',
  'é',
  'É',
  '\n',
  '\n',
  ' ',
  '_',
  '-',
  '1',
  '9',
  '.',
  '😀',
  'ß',
  'ẞ',
  'İ',
  'ı',
  'i',
  'I',
  'σ',
  'ς',
  'Σ',
  '*',
  '{',
  '}',
  ']',
  '\t',
  '\r',
  '/',
  'x',
  '\u0080',
  '\u{10ffff}',
  'a.b',
  'ab',
  'aa',
];

/** Texts in which those expressions may match. */
export function textGenerator(random: Random): () => string {
  return () => Array.from({ length: random(9) }, () => pieces[random(pieces.length)]!).join('');
}
