import type { Pool } from '@granary/shared/postgres/pool';
import { markStored, type StoredUpload } from './blobs';

/** Marks an upload of a collection as stored. */
export type Marking = (appId: string, collection: string, upload: StoredUpload) => Promise<void>;

interface Batch {
  uploads: StoredUpload[];
  marked: Promise<void>;
}

/**
 * Marks uploads as stored, together those of a collection that wait at the same moment: all of them count on one row,
 * so they would follow each other in any case, each with a flush to disk of its own. There are never more than the
 * transfers under way.
 */
export function createMarking(pool: Pool): Marking {
  /** Of each collection, the batch that has not begun. */
  const waiting = new Map<string, Batch>();
  /** And the end of the batch that was begun or queued last. */
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
    // The one before has told its own callers how it ended.
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
