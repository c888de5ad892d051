import { Batcher, type ItemResult } from '@granary/shared/concurrency/batcher';
import { Backoff } from '@granary/shared/concurrency/backoff';
import { isUnavailable, unavailable } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import {
  CommitUnknownError,
  isConnectionError,
  isRetryable,
  isTimeout,
  sqlState,
} from '@granary/shared/postgres/errors';
import type { Pool } from '@granary/shared/postgres/pool';
import { applyCommands } from './apply-commands';
import type { Group, Result } from './commands';

/** Commands in one call to Postgres. */
export const batchMax = 500;
/** Commands that may wait; some seconds' worth. */
const waitingMax = 20_000;
const retryDelays = { firstMs: 20, maxMs: 1_000 };

export interface LedgerBatchesOptions {
  pool: Pool;
  log: Logger;
  /** How long a batch is repeated while its outcome is unknown; 10 s if it is not given. */
  retryMs?: number;
}

/**
 * Applies commands in batches of at most `batchMax`, one at a time: all that arrive in one turn of the event loop, or
 * while a batch is under way, share the next one, and so one lock of each account and one flush of Postgres's log.
 */
export class LedgerBatches {
  private readonly batcher: Batcher<Group, Result[]>;

  constructor(private readonly options: LedgerBatchesOptions) {
    this.batcher = new Batcher({
      run: (groups) => this.run(groups),
      sizeOf: (group) => group.length,
      maxSize: batchMax,
      maxWaiting: waitingMax,
      refusal: () => unavailable('The ledger is busy, try again'),
    });
  }

  /**
   * Applies a group: all of its commands or none, a result for each. Throws UNAVAILABLE when its outcome is unknown, or
   * when too much waits: apply it again with the same ids.
   */
  apply(group: Group): Promise<Result[]> {
    return this.batcher.submit(group);
  }

  /** Resolves when all that was submitted has been applied. */
  idle(): Promise<void> {
    return this.batcher.idle();
  }

  private async run(groups: readonly Group[]): Promise<Array<ItemResult<Result[]>>> {
    try {
      const results = await this.untilDefinite(groups);
      return results.map((value) => ({ value }));
    } catch (error) {
      // When the outcome is unknown, any group may have been applied. Applying them singly would not tell sooner.
      if (groups.length === 1 || isUnavailable(error)) throw error;
      // A command passed our validation, and Postgres rejected it with the whole batch. Applied singly, it fails alone.
      this.options.log.error(
        { err: error, groups: groups.length },
        'a batch of the ledger failed, it is applied singly',
      );
      const singly: Array<ItemResult<Result[]>> = [];
      for (const group of groups)
        singly.push((await this.run([group]).catch((cause: unknown) => [{ error: cause }]))[0]!);
      return singly;
    }
  }

  /** Repeats a batch while its outcome is unknown: with the same ids, nothing is applied twice. */
  private async untilDefinite(groups: readonly Group[]): Promise<Result[][]> {
    const { pool, retryMs = 10_000 } = this.options;
    const backoff = new Backoff(retryDelays);
    const giveUpAt = performance.now() + retryMs;
    for (;;) {
      try {
        return await applyCommands(pool, groups);
      } catch (error) {
        if (!isTransient(error)) throw error;
        if (performance.now() > giveUpAt)
          throw unavailable('The outcome is unknown: repeat it with the same id', error);
        await backoff.wait();
      }
    }
  }
}

const uniqueViolation = '23505';

/** Failures after which the same batch may succeed; after some of them it has. */
function isTransient(error: unknown): boolean {
  return (
    error instanceof CommitUnknownError ||
    isConnectionError(error) ||
    isRetryable(error) ||
    isTimeout(error) ||
    sqlState(error) === uniqueViolation
  );
}
