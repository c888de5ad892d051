import { seededRandom as seededFractions } from '@granary/testing/random';

/** A generator of whole numbers from 0 up to, without it, `bound`. */
export type Random = (bound: number) => number;

/** Numbers with a seed, so that a failure can be repeated. */
export function seededRandom(seed: number): Random {
  const fraction = seededFractions(seed);
  return (bound) => Math.floor(fraction() * bound);
}
