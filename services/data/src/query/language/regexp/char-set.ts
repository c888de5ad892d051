/** A set of characters: pairs of the first and last code point of each range, ascending, with gaps between them. */
export type CharSet = readonly number[];

export const lastCharacter = 0x10ffff;
const [firstSurrogate, lastSurrogate] = [0xd800, 0xdfff];

/** Every character that a text can hold: neither U+0000 nor surrogates. */
export const anyCharacter: CharSet = [1, firstSurrogate - 1, lastSurrogate + 1, lastCharacter];
export const noCharacter: CharSet = [];

/** The set of some ranges in any order, given as pairs of their first and last code points. */
export function charSet(pairs: readonly number[]): CharSet {
  const ranges: Array<[number, number]> = [];
  for (let index = 0; index < pairs.length; index += 2) ranges.push(...withinText(pairs[index]!, pairs[index + 1]!));
  ranges.sort(([a], [b]) => a - b);
  const set: number[] = [];
  for (const [first, last] of ranges) {
    if (set.length > 0 && first <= set.at(-1)! + 1) set[set.length - 1] = Math.max(set.at(-1)!, last);
    else set.push(first, last);
  }
  return set;
}

export const single = (character: number): CharSet => charSet([character, character]);

export const union = (...sets: readonly CharSet[]): CharSet => charSet(sets.flat());

/** The characters of `anyCharacter` that a set lacks. */
export function negated(set: CharSet): CharSet {
  const gaps: number[] = [];
  let next = 1;
  for (let index = 0; index < set.length; index += 2) {
    if (set[index]! > next) gaps.push(next, set[index]! - 1);
    next = set[index + 1]! + 1;
  }
  if (next <= lastCharacter) gaps.push(next, lastCharacter);
  return charSet(gaps);
}

export const rangeCount = (set: CharSet): number => set.length / 2;

export function hasCharacter(set: CharSet, character: number): boolean {
  for (let index = 0; index < set.length; index += 2) {
    if (character <= set[index + 1]!) return character >= set[index]!;
  }
  return false;
}

/** The only character of a set, undefined when it has none or several. */
export const onlyCharacter = (set: CharSet): number | undefined =>
  set.length === 2 && set[0] === set[1] ? set[0] : undefined;

function* withinText(first: number, last: number): Generator<[number, number]> {
  for (let index = 0; index < anyCharacter.length; index += 2) {
    const [from, to] = [Math.max(first, anyCharacter[index]!), Math.min(last, anyCharacter[index + 1]!)];
    if (from <= to) yield [from, to];
  }
}
