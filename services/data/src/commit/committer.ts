import type { Logger } from '@granary/shared/logger';
import { ServiceError, unavailable } from '@granary/shared/errors';
import type { StorageMonitor } from '@granary/shared/health/storage-monitor';
import { fromPostgres, isConnectionError, isRetryable, violatedConstraint } from '@granary/shared/postgres/errors';
import type { Pool } from '@granary/shared/postgres/pool';
import { CommitUnknownError } from '@granary/shared/postgres/transaction';
import { Ahead, concern, type Copying } from './bulk-preload';
import type { App, Placed } from './batch';
import { BatchWriter, type Search, type Written } from './batch-writer';
import type { ReadAccess } from '../catalog/collection';
import { waitingBytes } from './metrics';
import type { Committed } from './commit-log';
import type { CopyTurns } from './bulk-throttle';
import type { CatalogCache } from '../catalog/cache';
import { uniqueViolation, UniqueViolationError } from './unique-violation';
import { isBulk, WriteQueue, type Waiting, type Write } from './write-queue';

/** Bytes of writes that may wait, of all apps of this copy together. */
const allWaitingBytesMax = 256 * 1024 * 1024;
/** Attempts at a batch that collided with something as a whole. */
const attemptsMax = 3;
/** How long an unknown outcome is looked for before the caller is told that it is unknown. */
const unknownForMs = 30_000;

/** Bulks of one app that are copied at a time, ahead of their turn. */
const aheadMax = 2;
/** After a bulk that was copied ahead in vain so many of its app are not. */
const waryFor = 16;

export interface CommitSettings {
  /** Batches, of different apps, that run at a time. */
  concurrency: number;
  /** Who may read a collection that a write makes. */
  defaultRead: ReadAccess;
}

/** The writes of an app. */
interface Writes {
  queue: WriteQueue;
  /** The batch that is under way. */
  batch: readonly Waiting[];
  /** The bulks that are copied ahead; the first may be under way. */
  ahead: Ahead[];
  /** How many bulks are not to be copied ahead, because it was in vain. */
  wary: number;
}

/**
 * Group commit: the writes of one app that wait while a transaction runs go together in the next one. Each has a
 * height, an answer and a failure of its own; an app costs one disk flush per batch instead of one per write.
 */
export class Committer {
  private readonly writer: BatchWriter;
  private readonly apps = new Map<bigint, Writes>();
  private readonly running = new Set<Promise<void>>();
  private free: number;
  private waitingBytes = 0;
  private readonly turns: Array<() => void> = [];

  constructor(
    pool: Pool,
    private readonly log: Logger,
    { concurrency, defaultRead }: CommitSettings,
    private readonly copyTurns: CopyTurns,
    now: () => Date,
    /** Hears which collections a transaction has changed, once it is committed. */
    private readonly afterCommit: (collectionNumbers: readonly bigint[]) => void,
    private readonly storage?: Pick<StorageMonitor, 'refuseWhenFull'>,
  ) {
    this.writer = new BatchWriter(pool, copyTurns, now, defaultRead);
    this.free = concurrency;
  }

  get handles(): CatalogCache {
    return this.writer.handles;
  }

  /** Commits a write. Throws the ServiceError that refused it, UNAVAILABLE when nothing is known of it. */
  submit(app: App, write: Write): Promise<Committed> {
    this.storage?.refuseWhenFull();
    if (this.waitingBytes >= allWaitingBytesMax) throw unavailable('Too many writes are waiting');
    return new Promise((resolve, reject) => {
      const known = this.apps.get(app.number);
      const writes = known ?? { queue: new WriteQueue(), batch: [], ahead: [], wary: 0 };
      const waiting = { write, resolve, reject };
      writes.queue.add(waiting);
      if (!isBulk(waiting)) this.copyTurns.note();
      this.count(write.bytes);
      this.copyAhead(app, writes);
      if (known) return;
      this.apps.set(app.number, writes);
      const run = this.drain(app, writes).finally(() => this.running.delete(run));
      this.running.add(run);
    });
  }

  /** Counts the body of a write among what waits while it is read. Throws UNAVAILABLE when too much does already. */
  async holding<T>(bytes: number, read: () => Promise<T>): Promise<T> {
    if (this.waitingBytes >= allWaitingBytesMax) throw unavailable('Too many writes are waiting');
    this.count(bytes);
    try {
      return await read();
    } finally {
      this.count(-bytes);
    }
  }

  /** Waits for what was submitted. */
  async stop(): Promise<void> {
    await Promise.all(this.running);
  }

  /**
   * Commits the batches of an app, one after the other. Small writes and bulks take turns, so that a small one waits
   * for one bulk and not for all that came before it; and only for the end of that one, where it was copied ahead.
   */
  private async drain(app: App, writes: Writes): Promise<void> {
    const { queue, ahead } = writes;
    // Writes of the same turn of the event loop make the first batch.
    await new Promise((resolve) => setImmediate(resolve));
    let bulkWasLast = false;
    while (queue.size + ahead.length > 0) {
      this.copyAhead(app, writes);
      const [first] = ahead;
      const isBulkDue = first ? first.isSettled : queue.nextBulk !== undefined;
      const isHeld = (write: Write) => ahead.some((each) => each.holds(write));
      const small: Waiting[] = isBulkDue && !bulkWasLast ? [] : this.taken(queue.takeSmall(isHeld));
      bulkWasLast = small.length === 0 && isBulkDue;
      if (small.length > 0) await this.commitInTurn(app, writes, small);
      else if (isBulkDue) await (first ? this.commitAhead(app, writes) : this.commitBulk(app, writes));
      else await Promise.race([queue.added(), first?.settled]);
    }
    this.apps.delete(app.number);
  }

  /** Begins to copy the bulks that are next, as long as a turn stays free for other apps. */
  private copyAhead(app: App, { queue, batch, ahead, wary }: Writes): void {
    // A write that is held must not wait for bulks that came after it.
    while (wary === 0 && ahead.length < aheadMax && this.free > 1 && !queue.isHolding) {
      const next = queue.nextBulk;
      if (!next) return;
      const ordinal = this.writer.ordinalAhead(app, next, ahead.at(-1)?.ordinal ?? 0n);
      if (ordinal === undefined) return;
      const before = [...batch, ...ahead.map(({ bulk }) => bulk)];
      if (before.some(({ write }) => concern(write, next.write))) return;
      this.free -= 1;
      const bulk = queue.takeBulk();
      const write = (copying: Copying) => this.writer.ahead(app, bulk, ordinal, copying);
      ahead.push(new Ahead(bulk, ordinal, write, () => this.endTurn()));
    }
  }

  private commitBulk(app: App, writes: Writes): Promise<void> {
    writes.wary = Math.max(0, writes.wary - 1);
    return this.commitInTurn(app, writes, this.taken([writes.queue.takeBulk()]));
  }

  /** Commits the first of those that are copied ahead. If nothing comes of it, the others must be out of its way. */
  private async commitAhead(app: App, writes: Writes): Promise<void> {
    const first = writes.ahead[0]!;
    this.taken([first.bulk]);
    if (first.isLost) await this.turn();
    await this.commit(app, [first.bulk], async () => {
      const written = await first.commit();
      if (written) return written;
      writes.wary = waryFor;
      await Promise.all(writes.ahead.slice(1).map((each) => each.abandon()));
      return undefined;
    });
    writes.ahead.shift();
    this.endTurn();
  }

  private async commitInTurn(app: App, writes: Writes, batch: Waiting[]): Promise<void> {
    writes.batch = batch;
    await this.turn();
    const placed: Placed = new Map();
    await this.commit(app, batch, () => naming(placed, this.writer.atForeseenHead(app, batch, placed)));
    writes.batch = [];
    this.endTurn();
  }

  /** Counts writes out that are no longer waiting. */
  private taken(batch: Waiting[]): Waiting[] {
    this.count(-batch.reduce((sum, { write }) => sum + write.bytes, 0));
    return batch;
  }

  private count(bytes: number): void {
    this.waitingBytes += bytes;
    waitingBytes.value += bytes;
  }

  private turn(): Promise<void> | undefined {
    if (this.free > 0) {
      this.free -= 1;
      return undefined;
    }
    return new Promise((resolve) => this.turns.push(resolve));
  }

  private endTurn(): void {
    const next = this.turns.shift();
    if (next) next();
    else this.free += 1;
  }

  /**
   * Commits a batch, first by the shortest way that there may be for it. One that fails is tried again write by write,
   * so that each fails alone. Never throws.
   */
  private async commit(app: App, batch: Waiting[], shortest: () => Promise<Written | undefined>): Promise<void> {
    try {
      await this.firstAttempt(app, batch, shortest).catch((error: unknown) => {
        if (!isRetryable(error)) throw error;
        return this.attemptAgain(app, batch);
      });
    } catch (error) {
      await this.afterFailure(app, batch, error).catch((failure: unknown) =>
        batch.forEach(({ reject }) => reject(failure)),
      );
    }
  }

  private async afterFailure(app: App, batch: Waiting[], error: unknown): Promise<void> {
    if (error instanceof CommitUnknownError) await this.resolveUnknown(app, batch, error);
    else if (isTemporary(error)) batch.forEach(({ reject }) => reject(refusal(error)));
    else if (batch.length > 1 || mayBeRepeated(error)) await this.commitEach(app, batch);
    else batch[0]!.reject(refusal(error));
  }

  private async firstAttempt(app: App, batch: Waiting[], shortest: () => Promise<Written | undefined>): Promise<void> {
    const written = await shortest();
    if (written) this.settle(app, batch, written);
    else await this.attempt(app, batch);
  }

  /** A lock that was not given, or a deadlock, is no write's fault: again together, one by one would wait as often. */
  private async attemptAgain(app: App, batch: Waiting[]): Promise<void> {
    for (let attempt = 2; ; attempt++) {
      await pause(attempt - 1);
      try {
        return await this.attempt(app, batch);
      } catch (error) {
        if (!isRetryable(error) || attempt >= attemptsMax) throw error;
      }
    }
  }

  /** One by one. What the database could not do for one it is not asked for the rest. */
  private async commitEach(app: App, batch: Waiting[]): Promise<void> {
    for (const [at, one] of batch.entries()) {
      const failure = await this.commitAlone(app, one);
      if (isTemporary(failure)) return batch.slice(at + 1).forEach(({ reject }) => reject(refusal(failure)));
    }
  }

  /** Gives the error that it failed with, if it did. */
  private async commitAlone(app: App, one: Waiting): Promise<unknown> {
    try {
      await this.attempt(app, [one], { isDone: false });
      return undefined;
    } catch (error) {
      if (error instanceof CommitUnknownError) await this.resolveUnknown(app, [one], error);
      else one.reject(refusal(error));
      return error;
    }
  }

  /** COMMIT was sent and no answer came: under the lock of the head the tickets tell what is there; the rest is written. */
  private async resolveUnknown(app: App, batch: Waiting[], unknown: CommitUnknownError): Promise<void> {
    this.log.warn(
      { err: unknown, app: app.appId, writes: batch.length },
      'a commit got no answer, looking for its tickets',
    );
    const untilMs = Date.now() + unknownForMs;
    let isFenced = false;
    for (let attempt = 1; Date.now() < untilMs; attempt++) {
      const search: Search = { isDone: false };
      try {
        isFenced ||= await this.writer.fence(app);
        return await this.attempt(app, batch, search);
      } catch (error) {
        // As long as nobody has looked, an error says nothing of what was committed before it.
        const hasLooked = search.isDone || error instanceof ServiceError;
        if (hasLooked && !(error instanceof CommitUnknownError) && !isTemporary(error)) {
          if (batch.length === 1) return batch[0]!.reject(refusal(error));
          return this.commitEach(app, batch);
        }
        await pause(attempt);
      }
    }
    batch.forEach(({ reject }) =>
      reject(unavailable('It is unknown whether the write was committed; retry it', unknown)),
    );
  }

  /** One transaction for a batch. Settles every write of it, or throws and settles none. */
  private async attempt(app: App, batch: Waiting[], search?: Search): Promise<void> {
    const placed: Placed = new Map();
    const written = await naming(placed, this.writer.underLock(app, batch, search, placed));
    this.settle(app, batch, written);
  }

  /** Answers the writes of a batch; while others wait, once those are on their way: Postgres need not wait for answers. */
  private settle(app: App, batch: Waiting[], { outcomes, changed }: Written): void {
    const answer = () => {
      for (const one of batch) {
        const outcome = outcomes.get(one);
        if (outcome instanceof ServiceError) one.reject(outcome);
        else one.resolve(outcome!);
      }
    };
    this.afterCommit(changed);
    if (this.apps.get(app.number)?.queue.size) setImmediate(answer);
    else answer();
  }
}

/** Tells a unique index that was violated by its fields and the place of the document. */
const naming = <T>(placed: Placed, written: Promise<T>): Promise<T> =>
  written.catch((error: unknown) => {
    throw uniqueViolation(error, placed) ?? error;
  });

/** What is no fault of a write: the database could not be reached, or was busy with others. */
const isTemporary = (error: unknown): boolean => isConnectionError(error) || isRetryable(error);

/** Whether a write that failed so may have been committed before, under its ticket, and collides with itself. */
const mayBeRepeated = (error: unknown): boolean =>
  error instanceof UniqueViolationError || violatedConstraint(error) === 'commits_ticket_id_key';

const pause = (attempt: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(1_000, 20 * 2 ** attempt)));

/** What a caller is told when its write failed by itself. */
function refusal(error: unknown): unknown {
  if (error instanceof UniqueViolationError) return error.toServiceError();
  return error instanceof ServiceError ? error : (fromPostgres(error) ?? error);
}
