import { createReadStream } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { writeHashed } from './hashed-file';
import type { ManifestFile } from './manifest';

const batchBytes = 64 * 1024;

/** Writes values as lines of JSON (NDJSON). */
export async function writeLines<T extends object>(
  file: string,
  values: AsyncIterable<T>,
): Promise<{ file: ManifestFile; lines: number }> {
  let lines = 0;
  async function* chunks(): AsyncGenerator<Buffer> {
    let batch = '';
    for await (const value of values) {
      lines++;
      batch += `${JSON.stringify(value)}\n`;
      if (batch.length < batchBytes) continue;
      yield Buffer.from(batch);
      batch = '';
    }
    if (batch !== '') yield Buffer.from(batch);
  }
  const sum = await writeHashed(file, chunks());
  return { file: { path: path.basename(file), ...sum }, lines };
}

export async function* readLines<T extends object>(file: string): AsyncGenerator<T> {
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
    yield JSON.parse(line) as T;
  }
}
