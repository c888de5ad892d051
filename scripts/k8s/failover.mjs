import { eventually } from './eventually.mjs';

/** What happens to the primary: it is killed, or stays connected and falls silent. */
const harms = ['SIGKILL', 'SIGSTOP', 'SIGKILL'];
const writesWithinMs = 30_000;

/** Promotes the standby thrice, beside clients whose requests may fail meanwhile but are made good on afterwards. */
export async function failOver(proof) {
  const { backends } = proof;
  await backends.addStandby();
  const recoveries = [];
  const { requests, failed } = await proof.withClients({ writers: 8 }, async () => {
    for (const harm of harms) {
      backends.primary.signal(harm);
      await backends.failOver();
      const beganMs = performance.now();
      await eventually('writes go on after the promotion', () => proof.writes(), writesWithinMs);
      recoveries.push(`${((performance.now() - beganMs) / 1000).toFixed(1)} s`);
      await backends.addStandby();
    }
  });
  return `writes went on after ${recoveries.join(', ')}; ${failed} of ${requests} requests failed`;
}
