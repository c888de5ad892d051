import { anyCharacter, charSet, type CharSet } from './char-set';

const categories = new Set(
  'L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs Cc Cf'.split(' '),
);
/** The scripts in general use today (Unicode Standard Annex 31, table 5). */
const scripts = new Set(
  (
    'Arabic Armenian Bengali Bopomofo Common Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul ' +
    'Hebrew Hiragana Inherited Kannada Katakana Khmer Lao Latin Malayalam Myanmar Oriya Sinhala Tamil Telugu Thaana ' +
    'Thai Tibetan'
  ).split(' '),
);

const knownProperties = new Map<string, CharSet>([['Any', anyCharacter]]);

/** Every property that an expression may name. */
export const propertyNames: readonly string[] = ['Any', ...categories, ...scripts];

/** The characters of a general category or a script, undefined for a name that is not supported. */
export function propertySet(name: string): CharSet | undefined {
  const existing = knownProperties.get(name);
  if (existing !== undefined) return existing;
  const isScript = scripts.has(name);
  if (!isScript && !categories.has(name)) return undefined;
  const set = characterRanges(`\\p{${isScript ? 'Script=' : ''}${name}}`);
  knownProperties.set(name, set);
  return set;
}

/** The ranges in which Unicode has characters, but for private use, with the UTF-16 units of each character there. */
const assigned = [
  { first: 1, last: 0xd7ff, units: 1 },
  { first: 0xe000, last: 0xffff, units: 1 },
  { first: 0x10000, last: 0x3ffff, units: 2 },
  { first: 0xe0000, last: 0xe0fff, units: 2 },
];

/**
 * The characters that a class of JavaScript's regular expressions matches. It tries each character, which takes some
 * milliseconds: remember what it finds.
 */
export function characterRanges(javaScriptClass: string): CharSet {
  const pattern = new RegExp(`${javaScriptClass}+`, 'gu');
  const pairs: number[] = [];
  for (const { first, last, units } of assigned) {
    for (const { 0: run, index } of textOf(first, last, units).matchAll(pattern)) {
      const start = first + index / units;
      pairs.push(start, start + run.length / units - 1);
    }
  }
  return charSet(pairs);
}

function textOf(first: number, last: number, units: number): string {
  const text = new Uint16Array((last - first + 1) * units);
  for (let code = first, index = 0; code <= last; code += 1, index += units) {
    if (units === 1) text[index] = code;
    else {
      text[index] = 0xd7c0 + (code >> 10);
      text[index + 1] = 0xdc00 + (code & 0x3ff);
    }
  }
  return Buffer.from(text.buffer).toString('utf16le');
}
