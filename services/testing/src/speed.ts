import { createHash } from 'node:crypto';
import { availableParallelism, loadavg } from 'node:os';

/** Holds how many times slower this machine was than the reference when the run began. */
export const slownessVariable = 'GRANARY_TEST_SLOWNESS';

/** What `work` takes on the machine for which the limits of the tests are written, two cores to itself. */
const referenceMs = 45;
const samplesOfRun = 5;
const samplesOfSuite = 3;
/** Beyond it a run would take a day; what is slower than this has another trouble. */
const slownessMax = 30;

/** Processor work like that of the services: hashes and copies of 64 KiB. */
function work(): void {
  let block = Buffer.alloc(65_536);
  for (let round = 0; round < 800; round++) {
    block = Buffer.concat([createHash('sha256').update(block).digest(), block.subarray(32)]);
  }
}

/**
 * Measures how many times slower than the reference this process runs now, beside other processes: at least 1. A short
 * burst of work is scheduled well even on a busy machine, so the processes that wait for each processor count too.
 */
export function measureSlowness(samples = samplesOfRun): number {
  const tookMs = Array.from({ length: samples }, () => {
    const beganMs = performance.now();
    work();
    return performance.now() - beganMs;
  });
  const medianMs = tookMs.sort((a, b) => a - b)[Math.floor(samples / 2)]!;
  const waiting = loadavg()[0]! / availableParallelism();
  return Math.min(Math.max(medianMs / referenceMs, waiting, 1), slownessMax);
}

let measured: number | undefined;

/** The slowness at the start of the run or of this suite, whichever is greater: other processes come and go. */
export function slowness(): number {
  measured ??= Math.max(Number(process.env[slownessVariable] ?? 1), measureSlowness(samplesOfSuite));
  return measured;
}

/** A time limit of a test, given in milliseconds on the reference machine, as it is on this one. */
export function scaledMs(referenceLimitMs: number): number {
  return Math.round(referenceLimitMs * slowness());
}
