import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { busMigrations } from '@granary/shared/bus/migrations';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations, migrate } from '@granary/shared/postgres/migrate';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { handleEvent } from '../src/events';
import { detachObjects, findBlobs, insertPending, markDeleted, markStored } from '../src/records/blobs';

const collection = 'files';
let pool: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 4, applicationName: 'test', log: createLogger('blobs', 'silent') });
  await applyMigrations(pool, 'bus', busMigrations);
  await migrate(pool, join(__dirname, '..', 'migrations'));
});
afterAll(() => pool.end());

/** An app of its own, in which all files have one id. */
function newFile() {
  const appId = `app-${randomUUID()}`;
  const id = { appId, appNumber: 1n, collection, blobId: randomUUID() };
  const upload = async (content: string, appNumber = '1') => {
    const rowId = randomUUID();
    await insertPending(pool, {
      ...id,
      rowId,
      appNumber,
      objectKey: rowId,
      sha256: content,
      sizeBytes: 5,
      contentType: 'text/plain',
      filename: null,
      ticket: randomUUID(),
    });
    return rowId;
  };
  const commit = (rowId: string, height: bigint, collectionNumber = 4n) =>
    markStored(pool, [{ rowId, transactionHash: 'ab'.repeat(32), height, collectionNumber }]);
  const stored = async (content: string, height: bigint) => {
    const rowId = await upload(content);
    await commit(rowId, height);
    return rowId;
  };
  const present = async () => (await findBlobs(pool, appId, collection, id.blobId)).map(({ sha256 }) => sha256);
  const usage = () =>
    rows(
      pool,
      sql`select size_bytes::int as bytes, blob_count::int as count from numbered_blob_usage where app_id = ${appId}`,
    );
  const tell = (type: string, payload: Record<string, unknown>) =>
    transaction(pool, (tx) =>
      handleEvent(tx, {
        id: randomUUID(),
        topic: 'usage',
        key: appId,
        aggregateId: appId,
        aggregateSequence: 1n,
        at: new Date().toISOString(),
        type,
        payload: { app_id: appId, collection, ...payload },
      }),
    );
  return { id, upload, commit, stored, present, usage, tell };
}

test('a deletion ends the files of its id that were stored before it, and none that was stored later', async () => {
  const file = newFile();
  const older = await file.stored('older', 3n);
  await file.stored('newer', 9n);
  expect(await markDeleted(pool, file.id, 5n)).toEqual([older]);
  expect([await file.present(), await file.usage()]).toEqual([['newer'], [{ bytes: 5, count: 1 }]]);
  expect(await markDeleted(pool, file.id, 5n)).toEqual([]);
  expect(await file.present()).toEqual(['newer']);
});

test('an upload of unknown outcome is decided by the height at which it turns out to be committed', async () => {
  const file = newFile();
  const [older, newer] = [await file.upload('older'), await file.upload('newer')];
  expect(await markDeleted(pool, file.id, 7n)).toEqual([]);
  expect(await markDeleted(pool, file.id, 6n)).toEqual([]);
  await file.commit(older, 5n);
  await file.commit(newer, 9n);
  expect([await file.present(), await file.usage()]).toEqual([['newer'], [{ bytes: 5, count: 1 }]]);
  await detachObjects(pool, 100);
  const keys = await rows(
    pool,
    sql`select object_key as key from blob where blob_id = any(${[older, newer]}) order by height`,
  );
  expect(keys).toEqual([{ key: null }, { key: newer }]);
});

test('an upload that alone was deleted before it was marked as stored counts nowhere', async () => {
  const file = newFile();
  const rowId = await file.upload('gone');
  await markDeleted(pool, file.id, 7n);
  await file.commit(rowId, 5n);
  expect([await file.present(), await file.usage()]).toEqual([[], []]);
});

test.each(['documents.purged', 'collection.deleted'])(
  '%s ends what was stored up to its height, however old the rows are, and spares what came after',
  async (type) => {
    const file = newFile();
    await file.stored('before', 4n);
    const [pendingBefore, pendingAfter] = [await file.upload('pending before'), await file.upload('pending after')];
    await file.stored('after', 8n);
    await file.tell(type, { ids: [file.id.blobId], app_number: '1', height: '6', collection_number: '4' });
    await file.commit(pendingBefore, 6n);
    await file.commit(pendingAfter, 7n);
    expect(await file.present()).toEqual(['after', 'pending after']);
  },
);

test('a later app of the same id keeps its files, and shows none of the app before', async () => {
  const file = newFile();
  await file.stored('of the app before', 900n);
  const rowId = await file.upload('of this app', '2');
  await file.commit(rowId, 5n);
  expect(await file.present()).toEqual(['of this app', 'of the app before']);
  await file.tell('collection.deleted', { app_number: '1', height: '1000', collection_number: '4' });
  await markDeleted(pool, file.id, 1_000n);
  expect(await file.present()).toEqual(['of this app']);
});

test('an erasure of an older release, which names no height, ends what was uploaded before its time', async () => {
  const file = newFile();
  await file.stored('before', 4n);
  await file.tell('documents.purged', { ids: [file.id.blobId] });
  expect(await file.present()).toEqual([]);
});

test('an event whose height is no number is not applied', async () => {
  const file = newFile();
  await file.stored('kept', 4n);
  const payload = { ids: [file.id.blobId], app_number: '1', height: 6 };
  await expect(file.tell('documents.purged', payload)).rejects.toThrow('the height of documents.purged is wrong');
  expect(await file.present()).toEqual(['kept']);
});
