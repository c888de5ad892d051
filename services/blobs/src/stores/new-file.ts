import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';

const bufferBytes = 1024 * 1024;

/**
 * Writes what `through` makes of a source to a new file that only its owner can read, and syncs it, but not its
 * directory. On a failure, also of the source, or when `signal` is aborted, no file is left, and a source that is a
 * stream is destroyed. Throws EEXIST where there is a file, which stays as it is, and what the source throws.
 */
export async function writeNewFile<Item>(
  path: string,
  source: AsyncIterable<Item>,
  through: (items: AsyncIterable<Item>) => AsyncIterable<Buffer | string>,
  signal?: AbortSignal,
): Promise<void> {
  // `flush` syncs the file before it is closed, and the pipeline ends after that.
  const sink = createWriteStream(path, { flags: 'wx', mode: 0o600, highWaterMark: bufferBytes, flush: true });
  try {
    await pipeline(source, through, sink, { ...(signal && { signal }) });
  } catch (error) {
    // A pipeline fails at once, while the file may still be about to be created.
    if (!sink.closed) await new Promise<void>((resolve) => sink.once('close', resolve));
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') await rm(path, { force: true });
    throw error;
  }
}
