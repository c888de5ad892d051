import { statfs } from 'node:fs/promises';

/** Two files of the write-ahead log: if Postgres cannot create the next one, it ends with a PANIC. */
const neededBytes = 2 * 16 * 1024 * 1024;

/** Whether a cluster's disk is too full to write. */
export async function isWithoutRoom(directory: string): Promise<boolean> {
  const disk = await statfs(directory).catch(() => undefined);
  return disk !== undefined && disk.bavail * disk.bsize < neededBytes;
}
