import { invalid, unavailable } from '@granary/shared/errors';
import type { CloseWriteResponse } from '@granary/shared/gen/granary/data/v1/CloseWriteResponse';
import { parseTicket } from '@granary/shared/ids';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { findCommits } from '../chain/commit-log';
import { headToLock } from './head';
import type { Outcomes, PendingWrite } from './write';
import type { PoolContext } from '../postgres/databases';
import type { CloseWriteRequest } from '@granary/shared/gen/granary/data/v1/CloseWriteRequest';

/**
 * Days for which a done write is kept. Payments keeps the hold for a write for 30 days, and then nobody asks any more
 * whether it was done.
 */
const doneDays = 60;
/**
 * Days for which a closed write is kept, longer than it can still arrive. A later request to close it closes it again.
 */
const closedDays = 2;
/** Rows that one statement deletes. */
const forgottenAtOnce = 1_000;

/**
 * Returns the recorded state of a held write: done, for an index that it made, or closed. The commits are not searched.
 */
export async function heldWriteState(db: Queryable, ticketId: string): Promise<'done' | 'closed' | undefined> {
  const heldWrite = await row<{ isDone: boolean }>(
    db,
    sql`select is_done as "isDone" from held_write where ticket_id = ${ticketId}`,
  );
  if (!heldWrite) return undefined;
  return heldWrite.isDone ? 'done' : 'closed';
}

/** Records that a held write that is no commit is done, in its transaction, which has locked the app. */
export async function keepDone(tx: Connection, ticketId: string): Promise<void> {
  await execute(tx, sql`insert into held_write (ticket_id, is_done) values (${ticketId}, true)`);
}

/**
 * The held writes that were closed: refused, because nobody pays for them any more. Definite while the head is locked.
 */
export async function findClosedWrites(tx: Connection, writes: readonly PendingWrite[]): Promise<Outcomes> {
  const held = writes.filter(({ write }) => write.isHeld === true);
  const closed: Outcomes = new Map();
  if (held.length === 0) return closed;
  const closedTickets = await rows<{ ticketId: string }>(
    tx,
    sql`select ticket_id as "ticketId" from held_write
        where ticket_id = any(${held.map(({ write }) => write.ticketId)}) and not is_done`,
  );
  const tickets = new Set(closedTickets.map(({ ticketId }) => ticketId));
  for (const pending of held) if (tickets.has(pending.write.ticketId)) closed.set(pending, writeClosed());
  return closed;
}

export const writeClosed = () => unavailable('The write took too long: it was given up, and is not paid');

/**
 * Whether a held write was committed; if not, it cannot be from now on. Both is decided under the lock that each commit
 * and each change of the catalog of its application takes. Of an application that was deleted no write counts as
 * committed. Throws VALIDATION_FAILED.
 */
export async function closeWrite({ pool }: PoolContext, { ticketId }: CloseWriteRequest): Promise<CloseWriteResponse> {
  const ticket = parseTicket(ticketId);
  if (!ticket || ticket.kind === 'p' || ticket.appNumber > 2n ** 63n - 1n) throw invalid('There is no such ticket');
  const { kind, appNumber } = ticket;
  return retriedTransaction(pool, async (tx) => {
    const [head] = await rows(tx, headToLock(appNumber));
    if (!head) return { committed: false };
    const isDone =
      kind === 'c'
        ? (await findCommits(tx, appNumber, [ticketId])).length > 0
        : (await heldWriteState(tx, ticketId)) === 'done';
    if (!isDone) {
      await execute(
        tx,
        sql`insert into held_write (ticket_id, is_done) values (${ticketId}, false) on conflict do nothing`,
      );
    }
    return { committed: isDone };
  });
}

const ago = (days: number) => sql`now() - ${`${days} days`}::interval`;

/** Deletes what is known of held writes that nobody asks about any more. `stopping` ends it between two statements. */
export async function forgetHeldWrites(pool: Pool, stopping: AbortSignal): Promise<void> {
  let deleted: number;
  do {
    deleted = await execute(
      pool,
      sql`delete from held_write where ticket_id in
            (select ticket_id from held_write
             where (not is_done and at <= ${ago(closedDays)}) or (is_done and at <= ${ago(doneDays)}) limit ${forgottenAtOnce})`,
    );
  } while (deleted === forgottenAtOnce && !stopping.aborted);
}
