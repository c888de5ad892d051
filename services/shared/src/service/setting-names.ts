/** A name with up to this share of its characters changed is taken for a misspelling. */
const charactersPerTypo = 4;
const typosMax = 3;

/**
 * The known name that `name` misspells: the nearest one by edit distance, if it is near enough. Undefined for a known name.
 */
export function misspeltName(name: string, known: readonly string[]): string | undefined {
  if (known.includes(name)) return undefined;
  const upper = name.toUpperCase();
  let nearest: string | undefined;
  let least = typosMax + 1;
  for (const candidate of known) {
    const limit = Math.min(typosMax, Math.floor(candidate.length / charactersPerTypo), least - 1);
    if (Math.abs(candidate.length - upper.length) > limit) continue;
    const distance = editDistance(upper, candidate);
    if (distance > limit) continue;
    nearest = candidate;
    least = distance;
  }
  return nearest;
}

/** The Damerau–Levenshtein distance: insertions, deletions, substitutions and transpositions of neighbours. */
export function editDistance(from: string, to: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const cost = from[i - 1] === to[j - 1] ? 0 : 1;
      let distance = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + cost);
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        distance = Math.min(distance, beforeLast[j - 2]! + 1);
      }
      row.push(distance);
    }
    beforeLast = last;
    last = row;
  }
  return last[to.length]!;
}
