import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { ServiceError, unavailable } from '@granary/shared/errors';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { ImportPartRequest } from '@granary/shared/gen/granary/data/v1/ImportPartRequest';
import { newTicket } from '@granary/shared/ids';
import type { App } from '../catalog/app';
import { findCollection } from '../catalog/collection';
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
  const begin = Number(request.offset);
  let { bytes } = request;
  for (let attempt = 1; attempt <= attemptsMax; attempt++) {
    const state = await requireImport(context.pool, app, request.importId);
    const isHere = state.status === 'open' && state.offset === begin + request.bytes.length - bytes.length;
    if (!isHere) return toMessage(state);
    const run = new PartRun(context, app, { bytes, from: state }, request.isPaid === true);
    try {
      return toMessage(await run.take(state, request.isLast === true));
    } catch (error) {
      if (error instanceof ImportMovedError) return toMessage(await requireImport(context.pool, app, request.importId));
      if (!(error instanceof StaleBatchError)) throw error;
      bytes = bytes.subarray(error.offset - state.offset);
    }
  }
  throw collectionChanges();
}

const collectionChanges = () => unavailable('The collection changes too often; retry later');

/** What has become of a batch. */
interface Stored {
  decision: Decision;
  /** Of its commit; undefined where none of its records is written. */
  height: bigint | undefined;
}

class PartRun {
  constructor(
    private readonly context: WriteContext,
    private readonly app: App,
    private readonly part: FilePart,
    private readonly isPaid: boolean,
  ) {}

  /** Stores the part batch by batch: while one is being committed, the next is prepared. */
  async take(from: ImportState, isLast: boolean): Promise<ImportState> {
    const { pool } = this.context;
    const { bytes } = this.part;
    const { offset, options, collection: name } = from;
    // What is cached may have another schema, which says the types of columns.
    const collection = await findCollection(pool, this.app, name);
    const chunk = { bytes, offset, isLast, state: from.reader };
    const reader = openRecords(options.format, chunk, csvOptions(options, collection));
    const next = async (): Promise<ImportBatch | undefined> => {
      const placed = nextBatch(this.part, reader);
      return placed && this.prepare(name, placed);
    };
    let state = from;
    let batch = await next();
    while (batch) {
      const following = next();
      // Where this batch fails, nobody waits for the next one.
      following.catch(() => {});
      const { decision, height } = await this.store(state, batch);
      state = advanced(state, decision, height);
      if (decision.end) return endImport(pool, this.app, state, decision.end);
      batch = await following;
    }
    if (isLast && state.offset === offset + bytes.length) return endImport(pool, this.app, state);
    return requireImport(pool, this.app, state.ticketId);
  }

  private async prepare(name: string, placed: PlacedBatch): Promise<ImportBatch> {
    const { committer } = this.context;
    const collection = await committer.collections.get(this.app, name);
    const bytes = placed.placed.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    return committer.parseWithin(bytes, () => runSliced(preparingSteps(placed, collection)));
  }

  /**
   * Commits what can be written of a batch, and moves the import behind it. Throws ImportMovedError, StaleBatchError.
   */
  private async store(state: ImportState, prepared: ImportBatch): Promise<Stored> {
    if (state.options.dry_run) return this.check(state, prepared);
    let batch = prepared;
    for (let attempt = 1; attempt <= attemptsMax; attempt++) {
      if (!batch.records.some(({ document }) => document))
        return this.pass(
          state,
          decide(batch, state, () => false),
        );
      const write = new ImportWrite(newTicket('c', this.app.number), state, batch, this.isPaid);
      try {
        const { height } = await this.context.committer.submit(this.app, write);
        return { decision: write.decision, height };
      } catch (error) {
        if (error instanceof NothingToWriteError) return this.pass(state, error.decision);
        if (!(error instanceof ServiceError) || error.reason !== UNIQUE_VIOLATION) throw error;
        // A value that is free again by now was taken for a moment.
        batch = (await withoutTakenValues(this.context.pool, batch, write.decision.accepted)) ?? batch;
      }
    }
    throw collectionChanges();
  }

  /** Moves the import behind records of which none is written. */
  private async pass(state: ImportState, decision: Decision): Promise<Stored> {
    if (!(await advanceAlone(this.context.pool, state, decision))) throw new ImportMovedError();
    return { decision, height: undefined };
  }

  /** Decides about a batch as if it were stored, without storing it. */
  private async check(state: ImportState, prepared: ImportBatch): Promise<Stored> {
    const { pool } = this.context;
    const present = state.options.mode === 'upsert' ? new Set() : await presentIds(pool, prepared);
    const isPresent = (id: string) => present.has(id);
    let decision = decide(prepared, state, isPresent);
    let batch = await withoutTakenValues(pool, prepared, decision.accepted);
    while (batch) {
      decision = decide(batch, state, isPresent);
      batch = await withoutTakenValues(pool, batch, decision.accepted);
    }
    return this.pass(state, decision);
  }
}
