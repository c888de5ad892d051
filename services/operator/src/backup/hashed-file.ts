import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { writeNewFile } from '@granary/blobs/stores/new-file';
import { createMeasure } from '@granary/blobs/stores/store';

/** The size and the SHA-256 (hex) of a file. */
export interface FileSum {
  sizeBytes: number;
  sha256: string;
}

const bufferBytes = 1024 * 1024;

/**
 * Writes and syncs a new file that only its owner can read. A partial file is removed. `onBytes` is called with the
 * size of each chunk.
 */
export async function writeHashed(
  file: string,
  source: AsyncIterable<Buffer>,
  onBytes: (count: number) => void = () => {},
  signal?: AbortSignal,
): Promise<FileSum> {
  const measure = createMeasure();
  await writeNewFile(file, source, (chunks) => counted(measure.through(chunks), onBytes), signal);
  return measure.result();
}

export async function hashFile(file: string, onBytes: (count: number) => void = () => {}): Promise<FileSum> {
  const measure = createMeasure();
  const chunks = counted(measure.through(readChunks(file)), onBytes);
  while (!(await chunks.next()).done);
  return measure.result();
}

/** Opens the file when the first chunk is read; an unread stream would emit an error without a listener. */
export async function* readChunks(file: string): AsyncGenerator<Buffer> {
  yield* createReadStream(file, { highWaterMark: bufferBytes }) as AsyncIterable<Buffer>;
}

/** Syncs a directory, so that its entries survive a power failure. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function* counted(chunks: AsyncIterable<Buffer>, onBytes: (count: number) => void): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    onBytes(chunk.length);
    yield chunk;
  }
}
