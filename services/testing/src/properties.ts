import * as fc from 'fast-check';
import { partsOf, seedOf } from './seeds';

/**
 * Checks a property of fast-check for `cases` cases, in the parts of a proof that `partsOf` makes. A failure names the
 * seed of its part and the smallest counterexample.
 */
export async function checkProperty<T>(proof: string, cases: number, property: fc.IRawProperty<T>): Promise<void> {
  for (const { seed, cases: numRuns } of partsOf(proof, cases)) await fc.assert(property, { seed, numRuns });
}

const casesAtOnce = 25;

/**
 * Goes on to check a property until enough of what it generates has come about, for `casesMax` cases at most: so few
 * cases as `checkProperty` takes in a run may lack what is rare.
 */
export async function checkUntil<T>(
  proof: string,
  casesMax: number,
  property: fc.IRawProperty<T>,
  isEnough: () => boolean,
): Promise<void> {
  for (let cases = 0; cases < casesMax && !isEnough(); cases += casesAtOnce) {
    await fc.assert(property, { seed: seedOf(proof) + 1 + cases, numRuns: casesAtOnce });
  }
}
