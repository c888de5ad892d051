/** A generator of whole numbers from 0 up to, without it, `bound`. */
export type Random = (bound: number) => number;

/** Numbers with a seed (mulberry32), so that a failure can be repeated. */
export function seededRandom(seed: number): Random {
  let state = seed;
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * bound);
  };
}
