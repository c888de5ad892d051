import { CommitUnknownError } from '@granary/shared/postgres/errors';
import { conflicts, type BatchResult, type PendingWrite, type Write } from './write';

/**
 * How long a preloaded bulk waits for its turn. It holds table locks while it waits in this process, which Postgres'
 * deadlock detector cannot see, so it gives up after this long.
 */
const turnTimeoutMs = 1_000;

/**
 * - `queued`: waits for the throttle; nothing has been sent.
 * - `copying`: its documents are being sent by COPY, in a transaction that holds no lock on the head.
 * - `copied`: the transaction waits for the turn of the bulk in the queue.
 * - `committing`: the turn has come; the transaction moves the head and commits. The last state of a committed bulk,
 *   and of one whose outcome is unknown.
 * - `abandoned`: it comes to nothing, or has; its transaction rolls back, and the bulk must be written under the lock.
 */
export type PreloadState = 'queued' | 'copying' | 'copied' | 'committing' | 'abandoned';

const transitions: Readonly<Record<PreloadState, readonly PreloadState[]>> = {
  queued: ['copying', 'abandoned'],
  copying: ['copied', 'abandoned'],
  copied: ['committing', 'abandoned'],
  committing: ['abandoned'],
  abandoned: [],
};

/** Rejects the turn of an abandoned bulk, which rolls its transaction back. */
class PreloadAbandonedError extends Error {}

/** A bulk that is copied before its turn in the queue, while the batches before it commit. */
export class BulkPreload {
  /** Resolves when the bulk is copied or abandoned. */
  readonly settled: Promise<void>;
  /** Resolves when the turn of the bulk has come, rejects when it is abandoned. */
  readonly turn: Promise<void>;
  private current: PreloadState = 'queued';
  private hasBegun = false;
  private readonly result: Promise<BatchResult | undefined>;
  private settle!: () => void;
  private giveTurn!: () => void;
  private refuseTurn!: (error: Error) => void;
  private timer: NodeJS.Timeout | undefined;

  /**
   * `transact` runs the transaction: it calls `beginCopying` and `hasCopied`, then waits for `turn`. It resolves with
   * undefined when nothing was written, and rejects with CommitUnknownError. `ordinal` is reserved for the bulk.
   */
  constructor(
    readonly bulk: PendingWrite,
    readonly ordinal: bigint,
    transact: (preload: BulkPreload) => Promise<BatchResult | undefined>,
  ) {
    this.settled = new Promise((resolve) => (this.settle = resolve));
    this.turn = new Promise((resolve, reject) => {
      this.giveTurn = resolve;
      this.refuseTurn = reject;
    });
    // It may be refused before the transaction waits for it.
    this.turn.catch(() => {});
    this.result = transact(this).then(
      (result) => this.end(result),
      (error: unknown) => this.fail(error),
    );
    // Handled by `commit`.
    this.result.catch(() => {});
  }

  get state(): PreloadState {
    return this.current;
  }

  /** Resolves when its transaction has ended, however. */
  get ended(): Promise<void> {
    const ignore = () => {};
    return this.result.then(ignore, ignore);
  }

  get isSettled(): boolean {
    return this.current !== 'queued' && this.current !== 'copying';
  }

  /** Whether a write must not commit before it. */
  blocks(write: Write): boolean {
    return conflicts(this.bulk.write, write);
  }

  /** False when it was abandoned meanwhile: then nothing must be sent. */
  beginCopying(): boolean {
    if (this.current === 'abandoned') return false;
    this.enter('copying');
    this.hasBegun = true;
    return true;
  }

  /** The documents are there. */
  hasCopied(): void {
    if (this.current === 'abandoned') return;
    this.enter('copied');
    this.timer = setTimeout(() => this.giveUp(), turnTimeoutMs);
    this.settle();
  }

  /**
   * Its turn in the queue has come. Undefined when it was or is abandoned: then nothing was written, and its
   * transaction has ended. Throws CommitUnknownError.
   */
  async commit(): Promise<BatchResult | undefined> {
    if (this.current !== 'abandoned') {
      this.enter('committing');
      clearTimeout(this.timer);
      this.giveTurn();
    } else if (!this.hasBegun) {
      return undefined;
    }
    return this.result;
  }

  /** Gives up a bulk whose turn has not come; resolves when its transaction holds nothing that others may wait for. */
  async abandon(): Promise<void> {
    if (this.current !== 'committing') this.giveUp();
    if (this.hasBegun) await this.ended;
  }

  private giveUp(): void {
    if (this.current === 'abandoned') return;
    this.enter('abandoned');
    clearTimeout(this.timer);
    this.refuseTurn(new PreloadAbandonedError());
    this.settle();
  }

  private end(result: BatchResult | undefined): BatchResult | undefined {
    if (!result) this.giveUp();
    else if (this.current !== 'committing') {
      // A defect, and the ticket must be looked up before the bulk is written again.
      throw new CommitUnknownError(new Error(`a preload committed while ${this.current}`));
    }
    return result;
  }

  /** Any error but that of COMMIT means that nothing was written: under the lock the bulk gets it again, or commits. */
  private fail(error: unknown): undefined {
    if (error instanceof CommitUnknownError) throw error;
    this.giveUp();
  }

  private enter(next: PreloadState): void {
    if (!transitions[this.current].includes(next)) throw new Error(`a preload went from ${this.current} to ${next}`);
    this.current = next;
  }
}
