/** Edits between a name and the one that it may be meant to be, at most. */
const editsMax = 2;

/**
 * The candidate that a name may be meant to be: the nearest one within two edits, in any case of ASCII letters, and the
 * first of several that are as near. Never the name itself, nor one that has no character in common with it; undefined
 * where there is none.
 */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  const foldedName = foldCase(name);
  let nearest: string | undefined;
  let limit = editsMax;
  for (const candidate of candidates) {
    if (candidate === name) continue;
    const distance = editDistance(foldedName, foldCase(candidate), limit);
    if (distance > limit || distance >= Math.min(name.length, candidate.length)) continue;
    nearest = candidate;
    if (distance === 0) break;
    limit = distance - 1;
  }
  return nearest;
}

/** The end of a message about a misspelt name, which continues its sentence; empty where no name is near. */
export const suggestion = (near: string | undefined): string => (near === undefined ? '' : `: did you mean ${near}?`);

const foldCase = (name: string): string => name.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());

/**
 * The Damerau–Levenshtein distance: insertions, deletions, substitutions and transpositions of neighbours. For a
 * distance above `limit` the result is some number above it, because only what can stay within it is computed.
 */
export function editDistance(from: string, to: string, limit: number): number {
  if (Math.abs(from.length - to.length) > limit) return limit + 1;
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = Math.max(1, i - limit); j <= Math.min(to.length, i + limit); j++) {
      const cost = from[i - 1] === to[j - 1] ? 0 : 1;
      let distance = Math.min(distanceAt(last, j) + 1, distanceAt(row, j - 1) + 1, distanceAt(last, j - 1) + cost);
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        distance = Math.min(distance, distanceAt(beforeLast, j - 2) + 1);
      }
      row[j] = distance;
    }
    beforeLast = last;
    last = row;
  }
  return distanceAt(last, to.length);
}

/** The distance at an index of a row; one that the row does not hold is above the limit. */
const distanceAt = (row: readonly number[], index: number): number => row[index] ?? Infinity;
