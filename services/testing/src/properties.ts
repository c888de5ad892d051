import * as fc from 'fast-check';
import { partsOf } from './seeds';

/**
 * Checks a property of fast-check for `cases` cases, in the parts of a proof that `partsOf` makes. A failure names the seed of
 * its part and the smallest counterexample.
 */
export async function checkProperty<T>(proof: string, cases: number, property: fc.IRawProperty<T>): Promise<void> {
  for (const { seed, cases: numRuns } of partsOf(proof, cases)) await fc.assert(property, { seed, numRuns });
}
