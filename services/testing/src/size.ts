/** Set to 1 by `npm run test:long`. */
export const isLong = process.env['TEST_LONG'] === '1';

/** Into how many parts `npm run test:long` cuts each proof; one part runs at a time, each with a seed of its own. */
const shards = Number(process.env['GRANARY_TEST_SHARDS'] ?? 1);
const longLimitMs = 4 * 3_600_000;

/**
 * How many cases a proof takes: `run` in each run of the tests, and `long` in `npm run test:long`, where a shard takes
 * its part of them.
 */
export function size({ run, long }: { run: number; long: number }): number {
  return isLong ? Math.ceil(long / shards) : run;
}

/** The time limit of a test whose size is one of `size`; `runLimitMs` is that of a run, as `limitMs` gives it. */
export function sizedLimitMs(runLimitMs: number): number {
  return isLong ? longLimitMs : runLimitMs;
}
