import type { Pool } from '@granary/shared/postgres/pool';
import { markStored, type StoredUpload } from './blobs';

/** Marks an upload of a collection as stored. */
export type MarkStored = (appId: string, collection: string, upload: StoredUpload) => Promise<void>;

interface Batch {
  uploads: StoredUpload[];
  marked: Promise<void>;
}

/**
 * Marks uploads as stored, with group commit by collection: uploads of a collection update the same usage row, so they
 * are serial anyway, and one transaction saves a flush for each. Bounded by the number of transfers in flight.
 */
export function createStoredUploadBatcher(pool: Pool): MarkStored {
  /** The batch of each collection that has not begun. */
  const waiting = new Map<string, Batch>();
  /** The end of the latest batch of each collection. */
  const last = new Map<string, Promise<void>>();
  return (appId, collection, upload) => {
    const key = JSON.stringify([appId, collection]);
    const together = waiting.get(key);
    if (together) {
      together.uploads.push(upload);
      return together.marked;
    }
    const uploads = [upload];
    const mark = () => {
      waiting.delete(key);
      return markStored(pool, uploads);
    };
    // The failure of the batch before was reported to its own callers.
    const marked = (last.get(key) ?? Promise.resolve()).then(mark, mark);
    waiting.set(key, { uploads, marked });
    last.set(key, marked);
    const forget = () => {
      if (last.get(key) === marked) last.delete(key);
    };
    marked.then(forget, forget);
    return marked;
  };
}
