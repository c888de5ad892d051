import type { Written } from './batch-writer';
import type { Waiting, Write } from './write-queue';

/**
 * How long a bulk that has been copied waits for its turn. What is under way meanwhile may wait for somebody who waits
 * for the table that the bulk was copied into; that cycle Postgres does not see.
 */
const turnTimeoutMs = 1_000;

/** What the writer of a bulk tells of its copying, and what it then waits for. */
export interface Copying {
  /** False when it is not wanted any more. */
  begins: () => boolean;
  copied: () => void;
  /** Rejected when its turn will not come. */
  turn: Promise<void>;
}

class NoTurn extends Error {}

/** Whether two writes have a document in common, or may have. */
export function concern(one: Write, other: Write): boolean {
  if (one.collection !== other.collection) return false;
  const [few, many] = [one.ids(), other.ids()].sort((a, b) => (a?.set.size ?? 0) - (b?.set.size ?? 0));
  if (!few || !many) return true;
  for (const id of few.set) if (many.set.has(id)) return true;
  return false;
}

/** A bulk that is copied ahead of its turn, in a transaction that waits for it. */
export class Ahead {
  /** Whether it has been copied, or nothing came of it. */
  isSettled = false;
  /** Whether nothing came of it before its turn. */
  isLost = false;
  readonly settled: Promise<void>;
  private readonly written: Promise<Written | undefined>;
  private readonly ended: Promise<void>;
  private hasBegun = false;
  private hasTurn = false;
  private isRefused = false;
  private giveTurn!: () => void;
  private rejectTurn!: (error: Error) => void;
  private timer: NodeJS.Timeout | undefined;

  /** `lost` hears when nothing comes of it before its turn. */
  constructor(
    readonly bulk: Waiting,
    readonly ordinal: bigint,
    write: (copying: Copying) => Promise<Written | undefined>,
    lost: () => void,
  ) {
    const turn = new Promise<void>((resolve, reject) => {
      this.giveTurn = resolve;
      this.rejectTurn = reject;
    });
    // It may be refused before anybody waits for it.
    turn.catch(() => {});
    let settle!: () => void;
    this.settled = new Promise((resolve) => (settle = resolve));
    const copied = () => {
      this.isSettled = true;
      this.timer = setTimeout(() => this.refuse(), turnTimeoutMs);
      settle();
    };
    const begins = () => (this.hasBegun = !this.isRefused);
    this.written = write({ begins, copied, turn });
    const ended = () => {
      clearTimeout(this.timer);
      this.isSettled = true;
      settle();
      if (this.hasTurn) return;
      this.isLost = true;
      lost();
    };
    this.ended = this.written.then(ended, ended);
  }

  /** Whether a write must wait for it. */
  holds(write: Write): boolean {
    return concern(this.bulk.write, write);
  }

  /** Its turn has come. Undefined when nothing came of it; then nothing was done. Throws CommitUnknownError. */
  commit(): Promise<Written | undefined> {
    this.hasTurn = !this.isLost;
    this.giveTurn();
    return this.written;
  }

  /** Ends it without effect; resolves when nothing of it is in anybody's way. */
  async abandon(): Promise<void> {
    this.refuse();
    if (this.hasBegun) await this.ended;
  }

  private refuse(): void {
    this.isRefused = true;
    this.rejectTurn(new NoTurn());
  }
}
