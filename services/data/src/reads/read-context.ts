import type { ReaderCache } from '../catalog/cache';
import type { CollectionRef } from '../catalog/collection';
import type { SharedDatabases } from '../query/execute/read-scheduler';

/** The context of a read: the databases, and the cached collections. */
export interface ReadContext extends SharedDatabases {
  readers: ReaderCache;
}

/** A collection: as it is now where its counters are part of the response, else from the cache. */
export function lookUpCollection(
  db: ReadContext,
  appId: string,
  name: string,
  isFresh: boolean,
): Promise<CollectionRef | undefined> {
  return isFresh ? db.readers.getFresh(appId, name) : db.readers.get(appId, name);
}
