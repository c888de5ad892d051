import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';

const bufferBytes = 1024 * 1024;

/**
 * Writes a new file that only its owner can read, and syncs it. Its directory is not synced. On a failure, of the source too,
 * or when `signal` is aborted, no file is left. Throws EEXIST where there is one, and what the source throws.
 */
export async function writeNewFile(
  path: string,
  source: AsyncIterable<Buffer | string>,
  signal?: AbortSignal,
): Promise<void> {
  // `flush` syncs the file before it is closed, and the pipeline ends after that.
  const sink = createWriteStream(path, { flags: 'wx', mode: 0o600, highWaterMark: bufferBytes, flush: true });
  try {
    await pipeline(source, sink, { ...(signal && { signal }) });
  } catch (error) {
    // A pipeline fails at once, while the file may still be about to be created.
    if (!sink.closed) await new Promise<void>((resolve) => sink.once('close', resolve));
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') await rm(path, { force: true });
    throw error;
  }
}
