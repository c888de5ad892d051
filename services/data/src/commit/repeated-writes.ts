import { ServiceError } from '@granary/shared/errors';
import type { Step } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import type { ReadAccess } from '../catalog/collection';
import { findCommits } from './commit-log';
import type { Committed, Outcomes, PendingWrite } from './write';
import type { App } from '../catalog/app';
import { findAnswer, keepingAnswer } from '../catalog/idempotency';

/** The writes whose tickets have committed. Definite only while the head is locked. */
export async function findCommittedTickets(
  tx: Connection,
  app: App,
  writes: readonly PendingWrite[],
): Promise<Outcomes> {
  const tickets = writes.map(({ write }) => write.ticketId);
  const commits = new Map((await findCommits(tx, app.number, tickets)).map((commit) => [commit.ticketId, commit]));
  const found: Outcomes = new Map();
  for (const pending of writes) {
    const committed = commits.get(pending.write.ticketId);
    if (committed) found.set(pending, committed);
  }
  return found;
}

/**
 * The writes whose Idempotency-Key was used before: the commit that was answered then, or the refusal where the request
 * was another. While the head is locked nobody else keeps an answer for this app.
 */
export async function findKeptAnswers(tx: Connection, app: App, writes: readonly PendingWrite[]): Promise<Outcomes> {
  const found: Outcomes = new Map();
  for (const pending of writes) {
    const key = pending.write.idempotency;
    if (!key) continue;
    try {
      const answer = await findAnswer(tx, key);
      if (answer === undefined) continue;
      const [ticketId, createdWithAccess] = answer.split(' ') as [string, ReadAccess | undefined];
      const [committed] = await findCommits(tx, app.number, [ticketId]);
      if (committed) found.set(pending, createdWithAccess ? { ...committed, createdWithAccess } : committed);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      found.set(pending, error);
    }
  }
  return found;
}

/** The statements that keep the answers of committed writes for their Idempotency-Keys. */
export function keepAnswers(writes: readonly PendingWrite[], outcomes: Outcomes): Step[] {
  const steps: Step[] = [];
  for (const pending of writes) {
    const { idempotency } = pending.write;
    const outcome = outcomes.get(pending);
    if (idempotency && outcome && !(outcome instanceof ServiceError)) {
      steps.push(keepingAnswer(idempotency, keptAnswer(outcome)));
    }
  }
  return steps;
}

const keptAnswer = ({ ticketId, createdWithAccess }: Committed): string =>
  createdWithAccess ? `${ticketId} ${createdWithAccess}` : ticketId;
