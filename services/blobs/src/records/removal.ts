import type { ObjectStore } from '../stores/store';
import { row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { detachObjects } from './blobs';
import { findReleased, deleteReleased } from '../objects/objects';

const batchSize = 100;

/**
 * The advisory lock, in the database of blobs, that a backup holds exclusively while it copies objects; removal holds
 * it shared. It belongs to a session, so it is released as soon as a backup is killed.
 */
export const removalLockKey = 4_702_117_307;

/**
 * Removes the bytes that no blob uses: those of deleted blobs and of abandoned uploads. While a backup copies objects
 * nothing is removed; a later call does it.
 */
export type Removal = (isStopping?: () => boolean) => Promise<void>;

/** One pass runs at a time, because each holds a connection; calls that arrive meanwhile share the next pass. */
export function createRemoval(pool: Pool, store: ObjectStore): Removal {
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  const start: Removal = (isStopping = () => false) => {
    running = removeReleased(pool, store, isStopping).finally(() => {
      running = undefined;
    });
    return running;
  };
  return (isStopping) => {
    if (running === undefined) return start(isStopping);
    next ??= running
      .catch(() => {})
      .then(() => {
        next = undefined;
        return start(isStopping);
      });
    return next;
  };
}

async function removeReleased(pool: Pool, store: ObjectStore, isStopping: () => boolean): Promise<void> {
  while (!isStopping() && (await detachObjects(pool, batchSize)) === batchSize);
  while (!isStopping() && (await findReleased(pool, 1)).length > 0) {
    const isAllowed = await unlessBackedUp(pool, async (db) => {
      const keys = await findReleased(db, batchSize);
      // The rows go last, so that a crash in between leaves nothing that is not tried again.
      for (const key of keys) await store.delete(key);
      await deleteReleased(db, keys);
    });
    if (!isAllowed) return;
  }
}

/** Runs `remove` on a connection that holds the lock shared. False while a backup holds the lock or waits for it. */
async function unlessBackedUp(pool: Pool, remove: (db: Connection) => Promise<void>): Promise<boolean> {
  const db = await pool.connect();
  let isUnlocked = false;
  try {
    const tried = await row<{ locked: boolean }>(
      db,
      sql`select pg_try_advisory_lock_shared(${removalLockKey}::bigint) as locked`,
    );
    if (tried?.locked === true) {
      await remove(db);
      await row(db, sql`select pg_advisory_unlock_shared(${removalLockKey}::bigint)`);
    }
    isUnlocked = true;
    return tried?.locked === true;
  } finally {
    // A connection that is closed holds no lock.
    db.release(!isUnlocked);
  }
}
