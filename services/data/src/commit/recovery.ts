import { Backoff } from '@granary/shared/concurrency/backoff';
import { ServiceError, unavailable } from '@granary/shared/errors';
import { fromPostgres, isConnectionError, isRetryable, violatedConstraint } from '@granary/shared/postgres/errors';
import { CommitUnknownError } from '@granary/shared/postgres/transaction';
import type { CommitContext } from './commit-context';
import { LockedCommit } from './locked-commit';
import { UniqueViolationError } from './unique-violation';
import { settleBatch, type PendingWrite, type Write } from './write';
import { bumpCatalogRevision } from '../catalog/app-lock';
import type { App } from '../catalog/app';

/** Attempts at a batch that collided with another transaction. */
const attemptsMax = 3;
const backoffOptions = { firstMs: 40, maxMs: 1_000 };
/** How long the tickets of an unknown outcome are looked for before the answer is that it is unknown. */
const unknownTimeoutMs = 30_000;

/**
 * Settles the writes of a batch whose first attempt failed:
 * - it collided with another transaction (lock timeout, deadlock): again, together;
 * - the database is not available: refused;
 * - an error of one of its writes: one by one, so that each fails alone;
 * - COMMIT was sent and no answer came: the tickets are looked up, and what has not committed is written.
 */
export class Recovery {
  constructor(
    private readonly context: CommitContext,
    private readonly app: App,
  ) {}

  /** Settles every write of the batch; never throws. */
  async settle(batch: readonly PendingWrite[], firstError: unknown): Promise<void> {
    try {
      const error = isRetryable(firstError) ? await this.retry(batch, firstError) : firstError;
      if (error instanceof CommitUnknownError) await this.resolveUnknown(batch, error);
      else if (isTemporary(error)) rejectAll(batch, error);
      else if (error !== undefined) await this.separate(batch, error);
    } catch (error) {
      rejectAll(batch, error);
    }
  }

  /** Retries a batch together; gives the error of the last attempt, undefined when it committed. */
  private async retry(batch: readonly PendingWrite[], firstError: unknown): Promise<unknown> {
    const backoff = new Backoff(backoffOptions);
    let error = firstError;
    for (let attempt = 2; attempt <= attemptsMax && isRetryable(error); attempt++) {
      await backoff.wait();
      error = await this.attempt(batch);
    }
    return error;
  }

  /**
   * Settles a batch after an error of one of its writes. Several writes are committed one by one. A single write is
   * rejected, unless it may have collided with its own commit by an earlier request.
   */
  private async separate(batch: readonly PendingWrite[], error: unknown): Promise<void> {
    if (batch.length > 1 || mayHaveCommitted(error)) await this.commitEach(batch);
    else rejectAll(batch, error);
  }

  /**
   * Commits writes one by one, each with a look-up of its ticket. Once the database is not available, the rest is
   * refused.
   */
  private async commitEach(batch: readonly PendingWrite[]): Promise<void> {
    for (const [index, pending] of batch.entries()) {
      const error = await this.attempt([pending], new LockedCommit(this.context, this.app, [pending], true));
      if (error instanceof CommitUnknownError) await this.resolveUnknown([pending], error);
      else if (error !== undefined) rejectAll([pending], error);
      if (isTemporary(error)) return rejectAll(batch.slice(index + 1), error);
    }
  }

  /**
   * COMMIT was sent and no answer came. The revision of the catalog is raised first: Postgres may still have to run the
   * statements of the lost connection, which then find another head. After that the tickets read under the lock are
   * definite.
   */
  private async resolveUnknown(batch: readonly PendingWrite[], unknown: CommitUnknownError): Promise<void> {
    const { context, app } = this;
    context.log.warn(
      { err: unknown, app: app.appId, writes: batch.length },
      'a commit got no answer, looking for its tickets',
    );
    const backoff = new Backoff(backoffOptions);
    const deadlineMs = Date.now() + unknownTimeoutMs;
    let isFenced = false;
    while (Date.now() < deadlineMs) {
      const commit = new LockedCommit(context, app, batch, true);
      let error: unknown;
      try {
        if (!isFenced) await bumpCatalogRevision(context.pool, app.number);
        isFenced = true;
        error = await this.attempt(batch, commit);
        if (error === undefined) return;
      } catch (failure) {
        error = failure;
      }
      // Before the tickets are read an error says nothing about the earlier attempt; a missing app does.
      const isDefinite = commit.hasReadTickets || error instanceof ServiceError;
      if (isDefinite && !(error instanceof CommitUnknownError) && !isTemporary(error)) {
        return batch.length === 1 ? rejectAll(batch, error) : this.commitEach(batch);
      }
      await backoff.wait();
    }
    const failure = unavailable('It is unknown whether the write was committed; retry it', unknown);
    for (const { reject } of batch) reject(failure);
  }

  /** One transaction for a batch: settles its writes, or gives the error that it failed with. */
  private async attempt(
    batch: readonly PendingWrite[],
    commit = new LockedCommit(this.context, this.app, batch),
  ): Promise<unknown> {
    try {
      const result = await commit.run();
      this.context.afterCommit(this.app, result.changed);
      settleBatch(batch, result);
      return undefined;
    } catch (error) {
      return error;
    }
  }
}

function rejectAll(batch: readonly PendingWrite[], error: unknown): void {
  for (const { write, reject } of batch) reject(toCallerError(error, write));
}

/** Not the fault of a write: the database could not be reached, or was busy with others. */
const isTemporary = (error: unknown): boolean => isConnectionError(error) || isRetryable(error);

/** Whether a write that failed so may have been committed before, under its ticket, and collides with itself. */
const mayHaveCommitted = (error: unknown): boolean =>
  error instanceof UniqueViolationError || violatedConstraint(error) === 'commits_ticket_id_key';

function toCallerError(error: unknown, write: Write): unknown {
  if (error instanceof UniqueViolationError) return error.toServiceError(write);
  return error instanceof ServiceError ? error : (fromPostgres(error) ?? error);
}
