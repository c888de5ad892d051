import type { Written } from './batch-writer';
import type { Waiting, Write } from './write-queue';

/**
 * How long a bulk that has been copied waits for its turn. What is under way meanwhile may wait for somebody who waits
 * for the table that the bulk was copied into; that cycle Postgres does not see.
 */
const turnTimeoutMs = 1_000;

/** What the transaction of a bulk tells when it has copied its documents, and what it then waits for. */
export interface Copying {
  copied: () => void;
  /** Rejected when its turn will not come. */
  turn: Promise<void>;
}

class NoTurn extends Error {}

/** Whether a write has a document in common with those of a collection, or may have. */
export const concerns = (write: Write, collection: string, ids: ReadonlySet<string>): boolean =>
  write.collection === collection && (write.ids()?.some((id) => ids.has(id)) ?? true);

/** A bulk that is copied ahead of its turn, in a transaction that waits for it. */
export class Ahead {
  /** Whether it has been copied, or nothing came of it. */
  isSettled = false;
  /** Whether nothing came of it before its turn. */
  isLost = false;
  readonly settled: Promise<void>;
  private readonly written: Promise<Written | undefined>;
  private hasTurn = false;
  private giveTurn!: () => void;
  private refuseTurn!: (error: Error) => void;
  private timer: NodeJS.Timeout | undefined;

  /** `lost` hears when nothing comes of it before its turn. */
  constructor(
    readonly bulk: Waiting,
    private readonly ids: ReadonlySet<string>,
    readonly ordinal: bigint,
    write: (copying: Copying) => Promise<Written | undefined>,
    lost: () => void,
  ) {
    const turn = new Promise<void>((resolve, reject) => {
      this.giveTurn = resolve;
      this.refuseTurn = reject;
    });
    // It may be refused before anybody waits for it.
    turn.catch(() => {});
    let settle!: () => void;
    this.settled = new Promise((resolve) => (settle = resolve));
    const copied = () => {
      this.isSettled = true;
      this.timer = setTimeout(() => this.refuseTurn(new NoTurn()), turnTimeoutMs);
      settle();
    };
    this.written = write({ copied, turn });
    const ended = () => {
      clearTimeout(this.timer);
      this.isSettled = true;
      settle();
      if (this.hasTurn) return;
      this.isLost = true;
      lost();
    };
    this.written.then(ended, ended);
  }

  /** Whether a write must wait for it. */
  holds(write: Write): boolean {
    return concerns(write, this.bulk.write.collection, this.ids);
  }

  /** Its turn has come. Undefined when nothing came of it; then nothing was done. Throws CommitUnknownError. */
  commit(): Promise<Written | undefined> {
    this.hasTurn = !this.isLost;
    this.giveTurn();
    return this.written;
  }

  /** Ends it without effect. */
  async abandon(): Promise<void> {
    this.refuseTurn(new NoTurn());
    await this.written;
  }
}
