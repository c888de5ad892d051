import { Session } from 'node:inspector/promises';
import { writeFileSync } from 'node:fs';

const mebibyte = 1024 * 1024;

/**
 * The main module of child processes: executes the calls of the parent. `calls.stop` runs at the end: on the parent's
 * request, when the parent is gone, or on SIGTERM. SIGINT is ignored, because the parent handles Ctrl-C and stops us in
 * order.
 */
export function serve(calls) {
  let stopping;
  const stop = () => (stopping ??= Promise.resolve(calls.stop?.()));
  const all = { ...calls, ...profiling(), memory, stop };
  process.on('message', ({ id, name, input }) => {
    Promise.resolve(input)
      .then(all[name])
      .then(
        (result) => process.send({ id, result }),
        (error) => process.send({ id, error: error.stack }),
      );
  });
  const end = () => stop().finally(() => process.exit());
  process
    .on('disconnect', end)
    .on('SIGTERM', end)
    .on('SIGINT', () => {});
}

/** Memory of this process in MiB after garbage collection. */
async function memory() {
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
  let session;
  return {
    startProfile: async () => {
      session = new Session();
      session.connect();
      await session.post('Profiler.enable');
      await session.post('Profiler.setSamplingInterval', { interval: 250 });
      await session.post('Profiler.start');
    },
    stopProfile: async (file) => {
      const { profile } = await session.post('Profiler.stop');
      session.disconnect();
      writeFileSync(file, JSON.stringify(profile));
    },
  };
}
