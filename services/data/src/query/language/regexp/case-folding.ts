import { charSet, onlyCharacter, union, type CharSet } from './char-set';
import { characterRanges } from './unicode';

/** Each character that has another case, once. */
let casedText: string | undefined;
const foldedCharacters = new Map<number, CharSet>();

/**
 * A set with all characters that equal one of its own by Unicode's simple case folding, as RE2 defines `(?i)`: k has K
 * and U+212A (Kelvin), s has S and U+017F, while İ and ı equal no other character.
 */
export function folded(set: CharSet): CharSet {
  casedText ??= textOf(characterRanges('[\\p{Changes_When_Casefolded}\\p{Changes_When_Casemapped}]'));
  const character = onlyCharacter(set);
  if (character === undefined) return union(set, equalIn(casedText, set));
  const existing = foldedCharacters.get(character);
  if (existing !== undefined) return existing;
  const equal = union(set, equalIn(casedText, set));
  // The map gets at most one entry for each character that has a case.
  if (equal.length > set.length || equal[0] !== equal[1]) foldedCharacters.set(character, equal);
  return equal;
}

function equalIn(text: string, set: CharSet): CharSet {
  if (set.length === 0) return set;
  // JavaScript's flags i and u together compare by simple case folding.
  const matches = text.match(new RegExp(`[${set.map(rangeEnd).join('')}]`, 'giu')) ?? [];
  return charSet(matches.map((character) => character.codePointAt(0)!).flatMap((code) => [code, code]));
}

/** The first or the last character of a range, as a class of JavaScript writes it. */
const rangeEnd = (code: number, at: number): string => `${at % 2 === 0 ? '' : '-'}\\u{${code.toString(16)}}`;

function textOf(set: CharSet): string {
  let text = '';
  for (let index = 0; index < set.length; index += 2) {
    for (let code = set[index]!; code <= set[index + 1]!; code += 1) text += String.fromCodePoint(code);
  }
  return text;
}
