import { invalid } from '@granary/shared/errors';
import type { WritePrices } from '@granary/shared/gen/granary/data/v1/WritePrices';
import type { WritePricesRequest } from '@granary/shared/gen/granary/data/v1/WritePricesRequest';
import { isAnswerKept } from '@granary/shared/idempotency/answers';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import type { JsonValue } from '@granary/shared/json/value';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { findApp } from '../catalog/app';
import type { CollectionRef } from '../catalog/collection';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { readLargeStoreRoot } from '../documents/store-root';
import { readJsonText } from '../query/language/paging';
import { readPricesOfIndexes } from './operation-prices';
import type { FastContext } from '../postgres/databases';

/** The values of `price` indexes are read out of bodies up to this size. */
const valuedBytesMax = 1024 * 1024;

/**
 * Computes the price of a write from its size, the indexed fields and what the app asks. The size is that of the body
 * as it was sent, or of the file. Throws APP_NOT_FOUND, VALIDATION_FAILED, LIMIT_EXCEEDED for a body above 1 MiB
 * where a `price` index counts its values.
 */
export async function getWritePrices({ fast: db }: FastContext, request: WritePricesRequest): Promise<WritePrices> {
  const { appId, body } = request;
  const app = await findApp(db, appId);
  const name = request.collection === '' ? (await readLargeStoreRoot(body, appId)).collection : request.collection;
  const sizeBytes = body.length === 0 ? request.sizeBytes : String(body.length);
  const collection = await row<{ number: bigint }>(
    db,
    sql`select number from collection
        where app_number = ${app.number} and name = ${name} and deleted_at is null and write_pricing`,
  );
  if (!collection)
    return { isPriced: false, collection: name, sizeBytes, indexedFields: [], prices: [], isKept: false };
  const key = toIdempotencyKey(request.idempotency);
  const isKept = key !== undefined && (await isAnswerKept(db, key));
  const prices = await pricesOfWrite(db, { name, number: collection.number }, { ...request, sizeBytes });
  return { ...prices, isKept };
}

/** The body of a write, as it was sent. */
export interface PricedBody {
  /** Empty: a body of /store, which names the collection. */
  collection: string;
  body: Buffer;
  sizeBytes: string;
}

/** Reads what the price of a write to a collection with write_pricing depends on. Throws as `getWritePrices`. */
export async function pricesOfWrite(
  db: Queryable,
  { name, number }: Pick<CollectionRef, 'name' | 'number'>,
  written: PricedBody,
): Promise<WritePrices> {
  const indexes = await readPricesOfIndexes(db, number);
  const documents = indexes.hasValues ? documentsOf(written) : [];
  return {
    isPriced: true,
    collection: name,
    sizeBytes: written.sizeBytes,
    indexedFields: [...indexes.indexedFields],
    prices: indexes.pricesFor(documents),
    isKept: false,
  };
}

function documentsOf({ collection, body }: PricedBody): readonly JsonValue[] {
  if (body.length === 0) return [];
  if (body.length > valuedBytesMax) {
    const message = `A write that a price index counts has at most ${valuedBytesMax} bytes`;
    throw invalid(message, { data: ['is too large'] }, LIMIT_EXCEEDED);
  }
  const value = readJsonText(body, 'data');
  const data = collection === '' && value instanceof Map ? value.get('data') : value;
  if (data === undefined) return [];
  return Array.isArray(data) ? data : [data];
}
