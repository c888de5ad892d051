import { Session } from 'node:inspector/promises';
import { writeFileSync } from 'node:fs';

const mebibyte = 1024 * 1024;

/**
 * What runs in each child process: answers the calls that the parent sends. `calls.stop` runs at the end, which comes
 * when the parent says so, when it is gone, or with SIGTERM; Ctrl-C is for the parent, which then stops us in order.
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

/** What this process holds in MiB, once what nobody needs any more is collected. */
async function memory() {
  const session = new Session();
  session.connect();
  // What the first collection finds to be finalized the second one frees.
  for (let i = 0; i < 2; i++) await session.post('HeapProfiler.collectGarbage');
  session.disconnect();
  const { rss, heapUsed, external } = process.memoryUsage();
  return { resident: rss / mebibyte, heap: heapUsed / mebibyte, external: external / mebibyte };
}

/** The V8 profiler of this process, which is off until it is asked for. */
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
