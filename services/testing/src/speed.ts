import { createHash } from 'node:crypto';
import { availableParallelism, loadavg } from 'node:os';

/** Holds how many times slower this machine was than the reference when the run began. */
export const slownessVariable = 'GRANARY_TEST_SLOWNESS';

/** The time that `work` takes on the machine that the limits of the tests are written for, with two cores to itself. */
const referenceMs = 45;
const samplesOfRun = 5;
const samplesOfSuite = 3;
/** On a slower machine a run would take a day; a measurement above this has another cause. */
const slownessMax = 30;

/** Processor work like that of the services: hashes and copies of 64 KiB. */
function work(): void {
  let block = Buffer.alloc(65_536);
  for (let round = 0; round < 800; round++) {
    block = Buffer.concat([createHash('sha256').update(block).digest(), block.subarray(32)]);
  }
}

/**
 * How many times as much processor time as the reference this machine needs for the same work. It is the same on a busy
 * machine and on a quiet one, so that processor seconds divided by it compare runs.
 */
export function measureProcessor(samples = samplesOfRun): number {
  const before = process.cpuUsage();
  for (let sample = 0; sample < samples; sample++) work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / samples / referenceMs;
}

/**
 * How many times slower than the reference a short burst of work is, at least 1. It is scheduled well even on a busy
 * machine.
 */
function measureBurst(samples: number): number {
  const tookMs = Array.from({ length: samples }, () => {
    const beganMs = performance.now();
    work();
    return performance.now() - beganMs;
  });
  const medianMs = tookMs.sort((a, b) => a - b)[Math.floor(samples / 2)]!;
  return Math.min(Math.max(medianMs / referenceMs, 1), slownessMax);
}

/**
 * Measures how many times slower than the reference this process runs now, beside other processes: at least 1. The
 * processes that wait for each processor count too.
 */
export function measureSlowness(samples = samplesOfRun): number {
  return Math.min(Math.max(measureBurst(samples), loadavg()[0]! / availableParallelism()), slownessMax);
}

let measured: { slowness: number; burst: number } | undefined;

/** Measured once for each suite, because other processes come and go during a run. */
function measure(): { slowness: number; burst: number } {
  if (measured) return measured;
  const burst = measureBurst(samplesOfSuite);
  const slowness = Math.max(Number(process.env[slownessVariable] ?? 1), burst, measureSlowness(1));
  return (measured = { slowness, burst });
}

/** The slowness at the start of the run or of this suite, whichever is greater. */
export function slowness(): number {
  return measure().slowness;
}

/**
 * An upper limit for what a test waits for, given in milliseconds on the reference machine: it grows with the slowness
 * of this one, its load included. Nothing waits until it has passed, unless the test fails.
 */
export function limitMs(referenceLimitMs: number): number {
  return Math.round(referenceLimitMs * slowness());
}

/**
 * A time that a test waits out, or a limit of the product that it waits to see reached, given in milliseconds on the
 * reference machine. It grows with the speed of the processor alone: the load of this machine is mostly that of the
 * tests themselves, and waiting longer because they are busy would keep them busy longer.
 */
export function waitMs(referenceWaitMs: number): number {
  return Math.round(referenceWaitMs * measure().burst);
}
