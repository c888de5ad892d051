import { LRUCache } from 'lru-cache';
import type { StepAnswer } from '@granary/shared/postgres/pipeline';
import type { CollectionRef } from '../catalog/collection';
import type { DocumentRow, RowsByCollection } from './plan';
import { collectionOfDuplicate } from './unique-violation';

/** Documents in a row that were new, after which those of the next writes are expected to be new. */
const newInARowMin = 1_000;
/** Collections that are remembered. */
const collectionsMax = 10_000;

/**
 * Predicts whether the documents of a write are new, so that they can be inserted without a look at those that exist.
 * It decides nothing: an id that exists fails the statement, and the batch is written again without the prediction.
 */
export class NewDocuments {
  /** The number of documents of each collection, in a row up to its last write, that were new. */
  private readonly inARow = new LRUCache<bigint, number>({ max: collectionsMax });

  /** Whether documents of a collection are expected to be new. `isPresent`: whether an id was read before the write. */
  isExpected({ number }: CollectionRef, rows: readonly DocumentRow[], isPresent: (id: string) => boolean): boolean {
    const isAfterNew = (this.inARow.get(number) ?? 0) >= newInARowMin;
    if (!isAfterNew && !rows.every(({ document }) => document.hasNewId)) return false;
    return !rows.some(({ document: { id } }) => isPresent(id));
  }

  /** Records the documents of a committed batch. `answers`: those of the statements that wrote them. */
  written(rows: RowsByCollection, answers: ReadonlyMap<CollectionRef, StepAnswer>): void {
    for (const [collection, documents] of rows) {
      const { number } = collection;
      const before = this.inARow.get(number) ?? 0;
      const count = hasReplaced(answers.get(collection)) ? 0 : before + documents.length;
      this.inARow.set(number, Math.min(newInARowMin, count));
    }
  }

  /** Whether a statement failed because a document existed that was expected to be new, which is recorded. */
  isRefutedBy(error: unknown): boolean {
    const number = collectionOfDuplicate(error);
    if (number !== undefined) this.existed(number);
    return number !== undefined;
  }

  /** Records that the insertion of a document failed because it existed in the collection with this number. */
  existed(collectionNumber: bigint): void {
    this.inARow.set(collectionNumber, 0);
  }
}

/** Whether a statement that wrote documents has replaced one, as an upsert says; the others only insert. */
const hasReplaced = (answer: StepAnswer | undefined): boolean =>
  answer?.rows.some(([replaced]) => replaced !== '0') ?? false;
