import { ServiceError } from '@granary/shared/errors';
import type { Step } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import type { Outcomes, PendingWrite } from './write';

/** The writes whose companion changes cannot be made any more, with their refusals. The head must be locked. */
export async function findRefusedCompanions(tx: Connection, writes: readonly PendingWrite[]): Promise<Outcomes> {
  const outcomes: Outcomes = new Map();
  for (const pending of writes) {
    const refusal = await pending.write.companion?.refusal(tx);
    if (refusal) outcomes.set(pending, refusal);
  }
  return outcomes;
}

/** The statements of the companion changes of the writes that are to be committed. */
export function companionSteps(writes: readonly PendingWrite[], outcomes: Outcomes): Step[] {
  return writes.flatMap((pending) => {
    const outcome = outcomes.get(pending);
    return outcome && !(outcome instanceof ServiceError) ? [...(pending.write.companion?.steps(outcome) ?? [])] : [];
  });
}
