import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { queryUntilAborted, type Statement } from '../../postgres/cancellable';
import type { Multiplexer } from '../../postgres/multiplexer';
import type { Connection, Queryable } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';
import { ActiveApps } from '@granary/shared/concurrency/active-apps';
import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { ServiceError } from '@granary/shared/errors';
import type { PagePlan } from '../plan/page-plan';
import type { PublicLimits } from './public-limits';
import type { SlowQueries } from './slow-queries';
import type { Condition } from '../language/condition';
import { resolveReferences } from './references';
import type { Databases } from '../../postgres/databases';

/** Reads by one index. */
export type IndexReads = Pick<Multiplexer, 'read'> & Partial<Pick<Multiplexer, 'readSharing'>>;

/** The databases that a read uses, with its rights and limits. */
export interface ReadDatabases {
  /** Short pages that one index gives alone. */
  shortPages: IndexReads;
  /** Long pages that one index gives alone. */
  longPages: IndexReads;
  /** The pool for all other statements. */
  pool: Queryable;
  /** Records what the statements of the pool took for a plan, if there were any. */
  record?(plan: PagePlan): void;
  /** Whether the reader may read what is private, encrypted fields too. */
  mayReadPrivate: boolean;
  /** The limits of the scans of the read; undefined for a reader of what is private, who has the limits of the pool. */
  limits?: PublicLimits | undefined;
  /** Looks up what filters name beside fields. */
  resolve(find: Condition): Promise<Condition> | Condition;
}

/** The databases that the reads of all apps share, with their schedulers and limits. */
export interface SharedDatabases extends Databases {
  multiplexer: Multiplexer;
  schedulers: ReadSchedulers;
  slowQueries: SlowQueries;
  /** The limits of the reads of callers without a key. */
  publicLimits: PublicLimits;
}

export interface ReadSchedulers {
  /** Records the reads of every app, scheduled or not. */
  activeApps: ActiveApps;
  longPages: FairScheduler;
  scans: FairScheduler;
  /** Scans by callers without a key, a part of `scans`. */
  anonymousScans: FairScheduler;
}

/** Reads of one app that may wait. */
const queueMax = 1_000;
/** Scans by callers without a key that may wait, of one app: each of them holds a place in the gateway. */
const anonymousQueueMax = 64;
/**
 * While other apps are active, the slot of a long page is unavailable to its app for this many times the duration of
 * the page: the page must still be sent and passed on, and short reads of other apps need a free processor.
 */
const longPageCooldownFactor = 6;
/** A long page takes about as long as this many short reads. */
const longPageWeight = 32;

const tooManyReads = () =>
  new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many reads of this app are waiting');

/**
 * Limits by which long reads of one app never fill the multiplexer or the pool, whose sizes are given. While other apps
 * are active, an app has at most a quarter of the scans, each of which can keep a processor busy. Callers without a key
 * have at most half of the scans, so that the owner of an app does not wait for them.
 */
export function readSchedulers(multiplexerSize: number, poolSize: number): ReadSchedulers {
  const scans = Math.max(1, Math.floor(poolSize / 2));
  const anonymousScans = Math.max(1, Math.floor(scans / 2));
  const activeApps = new ActiveApps();
  const schedulerOf = (concurrency: number, queueMaxPerFlow: number, fairShare: number, cooldownFactor: number) =>
    new FairScheduler({
      concurrency,
      concurrencyPerKey: Math.max(1, concurrency - 1),
      contention: { activeApps, fairShare: Math.max(1, fairShare), cooldownFactor },
      queueMaxPerFlow,
      refusal: tooManyReads,
    });
  return {
    activeApps,
    longPages: schedulerOf(multiplexerSize, queueMax, multiplexerSize - 1, longPageCooldownFactor),
    scans: schedulerOf(scans, queueMax, Math.floor(scans / 4), 0),
    anonymousScans: schedulerOf(anonymousScans, anonymousQueueMax, 1, 0),
  };
}

/** The app that is read, and whether the caller has a key that may read what is private. */
export interface Reader {
  appId: string;
  mayReadPrivate: boolean;
}

/**
 * The databases as one call may use them: long reads are scheduled fairly among the apps, and cancelled when the caller
 * has gone.
 */
export class AppDatabases implements ReadDatabases {
  #scannedMs = 0;

  constructor(
    private readonly shared: SharedDatabases,
    private readonly reader: Reader,
    private readonly signal: CancelSignal,
  ) {
    shared.schedulers.activeApps.see(reader.appId, performance.now());
  }

  resolve(find: Condition): Promise<Condition> | Condition {
    return resolveReferences(this.shared.fast, this.reader.appId, find);
  }

  get mayReadPrivate(): boolean {
    return this.reader.mayReadPrivate;
  }

  get limits(): PublicLimits | undefined {
    return this.reader.mayReadPrivate ? undefined : this.shared.publicLimits;
  }

  get shortPages(): IndexReads {
    return this.shared.multiplexer;
  }

  get longPages(): IndexReads {
    const { multiplexer, schedulers } = this.shared;
    const { signal } = this;
    return {
      read: (text, values, reader) =>
        schedulers.longPages.run(this.reader.appId, () => multiplexer.read(text, values, reader, longPageWeight), {
          signal,
        }),
    };
  }

  get pool(): Queryable {
    const { pool, fast } = this.shared;
    const { limits } = this;
    const query = (statement: Statement) =>
      this.scan(async () => {
        const startedAt = performance.now();
        // The statements of one read share its time.
        const timeoutMs = limits && Math.max(1, limits.timeoutMs - this.#scannedMs);
        try {
          return await queryUntilAborted(pool, fast, this.signal, statement, timeoutMs);
        } finally {
          this.#scannedMs += performance.now() - startedAt;
        }
      });
    return { query } as unknown as Queryable;
  }

  /** Runs several statements of one snapshot, as one scan. */
  snapshot<T>(work: (tx: Connection) => Promise<T>): Promise<T> {
    const { pool } = this.shared;
    const { limits } = this;
    const options = { isolation: 'repeatable read', readOnly: true } as const;
    return this.scan(() =>
      transaction(pool, work, limits ? { ...options, statementTimeoutMs: limits.timeoutMs } : options),
    );
  }

  record(plan: PagePlan): void {
    if (this.#scannedMs > 0) this.shared.slowQueries.record(plan, this.#scannedMs);
  }

  private scan<T>(work: () => Promise<T>): Promise<T> {
    const { schedulers } = this.shared;
    const { appId, mayReadPrivate } = this.reader;
    const { signal } = this;
    if (mayReadPrivate) return schedulers.scans.run(appId, work, { signal });
    // A flow of its own; no app has an id with a question mark.
    const scan = () => schedulers.scans.run(appId, work, { signal, flow: `${appId}?` });
    return schedulers.anonymousScans.run(appId, scan, { signal });
  }
}
