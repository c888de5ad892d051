import { ServiceError } from '@granary/shared/errors';
import type { Connection } from '@granary/shared/postgres/pool';
import { linkContent, nextLink, type Head } from '../chain/hash-chain';
import {
  documentKey,
  sizeClassOf,
  type Committed,
  type CompanionChange,
  type DocumentIds,
  type DocumentRead,
  type PlanState,
  type SizeClass,
  type Write,
  type WriteLink,
} from '../commit/write';
import { requirePaid } from '../writes/paid-write';
import { hasSameRules, writtenBytes } from '../writes/prepare-body';
import { advancing, isStillAt } from './advance';
import { decide, type Decision } from './decision';
import type { ImportBatch } from './import-batch';
import type { ImportState } from './import-state';

/** The import is elsewhere by now: another request sent the same part, or it has ended. */
export class ImportMovedError extends ServiceError {
  constructor() {
    super('ABORTED', 'REQUEST_IN_PROGRESS', 'Another request sends the same part of the file');
  }
}

/** The batch was prepared for a collection that has changed since. */
export class StaleBatchError extends ServiceError {
  /** `offset` is where the batch begins in the file. */
  constructor(readonly offset: number) {
    super('ABORTED', 'REQUEST_IN_PROGRESS', 'The collection has changed');
  }
}

/** None of the records is to be written. */
export class NothingToWriteError extends ServiceError {
  constructor(readonly decision: Decision) {
    super('ABORTED', 'REQUEST_IN_PROGRESS', 'None of the records is to be written');
  }
}

/** The records of a batch as one link, whose transaction moves the import behind them. */
export class ImportWrite implements Write {
  readonly operation = 'store';
  readonly userAddress = null;
  readonly idempotency = undefined;
  readonly collections: readonly string[];
  readonly bytes: number;
  readonly sizeClass: SizeClass;
  readonly reads?: readonly DocumentRead[];
  readonly companion: CompanionChange;
  /** As it was planned last: that of the commit, once that is committed. */
  decision!: Decision;
  private readonly knownIds: DocumentIds;

  constructor(
    readonly ticketId: string,
    private readonly state: ImportState,
    private readonly batch: ImportBatch,
    private readonly isPaid: boolean,
  ) {
    const { collection } = state;
    const documents = batch.records.flatMap(({ document }) => document ?? []);
    this.collections = [collection];
    this.bytes = writtenBytes(documents);
    this.sizeClass = sizeClassOf(this.bytes);
    const ids = documents.map(({ id }) => id);
    this.knownIds = { set: new Set(ids), count: ids.length };
    if (state.options.mode !== 'upsert') {
      this.reads = ids.map((id) => ({ collection, id, condition: undefined, omitsBody: true }));
    }
    this.companion = {
      subject: state.ticketId,
      refusal: async (tx: Connection) => ((await isStillAt(tx, state)) ? undefined : new ImportMovedError()),
      steps: ({ height }: Committed) => advancing(state, this.decision, height),
    };
  }

  ids(): DocumentIds {
    return this.knownIds;
  }

  links(head: Head, { collections, documents: present }: PlanState): WriteLink[] {
    const { collection: name } = this.state;
    const collection = collections.get(name);
    if (!hasSameRules(this.batch.collection, collection)) throw new StaleBatchError(this.state.offset);
    this.decision = decide(this.batch, this.state, (id) => present.get(documentKey(name, id))?.deleted === false);
    const documents = this.decision.accepted.map(({ document }) => document!);
    requirePaid(collection, this.isPaid, documents);
    if (documents.length === 0) throw new NothingToWriteError(this.decision);
    return [{ collection: name, link: nextLink(head, linkContent(name, documents)), documents }];
  }
}
