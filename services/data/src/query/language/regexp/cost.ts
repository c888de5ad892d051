import { hasCharacter, rangeCount, type CharSet } from './char-set';
import type { Node } from './tree';

/**
 * The most that Postgres gets to compile. Of 2,900 random expressions within these limits that were made to be slow,
 * half took less than 1 ms, 99 of 100 less than 3 ms, and the worst 7 ms; the worst that a search by mutation found, 21
 * ms.
 */
export const complexityMax = 5_000;
export const boundaryPairsMax = 8;
/** Ranges of characters in all classes of an expression, at most: six times that of all letters. */
export const rangesMax = 4_000;

/** The properties of an expression that make work for Postgres, which compiles it into a finite automaton. */
export interface Cost {
  /** A measure of the automaton's size before it is simplified; compare it with `complexityMax`. */
  complexity: number;
  /** Pairs of boundaries that may meet with no character between them. */
  boundaryPairs: number;
  ranges: number;
}

/** Measured in bounded time, whatever the expression. */
export function costOf(tree: Node): Cost {
  const { groups, groupsOf } = characterGroups(tree);
  const { positions, transitions, boundaries, boundaryPairs, meetings, ranges } = measure(tree, groupsOf);
  // Postgres turns a boundary into steps for each group of characters, and splits states where boundaries meet others
  // or characters.
  const ofBoundaries = (8 * boundaries + 20 * boundaryPairs) * Math.max(groups, 10) + 2 * meetings * groups;
  // It works through the automaton for each group, and where words have boundaries, on copies of its states.
  const ofGroups = (groups * (positions + transitions) * (hasWordBoundary(tree) ? 2.5 : 1)) / stepsOfComplexity;
  const complexity = Math.max(positions + transitions + ofBoundaries, Math.ceil(ofGroups));
  return { complexity, boundaryPairs, ranges };
}

/** Steps of groups of characters that are as much work as one step of the automaton. */
const stepsOfComplexity = 12;

function hasWordBoundary(node: Node): boolean {
  if (node.kind === 'concat' || node.kind === 'alternate') return node.parts.some(hasWordBoundary);
  if (node.kind === 'repeat') return hasWordBoundary(node.part);
  return node.kind === 'place' && (node.place === 'wordBoundary' || node.place === 'noWordBoundary');
}

interface Measures {
  /** Sets of characters, with those of repetitions as often as they are repeated. */
  positions: number;
  /** Steps from a position to those that may follow it, once for each group of characters that the sets distinguish. */
  transitions: number;
  /** Anchors and boundaries of words, as often as they are repeated. */
  boundaries: number;
  /** Pairs of boundaries that may meet with no character between them. */
  boundaryPairs: number;
  /** Pairs of a boundary and a position right before it, or behind it for each group of its set. */
  meetings: number;
  ranges: number;
  /** Whether it can match without a character. */
  isNullable: boolean;
  /** The positions that may come first, each by the groups of its set, and last. */
  first: number;
  last: number;
  firstBoundaries: number;
  lastBoundaries: number;
}

const nothing: Measures = {
  positions: 0,
  transitions: 0,
  boundaries: 0,
  boundaryPairs: 0,
  meetings: 0,
  ranges: 0,
  isNullable: true,
  first: 0,
  last: 0,
  firstBoundaries: 0,
  lastBoundaries: 0,
};

function measure(node: Node, groups: ReadonlyMap<CharSet, number>): Measures {
  switch (node.kind) {
    case 'never':
    case 'empty':
      return nothing;
    case 'set':
      return {
        ...nothing,
        positions: 1,
        ranges: rangeCount(node.set),
        isNullable: false,
        first: groups.get(node.set)!,
        last: 1,
      };
    case 'place':
      return { ...nothing, boundaries: 1, firstBoundaries: 1, lastBoundaries: 1 };
    case 'concat':
      return node.parts.map((part) => measure(part, groups)).reduce(inSuccession);
    case 'alternate':
      return node.parts.map((part) => measure(part, groups)).reduce(asAlternatives);
    case 'repeat':
      return repeated(measure(node.part, groups), node.min, node.max);
  }
}

const inSuccession = (a: Measures, b: Measures): Measures => ({
  positions: a.positions + b.positions,
  transitions: a.transitions + b.transitions + a.last * b.first,
  boundaries: a.boundaries + b.boundaries,
  boundaryPairs: a.boundaryPairs + b.boundaryPairs + a.lastBoundaries * b.firstBoundaries,
  meetings: a.meetings + b.meetings + a.lastBoundaries * b.first + a.last * b.firstBoundaries,
  ranges: a.ranges + b.ranges,
  isNullable: a.isNullable && b.isNullable,
  first: a.first + (a.isNullable ? b.first : 0),
  last: b.last + (b.isNullable ? a.last : 0),
  firstBoundaries: a.firstBoundaries + (a.isNullable ? b.firstBoundaries : 0),
  lastBoundaries: b.lastBoundaries + (b.isNullable ? a.lastBoundaries : 0),
});

const asAlternatives = (a: Measures, b: Measures): Measures => ({
  positions: a.positions + b.positions,
  transitions: a.transitions + b.transitions,
  boundaries: a.boundaries + b.boundaries,
  boundaryPairs: a.boundaryPairs + b.boundaryPairs,
  meetings: a.meetings + b.meetings,
  ranges: a.ranges + b.ranges,
  isNullable: a.isNullable || b.isNullable,
  first: a.first + b.first,
  last: a.last + b.last,
  firstBoundaries: a.firstBoundaries + b.firstBoundaries,
  lastBoundaries: a.lastBoundaries + b.lastBoundaries,
});

/** Postgres repeats by copies. An optional copy lies around the ones before it: x{0,3} is ((x?x)?x)?. */
function repeated(part: Measures, min: number, max: number | undefined): Measures {
  let copies = nothing;
  for (let copy = 0; copy < (max ?? Math.max(min, 1)); copy += 1) {
    copies = inSuccession({ ...copies, isNullable: copies.isNullable || copy >= min }, part);
  }
  const isNullable = part.isNullable || min === 0;
  // The sets are written once.
  const { ranges } = part;
  if (max !== undefined) return { ...copies, isNullable, ranges };
  return {
    ...copies,
    isNullable,
    ranges,
    transitions: copies.transitions + part.last * part.first,
    boundaryPairs: copies.boundaryPairs + part.lastBoundaries * part.firstBoundaries,
    meetings: copies.meetings + part.lastBoundaries * part.first + part.last * part.firstBoundaries,
  };
}

/**
 * Counts the groups into which all sets of a tree together divide the characters, and how many of them each set has.
 */
function characterGroups(tree: Node): { groups: number; groupsOf: ReadonlyMap<CharSet, number> } {
  const sets = new Map<string, CharSet>();
  const all: CharSet[] = [];
  collectSets(tree, (set) => {
    all.push(set);
    sets.set(set.join(), set);
  });
  const different = [...sets.values()];
  const starts = new Set(different.flatMap((set) => set.map((code, index) => (index % 2 === 0 ? code : code + 1))));
  const groups = new Set<string>();
  for (const start of starts) {
    groups.add(different.map((set) => (hasCharacter(set, start) ? '1' : '0')).join(''));
  }
  const counts = different.map((_, index) => [...groups].filter((group) => group[index] === '1').length);
  const byText = new Map([...sets.keys()].map((text, index) => [text, counts[index]!]));
  return { groups: groups.size, groupsOf: new Map(all.map((set) => [set, byText.get(set.join())!])) };
}

function collectSets(node: Node, collect: (set: CharSet) => void): void {
  if (node.kind === 'set') collect(node.set);
  else if (node.kind === 'concat' || node.kind === 'alternate')
    node.parts.forEach((part) => collectSets(part, collect));
  else if (node.kind === 'repeat') collectSets(node.part, collect);
}
