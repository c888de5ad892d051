import { randomUUID } from 'node:crypto';
import { open, rename } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import path from 'node:path';

/**
 * Streams a request body into a file of the folder, durably: the file is synced, and the folder after the rename.
 * Returns its id and size.
 */
export async function receiveFile(
  directory: string,
  request: IncomingMessage,
): Promise<{ id: string; sizeBytes: number }> {
  const id = randomUUID();
  const temporary = path.join(directory, `${id}.part`);
  const file = await open(temporary, 'wx');
  let sizeBytes = 0;
  try {
    for await (const data of request) {
      const chunk = data as Buffer;
      await file.write(chunk);
      sizeBytes += chunk.length;
    }
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(temporary, path.join(directory, id));
  const folder = await open(directory, 'r');
  await folder.sync().finally(() => folder.close());
  return { id, sizeBytes };
}
