import { ServiceError } from '@granary/shared/errors';
import type { Step } from '@granary/shared/postgres/pipeline';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { pipelinedTransaction } from '@granary/shared/postgres/transaction';
import type { ReadAccess } from '../catalog/collection';
import { findCommits } from '../chain/commit-log';
import { headToLock } from './head';
import type { Committed, Outcomes, PendingWrite } from './write';
import type { App } from '../catalog/app';
import { findAnswer, keepingAnswer } from '@granary/shared/idempotency/answers';
import type { IdempotencyKey } from '@granary/shared/idempotency/key';

/** The writes whose tickets have committed. Definite only while the head is locked. */
export async function findCommittedTickets(
  tx: Connection,
  app: App,
  writes: readonly PendingWrite[],
): Promise<Outcomes> {
  const tickets = writes.map(({ write }) => write.ticketId);
  const commits = new Map((await findCommits(tx, app.number, tickets)).map((commit) => [commit.ticketId, commit]));
  const outcomes: Outcomes = new Map();
  for (const pending of writes) {
    const committed = commits.get(pending.write.ticketId);
    if (committed) outcomes.set(pending, committed);
  }
  return outcomes;
}

/**
 * The writes whose Idempotency-Key was used before: the commit that was answered then, or the refusal where the request
 * was another. While the head is locked nobody else keeps an answer for this app.
 */
export async function findKeptAnswers(tx: Connection, app: App, writes: readonly PendingWrite[]): Promise<Outcomes> {
  const outcomes: Outcomes = new Map();
  for (const pending of writes) {
    const key = pending.write.idempotency;
    if (!key) continue;
    try {
      const answer = await findAnswer(tx, key);
      if (answer === undefined) continue;
      if (answer === separateAnswer) throw new KeptSeparatelyError();
      const { ticketId, ...kept } = readKept(answer);
      const [committed] = await findCommits(tx, app.number, [ticketId]);
      if (committed) outcomes.set(pending, { ...committed, ...kept });
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      outcomes.set(pending, error);
    }
  }
  return outcomes;
}

/** The statements that keep the answers of committed writes for their Idempotency-Keys. */
export function keepAnswers(writes: readonly PendingWrite[], outcomes: Outcomes): Step[] {
  const steps: Step[] = [];
  for (const pending of writes) {
    const { idempotency } = pending.write;
    const outcome = outcomes.get(pending);
    if (idempotency && outcome && !(outcome instanceof ServiceError)) {
      steps.push(keepingAnswer(idempotency, keptAnswer(outcome, pending.write.keptNote?.())));
    }
  }
  return steps;
}

/** The ticket, then after spaces the access of a collection that was created and the note of the write. */
const keptAnswer = ({ ticketId, createdWithAccess }: Committed, note: string | undefined): string =>
  [ticketId, createdWithAccess ?? '', note ?? ''].join(' ').trimEnd();

function readKept(answer: string): Pick<Committed, 'ticketId' | 'createdWithAccess' | 'keptNote'> {
  const [ticketId, createdWithAccess, ...words] = answer.split(' ') as [
    string,
    ReadAccess | '' | undefined,
    ...string[],
  ];
  return {
    ticketId,
    ...(createdWithAccess && { createdWithAccess }),
    ...(words.length > 0 && { keptNote: words.join(' ') }),
  };
}

/** Kept where the parts of a request are kept by themselves. */
const separateAnswer = 'separate';

/** The parts of a request with this Idempotency-Key are kept by themselves. */
export class KeptSeparatelyError extends ServiceError {
  constructor() {
    super('ABORTED', 'REQUEST_IN_PROGRESS', 'The parts of the request have answers of their own');
  }
}

/**
 * Records that the parts of a request are kept by themselves from now on, unless an answer is kept for the whole of it.
 * Under the lock of the head, so that a write under the same key either sees this or has kept its answer before. Throws
 * IDEMPOTENCY_KEY_REUSED, TOO_MANY_REQUESTS.
 */
export function keepSeparately(pool: Pool, app: App, key: IdempotencyKey): Promise<void> {
  return pipelinedTransaction(pool, [headToLock(app.number)], async (tx) => {
    const kept = await findAnswer(tx, key);
    return { result: undefined, last: kept === undefined ? [keepingAnswer(key, separateAnswer)] : [] };
  });
}
