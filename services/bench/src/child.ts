import { Session } from 'node:inspector/promises';
import { writeFileSync } from 'node:fs';

const mebibyte = 1024 * 1024;

/** The functions that a child process runs for its parent, by name. Each takes at most one value, as JSON. */
export type Calls = Record<string, (input: never) => unknown>;

/** Memory of a process in MiB. */
export interface Memory {
  resident: number;
  heap: number;
  external: number;
}

/** A message to a child; `input` has the type that the call of this name takes. */
interface CallMessage {
  id: number;
  name: string;
  input: never;
}

/** The answer to a call; `result` has the type that the call returns. */
export interface AnswerMessage {
  id: number;
  result: never;
  error?: string;
}

/**
 * The main module of child processes: executes the calls of the parent. `calls.stop` runs at the end: on the parent's
 * request, when the parent is gone, or on SIGTERM. SIGINT is ignored, because the parent handles Ctrl-C and stops us in
 * order.
 */
export function serve(calls: Calls & { stop?: () => unknown }): void {
  let stopping: Promise<unknown> | undefined;
  const stop = () => (stopping ??= Promise.resolve(calls.stop?.()));
  const all: Calls = { ...calls, ...profiling(), memory, stop };
  process.on('message', (message) => {
    const { id, name, input } = message as CallMessage;
    Promise.resolve(input)
      .then(all[name])
      .then(
        (result) => process.send!({ id, result }),
        (error: Error) => process.send!({ id, error: error.stack }),
      );
  });
  const end = () => void stop().finally(() => process.exit());
  process
    .on('disconnect', end)
    .on('SIGTERM', end)
    .on('SIGINT', () => {});
}

/** Memory of this process after garbage collection. */
async function memory(): Promise<Memory> {
  const session = new Session();
  session.connect();
  // The first collection runs finalizers; the second frees what they release.
  for (let i = 0; i < 2; i++) await session.post('HeapProfiler.collectGarbage');
  session.disconnect();
  const { rss, heapUsed, external } = process.memoryUsage();
  return { resident: rss / mebibyte, heap: heapUsed / mebibyte, external: external / mebibyte };
}

/** The V8 profiler of this process, off until started. */
function profiling() {
  let session: Session;
  return {
    startProfile: async () => {
      session = new Session();
      session.connect();
      await session.post('Profiler.enable');
      await session.post('Profiler.setSamplingInterval', { interval: 250 });
      await session.post('Profiler.start');
    },
    stopProfile: async (file: string) => {
      const { profile } = await session.post('Profiler.stop');
      session.disconnect();
      writeFileSync(file, JSON.stringify(profile));
    },
  };
}
