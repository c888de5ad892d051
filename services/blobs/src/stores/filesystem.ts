import { randomBytes } from 'node:crypto';
import { mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { unavailable } from '@granary/shared/errors';
import { storageFull } from '@granary/shared/health/storage-monitor';
import { writeNewFile } from './new-file';
import { createMeasure, type ObjectStore, type ReceivedObject } from './store';

const KEY = /^[0-9a-f]{2}\/[0-9a-f]{2}\/[0-9a-f]{32}$/;

/** Read-ahead for each object that is read. */
const readBufferBytes = 256 * 1024;

/** The path of an object of the store in `directory`. Throws a RangeError for an invalid key. */
export function filesystemPath(directory: string, key: string): string {
  if (!KEY.test(key)) throw new RangeError('not a key of this store');
  return join(directory, 'objects', key);
}

/**
 * An object store in a directory of one process: `objects/` holds the objects, two levels deep by the first digits of
 * their keys, `tmp/` the uploads under way. Opening it empties `tmp/`, where a crash may have left files.
 */
export async function openFilesystemStore(directory: string): Promise<ObjectStore> {
  const objects = join(directory, 'objects');
  const temporary = join(directory, 'tmp');
  await mkdir(objects, { recursive: true, mode: 0o700 });
  await rm(temporary, { recursive: true, force: true });
  await mkdir(temporary, { mode: 0o700 });
  await syncDirectory(directory);

  const pathOf = (key: string) => filesystemPath(directory, key);
  return {
    receive: (source) => explained(receive(objects, temporary, source)),
    read: async (key, range) => {
      const handle = await existing(open(pathOf(key), 'r'));
      return handle?.createReadStream({ ...range, highWaterMark: readBufferBytes });
    },
    stat: async (key) => {
      const stats = await existing(stat(pathOf(key)));
      return stats && { sizeBytes: stats.size };
    },
    delete: (key) => remove(pathOf(key)),
    probe: () => explained(probe(join(temporary, 'probe'))),
  };
}

async function receive(objects: string, temporary: string, source: AsyncIterable<Buffer>): Promise<ReceivedObject> {
  const name = randomBytes(16).toString('hex');
  const key = `${name.slice(0, 2)}/${name.slice(2, 4)}/${name}`;
  const path = join(temporary, name);
  const measure = createMeasure();
  await writeNewFile(path, source, (chunks) => measure.through(chunks));
  return {
    key,
    ...measure.result(),
    keep: () => explained(keep(path, join(objects, key), objects)),
    discard: () => rm(path, { force: true }),
  };
}

async function keep(from: string, to: string, objects: string): Promise<void> {
  const created = await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  await rename(from, to);
  await syncDirectory(dirname(to));
  // A new directory is itself an entry to be synced, up to the one that existed before.
  if (created === undefined) return;
  await syncDirectory(dirname(dirname(to)));
  await syncDirectory(objects);
}

async function remove(path: string): Promise<void> {
  await rm(path, { force: true });
  // Otherwise a deleted object could reappear after a power cut.
  await existing(syncDirectory(dirname(path)));
}

async function probe(path: string): Promise<void> {
  const content = randomBytes(16);
  const handle = await open(path, 'w+', 0o600);
  try {
    await handle.write(content, 0, content.length, 0);
    await handle.datasync();
    const { buffer } = await handle.read(Buffer.alloc(content.length), 0, content.length, 0);
    if (!buffer.equals(content)) throw new Error('the object store returned other bytes than were written');
  } finally {
    await handle.close();
  }
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const codeOf = (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : '');

async function existing<T>(result: Promise<T>): Promise<T | undefined> {
  try {
    return await result;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

const withoutRoom = new Set(['ENOSPC', 'EDQUOT']);
const outOfResources = new Set(['EMFILE', 'ENFILE', 'EROFS', 'EIO']);

async function explained<T>(result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (error) {
    if (withoutRoom.has(codeOf(error))) throw storageFull('objects', error);
    throw outOfResources.has(codeOf(error)) ? unavailable('The object store cannot take in more', error) : error;
  }
}
