import { GranaryError } from '../errors.ts';
import type { OpenAnswer } from './transport.ts';

/**
 * The lines of an answer, without their ends; also empty ones. Throws GranaryError with NETWORK_ERROR where the
 * connection breaks off, also within the last line, or brings nothing for `idleMs`, and the reason of the signal, which
 * is that of the call. The connection is closed when the reader leaves.
 */
export async function* readLines(
  { response, controller }: OpenAnswer,
  idleMs: number,
  signal?: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await readInTime(reader, idleMs, controller);
      const lines = (rest + decoder.decode(value, { stream: !done })).split('\n');
      rest = lines.pop()!;
      yield* lines;
      if (done) break;
    }
    // Not every browser tells that an answer was cut off.
    if (rest !== '') throw brokenOff('within a line');
  } catch (error) {
    signal?.throwIfAborted();
    throw error instanceof GranaryError ? error : brokenOff(error);
  } finally {
    controller.abort();
  }
}

async function readInTime(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  idleMs: number,
  controller: AbortController,
): Promise<{ done: boolean; value?: Uint8Array | undefined }> {
  const silent = new GranaryError(`The connection brought nothing for ${idleMs / 1_000} seconds`, {
    code: 'NETWORK_ERROR',
  });
  // While the reader does something else nothing is read, and nothing is late.
  const timer = setTimeout(() => controller.abort(silent), idleMs);
  try {
    return await reader.read();
  } catch (error) {
    throw controller.signal.reason === silent ? silent : error;
  } finally {
    clearTimeout(timer);
  }
}

const brokenOff = (cause: unknown): GranaryError =>
  new GranaryError('The connection broke off', { code: 'NETWORK_ERROR', cause });
