import { invalid } from '@granary/shared/errors';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import type { JsonReader } from '@granary/shared/json/reader';
import { collectionOf, openObject, readAtOnce, readInSlices, skippingSteps } from './parser';

/** The root of a body of `/store`, read. */
export interface StoreRoot {
  collection: string;
  /** The reader that `prepareBody` goes on with, once; undefined unless the root came first, as it usually does. */
  rest: JsonReader | undefined;
}

/**
 * Reads the collection that the body of `/store` (`{"root": "app::collection", "data": [object, …]}`) is for, and no
 * further than that. Throws MALFORMED_JSON, VALIDATION_FAILED, or FORBIDDEN when the root names another app than the
 * caller's.
 */
export const readStoreRoot = (body: Buffer, appId: string): StoreRoot => readAtOnce(rootSteps(body, appId));

/** Reads the root of a large body as readStoreRoot() does, while others have their turns where the root comes late. */
export const readLargeStoreRoot = (body: Buffer, appId: string): Promise<StoreRoot> =>
  readInSlices(rootSteps(body, appId), { priority: true });

function* rootSteps(body: Buffer, appId: string): Task<StoreRoot> {
  const reader = openObject(body);
  for (let isFirst = true; reader.nextMember(); isFirst = false) {
    const type = reader.peekType();
    if (type === 'string' && reader.key() === 'root') {
      return { collection: collectionOf(reader.readString(), appId), rest: isFirst ? reader : undefined };
    }
    if (type === 'array') yield* skippingSteps(reader);
    else reader.skipValue();
  }
  reader.end();
  throw invalid('The request is not valid', { root: ['is required and must be a string, app_id::collection'] });
}
