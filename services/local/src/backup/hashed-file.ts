import { createReadStream, createWriteStream } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createMeasure } from '@granary/shared/objects/store';

/** The size of a file and the SHA-256 of its bytes, in hex. */
export interface FileSum {
  sizeBytes: number;
  sha256: string;
}

const bufferBytes = 1024 * 1024;

/**
 * Writes a new file that its owner alone may read, and syncs it. A file that cannot be completed is removed.
 * `onBytes` is called with the size of each chunk.
 */
export async function writeHashed(
  file: string,
  source: AsyncIterable<Buffer>,
  onBytes: (count: number) => void = () => {},
  signal?: AbortSignal,
): Promise<FileSum> {
  const measure = createMeasure();
  try {
    const sink = createWriteStream(file, { flags: 'wx', mode: 0o600, highWaterMark: bufferBytes, flush: true });
    await pipeline(source, (chunks: AsyncIterable<Buffer>) => counted(measure.through(chunks), onBytes), sink, {
      ...(signal && { signal }),
    });
    return measure.result();
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  }
}

export async function hashFile(file: string, onBytes: (count: number) => void = () => {}): Promise<FileSum> {
  const measure = createMeasure();
  const chunks = counted(measure.through(readChunks(file)), onBytes);
  while (!(await chunks.next()).done);
  return measure.result();
}

/** The file is opened when the first chunk is asked for; a stream that nobody reads yet would fail without a listener. */
export async function* readChunks(file: string): AsyncGenerator<Buffer> {
  yield* createReadStream(file, { highWaterMark: bufferBytes }) as AsyncIterable<Buffer>;
}

/** Makes the entries of a directory survive a power cut. */
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
