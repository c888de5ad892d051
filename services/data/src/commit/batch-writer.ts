import { ServiceError } from '@granary/shared/errors';
import { pipeline, type Step } from '@granary/shared/postgres/pipeline';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { trusted } from '@granary/shared/postgres/sql';
import { CommitUnknownError, oneTripTransaction, pipelinedTransaction } from '@granary/shared/postgres/transaction';
import type { Copying } from './bulk-preload';
import {
  answerRepeated,
  buildLinks,
  currentHandles,
  findDone,
  keptAnswer,
  knownHandles,
  makeCollection,
  type App,
  type BatchLinks,
  type Outcomes,
  type Placed,
} from './batch';
import type { CollectionRef, ReadAccess } from '../catalog/collection';
import type { CopyTurns } from './bulk-throttle';
import { countBatch } from './metrics';
import { insertCommits } from './commit-log';
import { ForeseenHeads } from './head-cache';
import { CatalogCache } from '../catalog/cache';
import {
  bumpCatalogRevision,
  headToLock,
  isHeadElsewhere,
  moveHead,
  moveHeadFrom,
  toLockedHead,
  type LockedHead,
} from './head';
import { findAnswer, keepingAnswer } from './idempotency';
import {
  areFew,
  copyDocuments,
  copyFrom,
  countCopied,
  upsertDocuments,
  writeDocuments,
  type PlacedDocument,
} from './document-rows';
import { isBulk, type Waiting } from './write-queue';

/** A statement of a batch that is larger may take longer than others: 10,000 documents under 64 indexes take seconds. */
const longBatchBytes = 1024 * 1024;
const bulkStatementTimeoutMs = 30_000;
/**
 * How long a bulk that is copied ahead waits for a lock. Whoever holds it may hold the head as well, or wait for what has
 * been copied, and a batch must not wait for that.
 */
const aheadLockTimeoutMs = 200;
const usualLockTimeout = trusted('set local lock_timeout to default');
/** Ordinals that are left out before that of a bulk, for the commits that may come while it is copied. */
const ordinalsLeftOut = 2n ** 14n;

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
  readonly handles: CatalogCache;
  private readonly heads = new ForeseenHeads();

  constructor(
    private readonly pool: Pool,
    private readonly copyTurns: CopyTurns,
    private readonly now: () => Date,
    private readonly defaultRead: ReadAccess,
  ) {
    this.handles = new CatalogCache(pool);
  }

  /**
   * In one journey to Postgres, for the head that is foreseen: Postgres compares it under the lock. Undefined when that
   * cannot be, or the head is another; then nothing was done. `placed` is filled with the documents.
   */
  async atForeseenHead(app: App, batch: Waiting[], placed: Placed): Promise<Written | undefined> {
    // Of many documents the known ids are looked up first, and of a key what it was used for.
    if (!areFew(batch) || batch.some((one) => isBulk(one) || one.write.idempotency)) return undefined;
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

  /**
   * An ordinal for a bulk that is to be copied ahead of its turn, after `last`, that of the one before it; undefined
   * when something keeps it from that. Other writes may wait for it because of its ids and for nothing else.
   */
  ordinalAhead(app: App, { write }: Waiting, last: bigint): bigint | undefined {
    const handle = this.handles.known(app.number, write.collection);
    const head = this.heads.last(app.number);
    if (!handle || !head || hasUnique(handle)) return undefined;
    const ids = write.ids();
    if (!ids || ids.count < copyFrom || ids.set.size < ids.count) return undefined;
    return (head.ordinal > last ? head.ordinal : last) + ordinalsLeftOut;
  }

  /**
   * Copies a bulk without the lock of the head, tells whether it is there, and commits it once its turn has come, if
   * the head is still below its ordinal and the catalog the same. Undefined when nothing came of it; then nothing was
   * done. Throws CommitUnknownError.
   */
  async ahead(
    app: App,
    bulk: Waiting,
    ordinal: bigint,
    { begins, copied: tellCopied, turn }: Copying,
  ): Promise<Written | undefined> {
    const known = this.heads.last(app.number);
    const placed: Placed = new Map();
    const from = (head: LockedHead): LockedHead => ({ ...head, ordinal: ordinal - 1n });
    if (!known || !(await this.build(app, from(known), [bulk], placed)) || placed.size !== 1) return undefined;
    const [[handle, documents]] = [...placed] as [[CollectionRef, PlacedDocument[]]];
    const endCopying = await this.copyTurns.take();
    const beganAtMs = performance.now();
    const finish = async (tx: Connection) => {
      endCopying();
      tellCopied();
      await turn;
      const foreseen = bulk.write.idempotency ? undefined : this.heads.of(app.number);
      const head = foreseen ?? (await this.lockForAhead(tx, app, bulk));
      const built = head.ordinal < ordinal ? await this.build(app, from(head), [bulk]) : undefined;
      if (!built || head.catalogRevision !== handle.revision) throw new NotAsPlanned();
      const moved = foreseen ? moveHeadFrom(app.number, foreseen, built.left) : moveHead(app.number, built.left);
      const commits = insertCommits(app.number, built.links.commits, built.at);
      const counted = countCopied(handle, documents, built.at);
      const last = [moved, usualLockTimeout, counted, commits, ...answersKept([bulk], built.outcomes)];
      return { result: built, last };
    };
    const options = { ...timeoutOf([bulk]), lockTimeoutMs: aheadLockTimeoutMs };
    try {
      if (!begins()) return undefined;
      const copied = await copyDocuments(handle, documents, this.now());
      const built = await pipelinedTransaction(this.pool, copied, finish, options);
      this.heads.left(app.number, built.left);
      countBatch('ahead', [bulk], beganAtMs);
      return built;
    } catch (error) {
      if (error instanceof CommitUnknownError) throw error;
      // Whatever it was, under the lock it does not come again or says what it is.
      return undefined;
    } finally {
      endCopying();
    }
  }

  /** Gives the head under its lock. Throws when the write has an answer already. */
  private async lockForAhead(tx: Connection, app: App, { write }: Waiting): Promise<LockedHead> {
    const answers = await pipeline(tx, [headToLock(app.number)]);
    const locked = toLockedHead(answers.at(-1)!);
    this.heads.found(app.number, locked);
    if (write.idempotency && (await findAnswer(tx, write.idempotency)) !== undefined) throw new NotAsPlanned();
    return locked;
  }

  /** In two journeys: the first locks the head and reads it, the second writes. */
  async underLock(app: App, batch: Waiting[], search: Search | undefined, placed: Placed): Promise<Written> {
    const beganAtMs = performance.now();
    const { left, ...written } = await pipelinedTransaction(
      this.pool,
      headToLock(app.number),
      async (tx, answer) => {
        const locked = toLockedHead(answer);
        this.heads.found(app.number, locked);
        const { last, ...result } = await this.writeUnderLock(tx, app, locked, batch, search, placed);
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
    await bumpCatalogRevision(this.pool, app.number);
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
    const at = this.now();
    const outcomes: Outcomes = new Map();
    if (search) {
      await findDone(tx, app, batch, outcomes);
      search.isDone = true;
    }
    await answerRepeated(tx, app, batch, outcomes);
    const open = batch.filter((one) => !outcomes.has(one));
    const handles = await currentHandles(tx, this.handles, app, locked.catalogRevision, open);
    const known = handles.size;
    const make = makeCollection(tx, app, this.defaultRead, at);
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
    const done = open.filter((one) => !(outcomes.get(one) instanceof ServiceError));
    last.push(...answersKept(done, outcomes));
    return { outcomes, changed, left, last };
  }

  /**
   * The links of a batch after a head that is not locked yet; undefined when something must be looked up for them.
   * `placed` is filled with the documents, unless those of before are still the ones: they depend on the catalog and the
   * ordinal alone, the links on the head.
   */
  private async build(app: App, from: LockedHead, batch: Waiting[], placed?: Placed): Promise<Built | undefined> {
    const { handles, unknown } = knownHandles(this.handles, app, from.catalogRevision, batch);
    if (unknown.length > 0) return undefined;
    // Nobody moves the head between the commit before this one and this one, so times follow heights here too.
    const at = this.now();
    const outcomes: Outcomes = new Map();
    const links = await buildLinks(app, from, batch, handles, { outcomes, placed }, neverMade);
    // A write that is refused may have been committed before.
    if (links.refused.length > 0) return undefined;
    const changed = [...handles.values()].map(({ number }) => number);
    return { outcomes, changed, links, left: { ...links.head, catalogRevision: from.catalogRevision }, at };
  }
}

/** The head or the catalog is not as it must be for what was copied ahead. */
class NotAsPlanned extends Error {}

const answersKept = (writes: readonly Waiting[], outcomes: Outcomes): Step[] =>
  writes.flatMap((one) => {
    const outcome = outcomes.get(one);
    const { idempotency } = one.write;
    return idempotency && outcome && !(outcome instanceof ServiceError)
      ? [keepingAnswer(idempotency, keptAnswer(outcome))]
      : [];
  });

const hasUnique = ({ indexes }: CollectionRef): boolean => indexes.some(({ unique }) => unique);

const timeoutOf = (batch: readonly Waiting[]): { statementTimeoutMs?: number } =>
  batch.reduce((sum, { write }) => sum + write.bytes, 0) > longBatchBytes
    ? { statementTimeoutMs: bulkStatementTimeoutMs }
    : {};

const neverMade = (name: string): never => {
  throw new Error(`the collection ${name} is known`);
};
