import { ServiceError } from '@granary/shared/errors';
import type { Step } from '@granary/shared/postgres/pipeline';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { trusted } from '@granary/shared/postgres/sql';
import { CommitUnknownError, oneTripTransaction, pipelinedTransaction } from '@granary/shared/postgres/transaction';
import {
  answerRepeated,
  buildLinks,
  currentHandles,
  findDone,
  knownHandles,
  makeCollection,
  type App,
  type BatchLinks,
  type Outcomes,
  type Placed,
} from './batch';
import type { CollectionHandle } from './catalog';
import { countBatch } from './commit-metrics';
import { insertCommits } from './commits';
import type { Flight, Plan } from './flight';
import { ForeseenHeads } from './foreseen-heads';
import { WriterHandles } from './handles';
import {
  growCatalogRevision,
  headToLock,
  isHeadElsewhere,
  moveHead,
  moveHeadFrom,
  toLockedHead,
  type LockedHead,
} from './head';
import { keepingAnswer } from './idempotency';
import { areFew, copyDocuments, upsertDocuments, writeDocuments, type PlacedDocument } from './write';
import { isBulk, type Waiting } from './write-queue';

/** A statement of a batch that is larger may take longer than others: 10,000 documents under 64 indexes take seconds. */
const longBatchBytes = 1024 * 1024;
const bulkStatementTimeoutMs = 30_000;
/**
 * How long a batch that is begun early waits for a lock. Whoever holds it may wait for the batch before this one, which
 * this one waits for: that cycle Postgres does not see.
 */
const earlyLockTimeoutMs = 200;
/**
 * How long it then waits for the lock of the head. The batch before it has ended, so only others can hold it, and they
 * may be waiting for the table that this one has written to.
 */
const earlyHeadTimeout = trusted(`set local lock_timeout = '5ms'`);
const usualLockTimeout = trusted('set local lock_timeout to default');

/** A look for the tickets of writes that may have been committed before; done once the tickets have been read. */
export interface Search {
  isDone: boolean;
}

/** What became of the writes of a batch, and the collections that it has changed. */
export interface Written {
  outcomes: Outcomes;
  changed: readonly bigint[];
}

interface Built extends Written {
  links: BatchLinks;
  left: LockedHead;
  at: Date;
}

/** The transactions of batches. */
export class BatchWriter {
  readonly handles: WriterHandles;
  private readonly heads = new ForeseenHeads();

  constructor(private readonly pool: Pool) {
    this.handles = new WriterHandles(pool);
  }

  /**
   * In one journey to Postgres, for the head that is foreseen: Postgres compares it under the lock. Undefined when that
   * cannot be, or the head is another; then nothing was done. `placed` is filled with the documents.
   */
  async atForeseenHead(app: App, batch: Waiting[], placed: Placed): Promise<Written | undefined> {
    // Of many documents the known ids are looked up first.
    if (isBulk(batch) || !areFew(batch)) return undefined;
    const beganAtMs = performance.now();
    const head = this.heads.of(app.number);
    const built = head && (await this.build(app, head, batch, placed));
    if (!built || ![...placed.values()].every(areFew)) return undefined;
    const documents = [...placed].map(([handle, documents]) => upsertDocuments(handle, documents, built.at));
    try {
      await oneTripTransaction(this.pool, [
        moveHeadFrom(app.number, head, built.left),
        ...documents,
        insertCommits(app.number, built.links.commits, built.at),
      ]);
    } catch (error) {
      if (isHeadElsewhere(error)) return undefined;
      throw error;
    }
    this.heads.left(app.number, built.left);
    countBatch('foreseen', batch, beganAtMs);
    return built;
  }

  /** Whether there is nothing yet that keeps a write from being begun early. */
  mayBeEarly(app: App, { write }: Waiting): boolean {
    const handle = this.handles.known(app.number, write.collection);
    return !write.idempotency && handle !== undefined && !hasUnique(handle);
  }

  /**
   * Copies a bulk while the batch before it is still under way, and commits it once that has ended as planned: Postgres
   * compares the head under the lock. Undefined when that cannot be, or something came in between; then nothing was
   * done. Throws CommitUnknownError.
   */
  async early(app: App, batch: Waiting[], before: Flight, flight: Flight): Promise<Written | undefined> {
    const plan = await before.plan;
    const placed: Placed = new Map();
    const built = plan && (await this.build(app, plan.head, batch, placed));
    if (!built || placed.size !== 1) return undefined;
    const [[handle, documents]] = [...placed] as [[CollectionHandle, PlacedDocument[]]];
    if (!canBeCopiedBeside(plan, handle, documents)) return undefined;
    flight.planned({ head: built.left, placed });
    const beganAtMs = performance.now();
    const { copied, counted } = copyDocuments(handle, documents, built.at);
    const last = [
      ...[earlyHeadTimeout, moveHeadFrom(app.number, plan.head, built.left), usualLockTimeout],
      ...[counted, insertCommits(app.number, built.links.commits, built.at)],
    ];
    const commit = async () => {
      if (!(await before.end)) throw new NotAsPlanned();
      return { result: built, last };
    };
    try {
      await pipelinedTransaction(this.pool, copied, commit, { ...timeoutOf(batch), lockTimeoutMs: earlyLockTimeoutMs });
    } catch (error) {
      if (error instanceof CommitUnknownError) throw error;
      flight.ended(false);
      // Whatever it was, with the batch before it out of the way it does not come again or says what it is.
      return undefined;
    }
    this.heads.left(app.number, built.left);
    countBatch('early', batch, beganAtMs);
    return built;
  }

  /** In two journeys: the first locks the head and reads it, the second writes. */
  async underLock(
    app: App,
    batch: Waiting[],
    search: Search | undefined,
    placed: Placed,
    flight: Flight | undefined,
  ): Promise<Written> {
    const beganAtMs = performance.now();
    const { left, ...written } = await pipelinedTransaction(
      this.pool,
      headToLock(app.number),
      async (tx, answer) => {
        const locked = toLockedHead(answer);
        this.heads.found(app.number, locked);
        const { last, ...result } = await this.writeUnderLock(tx, app, locked, batch, search, placed);
        if (result.left) flight?.planned({ head: result.left, placed });
        return { result, last };
      },
      timeoutOf(batch),
    );
    this.heads.left(app.number, left);
    countBatch('locked', batch, beganAtMs);
    return written;
  }

  /**
   * After a COMMIT without an answer: a connection that is lost here may have statements in it that Postgres has not
   * come to. They expect another head from here on. Gives true.
   */
  async fence(app: App): Promise<true> {
    await growCatalogRevision(this.pool, app.number);
    return true;
  }

  /** What is left to be done goes with COMMIT, and leaves the head at `left` if that is known. */
  private async writeUnderLock(
    tx: Connection,
    app: App,
    locked: LockedHead,
    batch: Waiting[],
    search: Search | undefined,
    placed: Placed,
  ): Promise<Written & { left: LockedHead | undefined; last: Step[] }> {
    // Read under the lock, so that times follow heights as far as clocks agree.
    const at = new Date();
    const outcomes: Outcomes = new Map();
    if (search) {
      await findDone(tx, app, batch, outcomes);
      search.isDone = true;
    }
    await answerRepeated(tx, app, batch, outcomes);
    const open = batch.filter((one) => !outcomes.has(one));
    const handles = await currentHandles(tx, this.handles, app, locked.catalogRevision, open);
    const known = handles.size;
    const make = makeCollection(tx, app, at);
    const { head, commits, refused } = await buildLinks(app, locked, open, handles, { outcomes, placed }, make);
    // A write that is repeated may be refused by what has changed since it was committed.
    if (refused.length > 0 && !search) await findDone(tx, app, refused, outcomes);
    // To make a collection is a change of the catalog.
    const left = handles.size === known ? { ...head, catalogRevision: locked.catalogRevision } : undefined;
    const changed: bigint[] = [];
    const last: Step[] = [];
    if (commits.length === 0) return { outcomes, changed, left, last };
    for (const [handle, documents] of placed) {
      last.push(...(await writeDocuments(tx, handle, documents, at)));
      changed.push(handle.number);
    }
    last.push(moveHead(app.number, head), insertCommits(app.number, commits, at));
    for (const one of open) {
      if (one.write.idempotency && !(outcomes.get(one) instanceof ServiceError)) {
        last.push(keepingAnswer(one.write.idempotency, one.write.ticketId, at));
      }
    }
    return { outcomes, changed, left, last };
  }

  /** The links of a batch after a head that is not locked yet; undefined when something must be looked up for them. */
  private async build(app: App, from: LockedHead, batch: Waiting[], placed: Placed): Promise<Built | undefined> {
    if (batch.some(({ write }) => write.idempotency)) return undefined;
    const { handles, unknown } = knownHandles(this.handles, app, from.catalogRevision, batch);
    if (unknown.length > 0) return undefined;
    // Nobody moves the head between the commit before this one and this one, so times follow heights here too.
    const at = new Date();
    const outcomes: Outcomes = new Map();
    const links = await buildLinks(app, from, batch, handles, { outcomes, placed }, neverMade);
    // A write that is refused may have been committed before.
    if (links.refused.length > 0) return undefined;
    const changed = [...placed.keys()].map(({ number }) => number);
    return { outcomes, changed, links, left: { ...links.head, catalogRevision: from.catalogRevision }, at };
  }
}

/** The batch before a transaction that was begun early did not end as planned. */
class NotAsPlanned extends Error {}

/**
 * Whether documents can be copied while those of a plan are written. Neither may wait for the other: they have no id
 * in common, and no unique value can be.
 */
function canBeCopiedBeside({ placed }: Plan, handle: CollectionHandle, documents: readonly PlacedDocument[]): boolean {
  if (areFew(documents) || hasUnique(handle)) return false;
  for (const [{ number }, others] of placed) {
    if (number !== handle.number) continue;
    const ids = new Set(others.map(({ document }) => document.id));
    if (documents.some(({ document }) => ids.has(document.id))) return false;
  }
  return true;
}

const hasUnique = ({ indexes }: CollectionHandle): boolean => indexes.some(({ unique }) => unique);

const timeoutOf = (batch: readonly Waiting[]): { statementTimeoutMs?: number } =>
  batch.reduce((sum, { write }) => sum + write.bytes, 0) > longBatchBytes
    ? { statementTimeoutMs: bulkStatementTimeoutMs }
    : {};

const neverMade = (name: string): never => {
  throw new Error(`the collection ${name} is known`);
};
