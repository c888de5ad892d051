import type { Logger } from '@granary/shared/logger';
import { ServiceError, unavailable } from '@granary/shared/errors';
import { fromPostgres, isConnectionError, isRetryable, violatedConstraint } from '@granary/shared/postgres/errors';
import type { Pool } from '@granary/shared/postgres/pool';
import { CommitUnknownError } from '@granary/shared/postgres/transaction';
import type { App, Placed } from './batch';
import { BatchWriter, type Search, type Written } from './batch-writer';
import { waitingBytes } from './commit-metrics';
import type { Committed } from './commits';
import { Flight } from './flight';
import type { WriterHandles } from './handles';
import { uniqueViolation, UniqueViolationError } from './unique-violation';
import { isBulk, WriteQueue, type Waiting, type Write } from './write-queue';

/** Bytes of writes that may wait, of all apps of this copy together. */
const allWaitingBytesMax = 256 * 1024 * 1024;
/** Attempts at a batch that collided with something as a whole. */
const attemptsMax = 3;
/** How long an unknown outcome is looked for before the caller is told that it is unknown. */
const unknownForMs = 30_000;

/** After a bulk that was begun early in vain so many batches of its app are not begun early. */
const waryFor = 16;

/** A batch that was taken out of the queue. */
interface Taken {
  batch: Waiting[];
  flight: Flight;
  /** What was begun while the batch before it was under way; gives undefined when nothing came of it. */
  early?: Promise<Written | undefined>;
  /** The turn of what was begun early; given back when nothing comes of it before the batch has its own. */
  turn?: 'lent' | 'its own' | 'given back';
}

/**
 * Group commit: the writes of one app that wait while a transaction runs go together in the next one. Each has a
 * height, an answer and a failure of its own; an app costs one disk flush per batch instead of one per write.
 */
export class Committer {
  private readonly writer: BatchWriter;
  private readonly queues = new Map<bigint, WriteQueue>();
  private readonly running = new Set<Promise<void>>();
  private free: number;
  private waitingBytes = 0;
  private readonly turns: Array<() => void> = [];

  /** `concurrency` batches, of different apps, run at a time. */
  constructor(
    pool: Pool,
    private readonly log: Logger,
    concurrency: number,
    /** Hears which collections a transaction has changed, once it is committed. */
    private readonly afterCommit: (collectionNumbers: readonly bigint[]) => void,
  ) {
    this.writer = new BatchWriter(pool);
    this.free = concurrency;
  }

  get handles(): WriterHandles {
    return this.writer.handles;
  }

  /** Commits a write. Throws the ServiceError that refused it, UNAVAILABLE when nothing is known of it. */
  submit(app: App, write: Write): Promise<Committed> {
    if (this.waitingBytes >= allWaitingBytesMax) throw unavailable('Too many writes are waiting');
    return new Promise((resolve, reject) => {
      const known = this.queues.get(app.number);
      const queue = known ?? new WriteQueue();
      queue.add({ write, resolve, reject });
      this.waitingBytes += write.bytes;
      waitingBytes.value += write.bytes;
      if (known) return;
      this.queues.set(app.number, queue);
      const run = this.drain(app, queue).finally(() => this.running.delete(run));
      this.running.add(run);
    });
  }

  /** Waits for what was submitted. */
  async stop(): Promise<void> {
    await Promise.all(this.running);
  }

  private async drain(app: App, queue: WriteQueue): Promise<void> {
    // Writes of the same turn of the event loop make the first batch.
    await new Promise((resolve) => setImmediate(resolve));
    let next: Taken | undefined;
    let wary = 0;
    while (next || queue.size > 0) {
      if (next?.turn === 'lent') next.turn = 'its own';
      else await this.turn();
      const { batch, flight, early } = next ?? this.take(queue);
      wary -= 1;
      next = wary < 0 && isBulk(batch) ? this.takeEarly(app, queue, flight) : undefined;
      if (early && !(await early.catch(() => true)) && flight.isPlanned) wary = waryFor;
      await this.commit(app, batch, flight, early)
        .catch((error: unknown) => batch.forEach(({ reject }) => reject(error)))
        .finally(() => this.endTurn());
    }
    this.queues.delete(app.number);
  }

  private take(queue: WriteQueue): Taken {
    const batch = queue.takeBatch();
    const bytes = batch.reduce((sum, { write }) => sum + write.bytes, 0);
    this.waitingBytes -= bytes;
    waitingBytes.value -= bytes;
    return { batch, flight: new Flight() };
  }

  /** Takes the bulk that is next while the batch before it is under way, if a turn stays free for other apps. */
  private takeEarly(app: App, queue: WriteQueue, before: Flight): Taken | undefined {
    if (this.free < 2 || !queue.nextBulk || !this.writer.mayBeEarly(app, queue.nextBulk)) return undefined;
    this.free -= 1;
    const taken: Taken = { ...this.take(queue), turn: 'lent' };
    taken.early = this.writer.early(app, taken.batch, before, taken.flight);
    taken.early.then(
      (written) => {
        if (written || taken.turn !== 'lent') return;
        taken.turn = 'given back';
        this.endTurn();
      },
      // Whoever takes it from here hears of what it throws.
      () => {},
    );
    return taken;
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

  /** Commits a batch; one that fails is tried again write by write, so that each fails alone. */
  private async commit(app: App, batch: Waiting[], flight: Flight, early?: Taken['early']): Promise<void> {
    try {
      await this.firstAttempt(app, batch, flight, early).catch((error: unknown) => {
        flight.ended(false);
        if (!isRetryable(error)) throw error;
        return this.attemptAgain(app, batch);
      });
    } catch (error) {
      if (error instanceof CommitUnknownError) await this.resolveUnknown(app, batch, error);
      else if (isTemporary(error)) batch.forEach(({ reject }) => reject(refusal(error)));
      else if (batch.length > 1 || mayBeRepeated(error)) await this.commitEach(app, batch);
      else batch[0]!.reject(refusal(error));
    }
  }

  /** By the shortest way that there is for it. */
  private async firstAttempt(app: App, batch: Waiting[], flight: Flight, early: Taken['early']): Promise<void> {
    const placed: Placed = new Map();
    const written = (await early) ?? (await naming(placed, this.writer.atForeseenHead(app, batch, placed)));
    if (!written) return this.attempt(app, batch, undefined, flight);
    flight.ended(true);
    this.settle(app, batch, written);
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
      reject(unavailable('It is not known whether the write was committed, ask again', unknown)),
    );
  }

  /** One transaction for a batch. Settles every write of it, or throws and settles none. */
  private async attempt(app: App, batch: Waiting[], search?: Search, flight?: Flight): Promise<void> {
    const placed: Placed = new Map();
    const written = await naming(placed, this.writer.underLock(app, batch, search, placed, flight));
    flight?.ended(true);
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
    if (this.queues.get(app.number)?.size) setImmediate(answer);
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
