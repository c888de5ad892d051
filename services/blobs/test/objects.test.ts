import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { applyMigrations, migrate } from '@granary/shared/postgres/migrate';
import { busMigrations } from '@granary/shared/bus/migrations';
import { createLogger } from '@granary/shared/logger';
import type { ObjectStore } from '../src/stores/store';
import { createPool, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { discardPending, detachObjects, insertPending, markDeleted, markStored } from '../src/records/blobs';
import { createRemoval, removalLockKey } from '../src/records/removal';
import { createStoredUploadBatcher } from '../src/records/stored-uploads';
import { findReleased } from '../src/objects/objects';

const log = createLogger('blobs', 'silent');
let pool: Pool;
/** A backup is another process, with connections of its own. */
let backup: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 6, applicationName: 'test', log });
  backup = createPool({ url, size: 1, applicationName: 'backup', log });
  await applyMigrations(pool, 'bus', busMigrations);
  await migrate(pool, join(__dirname, '..', 'migrations'));
});
afterAll(() => Promise.all([pool.end(), backup.end()]));

const commit = { transactionHash: 'ab'.repeat(32), height: 1n, collectionNumber: 4n };

/** An app of its own, and uploads of the same bytes to it. */
function newApp() {
  const appId = `app-${randomUUID()}`;
  const pending = async (db: Queryable) => {
    const [rowId, objectKey] = [randomUUID(), randomUUID()];
    const used = await insertPending(db, {
      rowId,
      blobId: rowId,
      appId,
      appNumber: '1',
      collection: 'c',
      objectKey,
      sha256: 'cd',
      sizeBytes: 5,
      contentType: 'text/plain',
      filename: null,
      ticket: randomUUID(),
    });
    return { rowId, own: objectKey, used };
  };
  const stored = async () => {
    const blob = await pending(pool);
    await markStored(pool, [{ rowId: blob.rowId, ...commit }]);
    return blob;
  };
  const keysInUse = async () => {
    const found = await rows<{ key: string }>(
      pool,
      sql`select distinct object_key as key from blob where app_id = ${appId} and object_key is not null`,
    );
    return found.map(({ key }) => key);
  };
  return { appId, pending, stored, keysInUse };
}

/** Resolves once a statement of the pool waits for a lock of another. */
async function somebodyWaits(): Promise<void> {
  await eventually(async () => {
    const { rowCount } = await pool.query(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    return rowCount !== 0;
  });
}

test('an object that an upload is about to use is not released, although its last blob goes at the same moment', async () => {
  const { appId, pending, stored } = newApp();
  const last = await stored();
  await markDeleted(pool, { appId, appNumber: 1n, collection: 'c', blobId: last.rowId }, 2n);
  let releasing: Promise<number> | undefined;
  const { used } = await transaction(pool, async (tx) => {
    const blob = await pending(tx);
    releasing = detachObjects(pool, 100);
    await somebodyWaits();
    return blob;
  });
  await releasing;
  expect(used).toBe(last.own);
  expect(await findReleased(pool, 1_000)).not.toContain(last.own);
});

test('an upload does not use an object that is being released', async () => {
  const { appId, pending, stored } = newApp();
  const last = await stored();
  await markDeleted(pool, { appId, appNumber: 1n, collection: 'c', blobId: last.rowId }, 2n);
  let uploading: ReturnType<typeof pending> | undefined;
  await transaction(pool, async (tx) => {
    await tx.query(`update blob set object_key = null where app_id = '${appId}'`);
    await tx.query(`update object set released_at = now() where app_id = '${appId}'`);
    uploading = pending(pool);
    await somebodyWaits();
  });
  const blob = (await uploading)!;
  expect(blob.used).toBe(blob.own);
});

test('two that are stored at the same moment end up with one object, and the other is released', async () => {
  const { pending, keysInUse } = newApp();
  const blobs = await Promise.all([pending(pool), pending(pool), pending(pool), pending(pool)]);
  expect(new Set(blobs.map(({ used }) => used)).size).toBe(4);
  await Promise.all(blobs.map(({ rowId }) => markStored(pool, [{ rowId, ...commit }])));
  const inUse = await keysInUse();
  expect(inUse.length).toBe(1);
  const released = await findReleased(pool, 1_000);
  expect(blobs.map(({ own }) => own).filter((key) => released.includes(key)).length).toBe(3);
  expect(released).not.toContain(inUse[0]);
});

test('those with the same bytes that are marked together end up with one object as well', async () => {
  const { pending, keysInUse } = newApp();
  const before = await pending(pool);
  const blobs = await Promise.all([pending(pool), pending(pool), pending(pool)]);
  await markStored(
    pool,
    [before, ...blobs].map(({ rowId }) => ({ rowId, ...commit })),
  );
  const inUse = await keysInUse();
  expect(inUse.length).toBe(1);
  const released = await findReleased(pool, 1_000);
  expect([before, ...blobs].filter(({ own }) => released.includes(own)).length).toBe(3);
  expect(released).not.toContain(inUse[0]);
});

test('uploads that are marked beside each other are each counted once, and others hear of the sum last', async () => {
  const { appId, pending } = newApp();
  const markOne = createStoredUploadBatcher(pool);
  const blobs = await Promise.all(Array.from({ length: 20 }, () => pending(pool)));
  const mark = ({ rowId }: { rowId: string }) => markOne(appId, 'c', { rowId, ...commit });
  await Promise.all(blobs.map(mark));
  // Again changes nothing.
  await Promise.all(blobs.map(mark));
  const states = await rows<{ state: string }>(pool, sql`select distinct state from blob where app_id = ${appId}`);
  expect(states).toEqual([{ state: 'stored' }]);
  const events = await rows<{ sequence: bigint; payload: string }>(
    pool,
    sql`select agg_seq as sequence, payload::text from outbox where key = ${appId} order by agg_seq`,
  );
  expect(events.map(({ sequence }) => Number(sequence))).toEqual(events.map((_, at) => at + 1));
  expect(JSON.parse(events.at(-1)!.payload)).toMatchObject({ blob_count: 20, size_bytes: 100 });
});

test('uploads whose marking fails do not hold up those that come after them', async () => {
  const { appId, pending } = newApp();
  const markOne = createStoredUploadBatcher(pool);
  const [broken, whole] = [await pending(pool), await pending(pool)];
  const failing = markOne(appId, 'c', { ...commit, rowId: broken.rowId, transactionHash: '\0' });
  failing.catch(() => {});
  // The first one is under way, so this is the next batch.
  await Promise.resolve();
  await markOne(appId, 'c', { rowId: whole.rowId, ...commit });
  await expect(failing).rejects.toThrow();
  const stored = await rows<{ id: string }>(
    pool,
    sql`select blob_id as id from blob where app_id = ${appId} and state = 'stored'`,
  );
  expect(stored).toEqual([{ id: whole.rowId }]);
});

test('an upload that is not stored shares its object with nobody, and one that is given up releases only its own', async () => {
  const { pending, stored } = newApp();
  const first = await pending(pool);
  const second = await stored();
  expect(second.used).toBe(second.own);
  const third = await pending(pool);
  expect(third.used).toBe(second.own);
  await discardPending(pool, first.rowId);
  await discardPending(pool, third.rowId);
  const released = await findReleased(pool, 1_000);
  expect([released.includes(first.own), released.includes(second.own)]).toEqual([true, false]);
});

test('the same bytes in another app have an object of their own', async () => {
  const first = await newApp().stored();
  const other = await newApp().stored();
  expect([first.used, other.used]).toEqual([first.own, other.own]);
});

test('after a removal that failed a backup has its lock at once, and the next removal goes on', async () => {
  const { appId, stored } = newApp();
  const last = await stored();
  await markDeleted(pool, { appId, appNumber: 1n, collection: 'c', blobId: last.rowId }, 2n);
  const removed: string[] = [];
  let isAway = true;
  const store = {
    delete: (key: string) => {
      if (isAway) return Promise.reject(new Error('the object store is away'));
      removed.push(key);
      return Promise.resolve();
    },
  };
  const remove = createRemoval(pool, store as ObjectStore);
  await expect(remove()).rejects.toThrow('the object store is away');
  await transaction(backup, async (tx) => {
    const lock = sql`select pg_try_advisory_xact_lock(${removalLockKey}::bigint) as "isLocked"`;
    expect(await rows(tx, lock)).toEqual([{ isLocked: true }]);
    isAway = false;
    await remove();
    expect(removed).toEqual([]);
  });
  await remove();
  expect(removed).toContain(last.own);
});
