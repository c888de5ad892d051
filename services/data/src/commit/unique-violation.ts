import { conflict, type ServiceError } from '@granary/shared/errors';
import { violatedConstraint } from '@granary/shared/postgres/errors';
import type { RowsByCollection } from './plan';
import type { Write } from './write';
import { uniqueIndexNumber } from '../tables/postgres-index';
import { UNIQUE_VIOLATION, uniqueIndexes } from '../catalog/index-definition';

/** A violated unique index, with the field and the place of the document; undefined for any other error. */
export function uniqueViolation(error: unknown, rows: RowsByCollection): UniqueViolationError | undefined {
  const number = uniqueIndexNumber(violatedConstraint(error));
  if (number === undefined) return undefined;
  for (const [collection, documents] of rows) {
    const uniques = uniqueIndexes(collection.indexes);
    const position = uniques.findIndex((index) => index.number === number);
    if (position < 0) continue;
    // `Key (column)=(value) already exists.`, in the language of the server.
    const [, value] = /\)=\(([^]*)\)[^)]*$/.exec(String((error as { detail?: unknown }).detail)) ?? [];
    const same = documents.filter(({ document }) => document.uniques?.[position] === value);
    // If two documents of one call have the value, the second one violates the index in any case.
    const place = (same[1] ?? same[0])?.place ?? 0;
    return new UniqueViolationError(collection.name, uniques[position]!.fields, place, error);
  }
  return undefined;
}

/**
 * The number of the collection that has a document with the id of one that was inserted; undefined for any other error.
 * Postgres checks ids row by row, and unique indexes at the end of the statement: an id that exists comes first.
 */
export function collectionOfDuplicate(error: unknown): bigint | undefined {
  const match = /^c_(\d{1,19})_pkey$/.exec(violatedConstraint(error) ?? '');
  return match ? BigInt(match[1]!) : undefined;
}

/** Ends a transaction, so it cannot be the outcome of one write of a batch; alone, its refusal can. */
export class UniqueViolationError extends Error {
  constructor(
    readonly collection: string,
    readonly fields: readonly string[],
    readonly place: number,
    cause: unknown,
  ) {
    super('a unique index was violated', { cause });
  }

  /** `write` is the one that was refused. */
  toServiceError(write: Pick<Write, 'pathOf'>): ServiceError {
    const base = write.pathOf?.(this.collection, this.place) ?? `data[${this.place}].`;
    const message = 'must be unique, and another document has the same value';
    const details = this.fields.map((field) => [`${base}${field}`, [message]] as const);
    return conflict(
      UNIQUE_VIOLATION,
      `Another document has the same value of ${this.fields.join(', ')}`,
      Object.fromEntries(details),
    );
  }
}
