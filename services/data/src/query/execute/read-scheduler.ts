import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { queryUntilAborted, type Statement } from '@granary/shared/postgres/cancellable';
import type { Lane } from '@granary/shared/postgres/multiplexer/multiplexer';
import type { Pool, Queryable } from '@granary/shared/postgres/pool';
import { Presence } from '@granary/shared/concurrency/active-apps';
import { Turns } from '@granary/shared/concurrency/fair-scheduler';

/** Reads by one index. */
export type IndexReads = Pick<Lane, 'read'>;

/** What a read goes over. */
export interface ReadDatabases {
  /** Short pages that one index gives alone. */
  lane: IndexReads;
  /** Long ones. */
  longPages: IndexReads;
  /** Anything else. */
  pool: Queryable;
}

/** What the reads of all apps share. */
export interface SharedDatabases {
  pool: Pool;
  /** For what must not wait: look-ups of keys and handles, and requests to cancel a statement. */
  fast: Pool;
  lane: Lane;
  turns: ReadTurns;
}

export interface ReadTurns {
  /** Sees every app that reads, whether or not it has to take turns. */
  presence: Presence;
  longPages: Turns;
  scans: Turns;
  /** Scans by anybody without a key, a part of `scans`. */
  strangers: Turns;
}

/** Reads of one app that may wait for their turn. */
const waitingMax = 1_000;
/** Scans by anybody without a key that may wait, of one app: each of them holds a place in the gateway. */
const waitingStrangersMax = 64;
/**
 * Beside other apps the place of a long page rests for so many times as long as the page took: it has still to be sent
 * and passed on, and who asks for little is to find a processor that is free.
 */
const longPageRestFactor = 6;
/** A long page takes as long as so many short reads, roughly. */
const longPageWeight = 32;

/**
 * Turns such that neither the lane nor the pool, of so many connections, is ever full of one app's long reads, and that
 * beside other apps one has no more than a quarter of the scans, each of which can keep a processor busy. Anybody without
 * a key has half of the scans at most: the owner of an app does not wait behind them.
 */
export function readTurns(laneSize: number, poolSize: number): ReadTurns {
  const scans = Math.max(1, Math.floor(poolSize / 2));
  const strangers = Math.max(1, Math.floor(scans / 2));
  const presence = new Presence();
  const turnsOf = (limit: number, share: number, restFactor: number) =>
    new Turns({ limit, appLimit: Math.max(1, limit - 1), share: Math.max(1, share), restFactor, waitingMax }, presence);
  return {
    presence,
    longPages: turnsOf(laneSize, laneSize - 1, longPageRestFactor),
    scans: turnsOf(scans, Math.floor(scans / 4), 0),
    strangers: new Turns(
      {
        limit: strangers,
        appLimit: Math.max(1, strangers - 1),
        share: 1,
        restFactor: 0,
        waitingMax: waitingStrangersMax,
      },
      presence,
    ),
  };
}

/** Who reads: with a key that may read what is private, or as anybody. */
export interface Reader {
  appId: string;
  mayReadPrivate: boolean;
}

/**
 * The databases as one call may use them: what may take long takes its turn among the apps, and ends when nobody waits
 * for it any more.
 */
export class AppDatabases implements ReadDatabases {
  constructor(
    private readonly shared: SharedDatabases,
    private readonly reader: Reader,
    private readonly signal: CancelSignal,
  ) {
    shared.turns.presence.see(reader.appId, performance.now());
  }

  get lane(): IndexReads {
    return this.shared.lane;
  }

  get longPages(): IndexReads {
    const { lane, turns } = this.shared;
    return {
      read: (text, values, reader) =>
        turns.longPages.run(this.reader.appId, this.signal, () => lane.read(text, values, reader, longPageWeight)),
    };
  }

  get pool(): Queryable {
    const { pool, fast } = this.shared;
    const query = (statement: Statement) => this.scan(() => queryUntilAborted(pool, fast, this.signal, statement));
    return { query } as unknown as Queryable;
  }

  private scan<T>(work: () => Promise<T>): Promise<T> {
    const { turns } = this.shared;
    const { appId, mayReadPrivate } = this.reader;
    if (mayReadPrivate) return turns.scans.run(appId, this.signal, work);
    // No app has an id with a question mark.
    const scan = () => turns.scans.run(appId, this.signal, work, `${appId}?`);
    return turns.strangers.run(appId, this.signal, scan);
  }
}
