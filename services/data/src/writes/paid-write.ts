import { ServiceError } from '@granary/shared/errors';
import type { WritePrices } from '@granary/shared/gen/granary/data/v1/WritePrices';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { CollectionRef } from '../catalog/collection';
import { PAYMENT_REQUIRED } from '../catalog/read-price';
import { UniqueViolationError } from '../commit/unique-violation';
import type { Write } from '../commit/write';
import { pricesOfWrite, type PricedBody } from '../collections/write-prices';
import type { PreparedDocument } from '../documents/parser';
import { takenValues } from './taken-values';

/** The refusal of a write whose documents could be written, but for its price and for values that are taken. */
class UnpaidWriteError extends ServiceError {
  constructor(
    readonly collection: CollectionRef,
    readonly documents: readonly PreparedDocument[],
  ) {
    const details = { collection: collection.name };
    super('FAILED_PRECONDITION', PAYMENT_REQUIRED, `Writes to ${collection.name} cost something`, { details });
  }
}

/** Throws PAYMENT_REQUIRED for documents that are not paid and that a collection takes for money only. */
export function requirePaid(
  collection: CollectionRef | undefined,
  isPaid: boolean,
  documents: readonly PreparedDocument[],
): void {
  if (!isPaid && collection?.hasWritePricing) throw new UnpaidWriteError(collection, documents);
}

/** A call that writes, and its body. */
export interface WriteCall extends Pick<PricedBody, 'collection' | 'body'> {
  acceptsPrice?: boolean;
}

/**
 * Reads what the price of a write depends on that fails with `error` for want of payment alone, for a caller that
 * accepts prices. Throws the refusal of the write otherwise.
 */
export async function pricesOrRefusal(
  db: Queryable,
  write: Write,
  error: unknown,
  { acceptsPrice, collection, body }: WriteCall,
): Promise<WritePrices> {
  const refusal = await refusalOf(db, write, error);
  if (!acceptsPrice || !(refusal instanceof UnpaidWriteError)) throw refusal;
  return pricesOfWrite(db, refusal.collection, { collection, body, sizeBytes: String(body.length) });
}

/**
 * The refusal of a write: UNIQUE_VIOLATION instead of PAYMENT_REQUIRED where a value is taken, because what cannot be
 * done should not be paid. The value may still be taken between this look and the paid write.
 */
async function refusalOf(db: Queryable, write: Write, error: unknown): Promise<unknown> {
  if (!(error instanceof UnpaidWriteError)) return error;
  const { collection, documents } = error;
  const [taken] = await takenValues(db, collection, documents);
  if (!taken) return error;
  return new UniqueViolationError(collection.name, taken.index.fields, taken.place, error).toServiceError(write);
}
