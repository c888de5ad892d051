import { createReadStream } from 'node:fs';
import { Failure } from '../failure.ts';

/** The bytes of a file from `start` on. Throws Failure where it cannot be read. */
export async function* fileBytes(file: string, start = 0): AsyncGenerator<Buffer, void, undefined> {
  try {
    for await (const chunk of createReadStream(file, { start, highWaterMark: 256 * 1_024 })) yield chunk as Buffer;
  } catch (error) {
    throw new Failure(`${file} cannot be read: ${(error as Error).message}`);
  }
}
