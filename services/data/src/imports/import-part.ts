import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { ServiceError, unavailable } from '@granary/shared/errors';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { ImportPartRequest } from '@granary/shared/gen/granary/data/v1/ImportPartRequest';
import { newTicket } from '@granary/shared/ids';
import { isGone } from '@granary/shared/postgres/errors';
import type { App } from '../catalog/app';
import { findCollection, type CollectionRef } from '../catalog/collection';
import { UNIQUE_VIOLATION } from '../catalog/index-definition';
import type { WriteContext } from '../commit/tracing';
import { appOf } from '../writes/write-request';
import { advanceAlone, advanced, endImport } from './advance';
import { decide, type Decision } from './decision';
import { nextBatch, preparingSteps, type FilePart, type ImportBatch, type PlacedBatch } from './import-batch';
import { csvOptions } from './import-options';
import { requireImport, toMessage, type ImportState } from './import-state';
import { ImportMovedError, ImportWrite, NothingToWriteError, StaleBatchError } from './import-write';
import { openRecords } from './records/reader';
import { presentIds, withoutTakenValues } from './stored-documents';

/** Attempts at a batch, and at a part: the others have found values taken or the collection changed meanwhile. */
const attemptsMax = 10;

/**
 * Stores the whole records of a part of a file, in commits of some of them, each of which moves the import behind what
 * it stores. Returns the import as it is then, unchanged where it is not at the offset of the part. Throws
 * IMPORT_NOT_FOUND, PAYMENT_REQUIRED, and what storing documents throws that is not the fault of one of them.
 */
export async function importPart(context: WriteContext, request: ImportPartRequest): Promise<Import> {
  const app = appOf(request);
  let offset = Number(request.offset);
  let { bytes } = request;
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    const state = await requireImport(context.pool, app, request.importId);
    if (state.status !== 'open' || state.offset !== offset) return toMessage(state);
    const collection = await findCollection(context.pool, app, state.collection);
    const run = new PartRun(context, app, { bytes, from: state }, collection, request.isPaid === true);
    try {
      return toMessage(await run.take(state, request.isLast === true));
    } catch (error) {
      if (error instanceof ImportMovedError) return toMessage(await requireImport(context.pool, app, request.importId));
      if (!(error instanceof StaleBatchError)) throw error;
      // The next attempt is the first at what is left.
      if (error.offset > offset) attempt = 0;
      bytes = bytes.subarray(error.offset - offset);
      offset = error.offset;
    }
  }
  throw collectionChanges();
}

const collectionChanges = () => unavailable('The collection changes too often; retry later');

/** The outcome of a batch. */
interface Stored {
  decision: Decision;
  /** The height of its commit, undefined where none of its records is written. */
  height: bigint | undefined;
}

class PartRun {
  constructor(
    private readonly context: WriteContext,
    private readonly app: App,
    private readonly part: FilePart,
    /** The collection as it is when the part begins: its schema says the types of columns. */
    private readonly collection: CollectionRef | undefined,
    private readonly isPaid: boolean,
  ) {}

  /** Stores the part batch by batch: while one is being committed, the next is prepared. Throws StaleBatchError. */
  async take(from: ImportState, isLast: boolean): Promise<ImportState> {
    const { pool } = this.context;
    const { bytes } = this.part;
    const { offset, options } = from;
    const chunk = { bytes, offset, isLast, state: from.reader };
    const reader = openRecords(options.format, chunk, csvOptions(options, this.collection));
    const next = async (): Promise<ImportBatch | undefined> => {
      const placed = nextBatch(this.part, reader);
      return placed && this.prepare(placed);
    };
    let state = from;
    let batch = await next();
    while (batch) {
      const following = next();
      // Nobody waits for the next batch where this one fails.
      following.catch(() => {});
      const { decision, height } = await this.store(state, batch);
      state = advanced(state, decision, height);
      if (decision.end) return endImport(pool, this.app, state, decision.end);
      batch = await following;
    }
    if (isLast && state.offset === offset + bytes.length) return endImport(pool, this.app, state);
    return requireImport(pool, this.app, state.ticketId);
  }

  private prepare(batch: PlacedBatch): Promise<ImportBatch> {
    const bytes = batch.placed.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    return this.context.committer.parseWithin(bytes, () => runSliced(preparingSteps(batch, this.collection)));
  }

  /** Commits what can be written of a batch, and moves the import behind it. Throws ImportMovedError. */
  private async store(state: ImportState, prepared: ImportBatch): Promise<Stored> {
    if (state.options.dry_run) return this.pass(state, (await this.settle(state, prepared)).decision);
    let batch = prepared;
    for (let attempt = 1; attempt <= attemptsMax; attempt++) {
      const hasDocuments = batch.records.some(({ document }) => document !== undefined);
      const write = new ImportWrite(newTicket('c', this.app.number), state, batch, this.isPaid);
      try {
        if (!hasDocuments) throw new NothingToWriteError(decide(batch, state, () => false));
        const { height } = await this.context.committer.submit(this.app, write);
        return { decision: write.decision, height };
      } catch (error) {
        if (error instanceof NothingToWriteError) return this.pass(state, error.decision);
        if (!(error instanceof ServiceError) || error.reason !== UNIQUE_VIOLATION) throw error;
        // A value that is free again by now was taken for a moment.
        batch = (await this.settle(state, batch)).batch;
      }
    }
    throw collectionChanges();
  }

  /** Moves the import behind records of which none is written. */
  private async pass(state: ImportState, decision: Decision): Promise<Stored> {
    if (!(await advanceAlone(this.context.pool, state, decision))) throw new ImportMovedError();
    return { decision, height: undefined };
  }

  /**
   * Refuses the records whose unique values are taken, as far as can be seen now: each that is refused keeps the value
   * that it has, which another one may want. Throws StaleBatchError where the tables are not there any more.
   */
  private async settle(state: ImportState, prepared: ImportBatch): Promise<{ batch: ImportBatch; decision: Decision }> {
    const { pool } = this.context;
    try {
      const present = state.options.mode === 'upsert' ? new Set() : await presentIds(pool, prepared);
      let batch = prepared;
      for (;;) {
        const decision = decide(batch, state, (id) => present.has(id));
        const others = await withoutTakenValues(pool, batch, decision.accepted);
        if (!others) return { batch, decision };
        batch = others;
      }
    } catch (error) {
      throw isGone(error) ? new StaleBatchError(state.offset) : error;
    }
  }
}
