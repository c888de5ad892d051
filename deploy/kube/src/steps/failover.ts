import type { Proof } from '../proof/proof';
import { waitUntil } from '../waiting';
import type { StepParts } from './step';

/** The harms to the primary: it is killed, or stays connected and falls silent. */
const harms: readonly NodeJS.Signals[] = ['SIGKILL', 'SIGSTOP', 'SIGKILL'];
const writesWithinMs = 30_000;

/**
 * Promotes the standby three times, beside clients whose requests may fail meanwhile. Throws unless writes go on after
 * each promotion.
 */
export async function failOver(proof: Proof, { backends }: Pick<StepParts, 'backends'>): Promise<string> {
  await backends.addStandby();
  const recoveries: string[] = [];
  const { requests, failed } = await proof.withClients({ writers: 8 }, async () => {
    for (const harm of harms) {
      backends.primary.signal(harm);
      await backends.failOver();
      const beganMs = performance.now();
      await waitUntil('writes go on after the promotion', () => proof.writes(), writesWithinMs);
      recoveries.push(`${((performance.now() - beganMs) / 1000).toFixed(1)} s`);
      await backends.addStandby();
    }
  });
  return `writes went on after ${recoveries.join(', ')}; ${failed} of ${requests} requests failed`;
}
