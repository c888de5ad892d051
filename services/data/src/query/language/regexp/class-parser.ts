import { folded } from './case-folding';
import { charSet, lastCharacter, negated, union, type CharSet } from './char-set';
import { perlClasses, posixClasses } from './named-classes';
import type { Reader } from './reader';
import { propertySet } from './unicode';

const controlEscapes = new Map([
  ['a', 0x07],
  ['f', 0x0c],
  ['n', 0x0a],
  ['r', 0x0d],
  ['t', 0x09],
  ['v', 0x0b],
]);

/** Reads a class in brackets; its `[` has been read. */
export function readBrackets(reader: Reader, ignoresCase: boolean): CharSet {
  const start = reader.at - 1;
  const isNegated = reader.take('^');
  const sets: CharSet[] = [];
  const withCases = (set: CharSet): CharSet => (ignoresCase ? folded(set) : set);
  // Right behind the bracket a `]` is a character of the class.
  for (let isFirst = true; isFirst || reader.peek() !== ']'; isFirst = false) {
    if (reader.isAtEnd) throw reader.error(start, 'the class is not closed by ]');
    const named = readPosixClass(reader, withCases) ?? readClassEscape(reader, ignoresCase);
    sets.push(named ?? withCases(readRange(reader, start)));
  }
  reader.take(']');
  const set = union(...sets);
  return isNegated ? negated(set) : set;
}

/** Reads \d, \p{L} and the like, in brackets or outside; undefined where something else comes. */
export function readClassEscape(reader: Reader, ignoresCase: boolean): CharSet | undefined {
  if (reader.peek() !== '\\') return undefined;
  const letter = reader.peek(1);
  if (letter === 'p' || letter === 'P') return readProperty(reader, ignoresCase);
  const set = letter === undefined ? undefined : perlClasses.get(letter.toLowerCase());
  if (set === undefined) return undefined;
  reader.at += 2;
  const cased = ignoresCase ? folded(set) : set;
  return letter === letter!.toLowerCase() ? cased : negated(cased);
}

function readPosixClass(reader: Reader, withCases: (set: CharSet) => CharSet): CharSet | undefined {
  const start = reader.at;
  if (!reader.take('[:')) return undefined;
  const name = reader.takeThrough(':]');
  if (name === undefined) {
    reader.at = start;
    return undefined;
  }
  const isNegated = name.startsWith('^');
  const set = posixClasses.get(isNegated ? name.slice(1) : name);
  if (set === undefined) throw reader.error(start, 'there is no class of this name');
  return isNegated ? negated(withCases(set)) : withCases(set);
}

function readProperty(reader: Reader, ignoresCase: boolean): CharSet {
  const start = reader.at;
  let isNegated = reader.peek(1) === 'P';
  reader.at += 2;
  const first = reader.next('the name of the property is missing', start);
  const inBraces = first === '{' ? reader.takeThrough('}') : first;
  if (inBraces === undefined) throw reader.error(start, 'the name of the property is not closed by }');
  if (inBraces.startsWith('^')) isNegated = !isNegated;
  const name = inBraces.startsWith('^') ? inBraces.slice(1) : inBraces;
  const set = propertySet(name);
  if (set === undefined) {
    throw reader.error(start, 'the property is not supported; general categories such as Lu and common scripts are');
  }
  const cased = ignoresCase ? folded(set) : set;
  return isNegated ? negated(cased) : cased;
}

function readRange(reader: Reader, bracket: number): CharSet {
  const start = reader.at;
  const first = readClassCharacter(reader, bracket);
  if (reader.peek() !== '-' || reader.peek(1) === ']') return charSet([first, first]);
  reader.at += 1;
  const last = readClassCharacter(reader, bracket);
  if (last < first) throw reader.error(start, 'the range ends before it begins');
  return charSet([first, last]);
}

function readClassCharacter(reader: Reader, bracket: number): number {
  const character = reader.next('the class is not closed by ]', bracket);
  return character === '\\' ? readEscape(reader) : character.codePointAt(0)!;
}

/** Reads the escape of one character; its backslash has been read. */
export function readEscape(reader: Reader): number {
  const start = reader.at - 1;
  const letter = reader.next('the expression ends in a backslash', start);
  const control = controlEscapes.get(letter);
  if (control !== undefined) return control;
  if (letter === 'x') return readHexadecimal(reader, start);
  const isOctal = (digit: string | undefined): boolean => digit !== undefined && digit >= '0' && digit <= '7';
  if (letter === '0' || (isOctal(letter) && isOctal(reader.peek()))) {
    let digits = letter;
    while (digits.length < 3 && isOctal(reader.peek())) digits += reader.next('', start);
    return parseInt(digits, 8);
  }
  if (letter >= '1' && letter <= '9') throw reader.error(start, 'back-references are not supported');
  if (/^[\0-\x7f]$/.test(letter) && !/^[A-Za-z]$/.test(letter)) return letter.charCodeAt(0);
  throw reader.error(start, 'there is no such escape');
}

function readHexadecimal(reader: Reader, start: number): number {
  const message = 'must be \\x with two hexadecimal digits, or with some in braces';
  const first = reader.next(message, start);
  const digits = first === '{' ? reader.takeThrough('}') : first + reader.next(message, start);
  if (digits === undefined || !/^[\da-fA-F]+$/.test(digits)) throw reader.error(start, message);
  const code = parseInt(digits, 16);
  if (code > lastCharacter) throw reader.error(start, 'is beyond the last character of Unicode');
  return code;
}
