import type { Logger } from '@granary/shared/logger';
import { ServiceError, unavailable } from '@granary/shared/errors';
import { fromPostgres, isConnectionError, isRetryable, violatedConstraint } from '@granary/shared/postgres/errors';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import type { Step } from '@granary/shared/postgres/pipeline';
import { CommitUnknownError, pipelinedTransaction } from '@granary/shared/postgres/transaction';
import { findCollections, type CollectionHandle } from './catalog';
import { addCollection } from './collections';
import { findCommitted, insertCommits, type Committed, type CommitRow, type Link } from './commits';
import { WriterHandles } from './handles';
import { headToLock, toLockedHead, type Head, type LockedHead } from './head';
import { findAnswer, keepingAnswer } from './idempotency';
import { uniqueViolation, UniqueViolationError } from './unique-violation';
import { WriteQueue, type Waiting, type Write } from './write-queue';
import { writeDocuments, type PlacedDocument } from './write';

/** A statement of a batch that is larger may take longer than others: 10,000 documents under 64 indexes take seconds. */
const longBatchBytes = 1024 * 1024;
const bulkStatementTimeoutMs = 30_000;
/** Bytes of writes that may wait, of all apps of this copy together. */
const allWaitingBytesMax = 256 * 1024 * 1024;
/** Attempts at a batch that collided with something as a whole. */
const attemptsMax = 3;
/** How long an unknown outcome is looked for before the caller is told that it is unknown. */
const unknownForMs = 30_000;

export interface App {
  number: bigint;
  appId: string;
}

/** A look for the tickets of writes that may have been committed before; done once the tickets have been read. */
interface Search {
  isDone: boolean;
}

/** What became of the writes of a batch that were not simply refused. */
type Outcomes = Map<Waiting, Committed | ServiceError>;

/** The documents of a transaction by their collection. */
type Placed = Map<CollectionHandle, PlacedDocument[]>;

/**
 * Group commit: the writes of one app that wait while a transaction runs go together in the next one. Each has a
 * height, an answer and a failure of its own; an app costs one disk flush per batch instead of one per write.
 */
export class Committer {
  readonly handles: WriterHandles;
  private readonly queues = new Map<bigint, WriteQueue>();
  private readonly running = new Set<Promise<void>>();
  private free: number;
  private waitingBytes = 0;
  private readonly turns: Array<() => void> = [];

  /** `concurrency` batches, of different apps, run at a time. */
  constructor(
    private readonly pool: Pool,
    private readonly log: Logger,
    concurrency: number,
    /** Hears which collections a transaction has changed, once it is committed. */
    private readonly afterCommit: (collectionNumbers: readonly bigint[]) => void,
  ) {
    this.handles = new WriterHandles(pool);
    this.free = concurrency;
  }

  /** Commits a write. Throws the ServiceError that refused it, UNAVAILABLE when nothing is known of it. */
  submit(app: App, write: Write): Promise<Committed> {
    if (this.waitingBytes >= allWaitingBytesMax) throw unavailable('Too many writes are waiting');
    return new Promise((resolve, reject) => {
      const known = this.queues.get(app.number);
      const queue = known ?? new WriteQueue();
      queue.add({ write, resolve, reject });
      this.waitingBytes += write.bytes;
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
    while (queue.size > 0) {
      await this.turn();
      const batch = queue.takeBatch();
      for (const { write } of batch) this.waitingBytes -= write.bytes;
      await this.commit(app, batch)
        .catch((error: unknown) => batch.forEach(({ reject }) => reject(error)))
        .finally(() => this.endTurn());
    }
    this.queues.delete(app.number);
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
  private async commit(app: App, batch: Waiting[]): Promise<void> {
    try {
      await this.attemptRetried(app, batch);
    } catch (error) {
      if (error instanceof CommitUnknownError) await this.resolveUnknown(app, batch, error);
      else if (isTemporary(error)) batch.forEach(({ reject }) => reject(refusal(error)));
      else if (batch.length > 1 || mayBeRepeated(error)) await this.commitEach(app, batch);
      else batch[0]!.reject(refusal(error));
    }
  }

  /** A lock that was not given, or a deadlock, is no write's fault: again together, one by one would wait as often. */
  private async attemptRetried(app: App, batch: Waiting[]): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.attempt(app, batch);
      } catch (error) {
        if (!isRetryable(error) || attempt >= attemptsMax) throw error;
        await pause(attempt);
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
    for (let attempt = 1; Date.now() < untilMs; attempt++) {
      const search: Search = { isDone: false };
      try {
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
  private async attempt(app: App, batch: Waiting[], search?: Search): Promise<void> {
    const isBulk = batch.reduce((sum, { write }) => sum + write.bytes, 0) > longBatchBytes;
    const placed: Placed = new Map();
    const { outcomes, changed } = await pipelinedTransaction(
      this.pool,
      headToLock(app.number),
      (tx, answer) => this.writeBatch(tx, app, toLockedHead(answer), batch, search, placed),
      isBulk ? { statementTimeoutMs: bulkStatementTimeoutMs } : {},
    ).catch((error: unknown) => {
      throw uniqueViolation(error, placed) ?? error;
    });
    for (const one of batch) {
      const outcome = outcomes.get(one);
      if (outcome instanceof ServiceError) one.reject(outcome);
      else one.resolve(outcome!);
    }
    this.afterCommit(changed);
  }

  /** What is left to be done goes with COMMIT; `placed` is filled with the documents of that. */
  private async writeBatch(
    tx: Connection,
    app: App,
    locked: LockedHead,
    batch: Waiting[],
    search: Search | undefined,
    placed: Placed,
  ): Promise<{ result: { outcomes: Outcomes; changed: bigint[] }; last: Step[] }> {
    // Read under the lock, so that times follow heights as far as clocks agree.
    const at = new Date();
    const outcomes: Outcomes = new Map();
    if (search) {
      await this.findDone(tx, app, batch, outcomes);
      search.isDone = true;
    }
    await this.answerRepeated(tx, app, batch, outcomes);
    const open = batch.filter((one) => !outcomes.has(one));
    const handles = await this.currentHandles(tx, app, locked.catalogRevision, open);
    const refused: Waiting[] = [];

    let head: Head = locked;
    const commits: CommitRow[] = [];
    for (const one of open) {
      const { write } = one;
      try {
        const built = write.build(handles.get(write.collection), head);
        if (!handles.has(write.collection))
          handles.set(write.collection, await addCollection(tx, app, { name: write.collection }, at));
        const handle = handles.get(write.collection)!;
        head = built.at(-1)!.link;
        const namespace = handle.namespace ?? `${app.appId}::${handle.name}`;
        const documents = placed.get(handle) ?? [];
        placed.set(handle, documents);
        for (const [at, { link, documents: ofLink }] of built.entries()) {
          const ticketId = at === 0 ? write.ticketId : null;
          commits.push({
            link,
            ticketId,
            operation: write.operation,
            collection: handle.name,
            namespace,
            userAddress: write.userAddress,
          });
          const height = Number(link.height);
          ofLink.forEach((document, place) => documents.push({ document, height, place }));
        }
        outcomes.set(one, toCommitted(write, namespace, built[0]!.link));
      } catch (error) {
        // An error of Postgres has ended the transaction; a refusal before any statement has not.
        if (!(error instanceof ServiceError)) throw error;
        outcomes.set(one, error);
        refused.push(one);
      }
    }
    // A write that is repeated may be refused by what has changed since it was committed.
    if (refused.length > 0 && !search) await this.findDone(tx, app, refused, outcomes);
    const changed: bigint[] = [];
    const last: Step[] = [];
    if (commits.length === 0) return { result: { outcomes, changed }, last };
    for (const [handle, documents] of placed) {
      if (documents.length === 0) continue;
      last.push(...(await writeDocuments(tx, handle, documents, at)));
      changed.push(handle.number);
    }
    last.push(insertCommits(app.number, commits, at));
    for (const one of open) {
      if (one.write.idempotency && !(outcomes.get(one) instanceof ServiceError)) {
        last.push(keepingAnswer(one.write.idempotency, one.write.ticketId, at));
      }
    }
    return { result: { outcomes, changed }, last };
  }

  private async findDone(tx: Connection, app: App, batch: Waiting[], outcomes: Outcomes): Promise<void> {
    const done = await findCommitted(
      tx,
      app.number,
      batch.map(({ write }) => write.ticketId),
    );
    for (const one of batch) {
      const committed = done.get(one.write.ticketId);
      if (committed) outcomes.set(one, committed);
    }
  }

  /** Under the lock of the head nobody else can keep an answer for this app, so looking is enough. */
  private async answerRepeated(tx: Connection, app: App, batch: Waiting[], outcomes: Outcomes): Promise<void> {
    for (const one of batch) {
      const key = one.write.idempotency;
      if (!key || outcomes.has(one)) continue;
      try {
        const ticketId = await findAnswer(tx, key);
        if (ticketId === undefined) continue;
        const committed = (await findCommitted(tx, app.number, [ticketId])).get(ticketId);
        if (committed) outcomes.set(one, committed);
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        outcomes.set(one, error);
      }
    }
  }

  /** The handles that the open writes need, as the catalog is at the locked revision. One statement for all that are not known. */
  private async currentHandles(
    tx: Connection,
    app: App,
    revision: bigint,
    open: readonly Waiting[],
  ): Promise<Map<string, CollectionHandle>> {
    const handles = new Map<string, CollectionHandle>();
    const unknown: string[] = [];
    for (const name of new Set(open.map(({ write }) => write.collection))) {
      const known = this.handles.known(app.number, name);
      if (known?.revision === revision) handles.set(name, known);
      else unknown.push(name);
    }
    if (unknown.length === 0) return handles;
    for (const name of unknown) this.handles.forget(app.number, name);
    for (const handle of await findCollections(tx, app, unknown)) {
      handles.set(handle.name, handle);
      this.handles.keep(handle);
    }
    return handles;
  }
}

function toCommitted(write: Write, namespace: string, link: Link): Committed {
  return {
    ticketId: write.ticketId,
    operation: write.operation,
    collection: write.collection,
    namespace,
    height: link.height,
    hash: link.hash,
    ids: link.entries.map(({ id }) => id),
  };
}

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
