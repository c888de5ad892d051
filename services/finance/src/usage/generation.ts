import type { Prices } from './prices';
import { costUnits } from './retention';

/** The bytes that a service stores for a collection from a moment on. */
export interface Measure {
  bytes: bigint;
  at: Date;
}

/**
 * One collection. Collections that had the same name one after the other are generations of it, distinguished by their
 * number in `data`. The cost of a deleted one is still owed.
 *
 * Its events come from two services. Those of one service arrive in order, but one service may be far ahead of the other,
 * and the final state must not depend on it. The events of `data` determine when the generation began and ended; so
 * measures of blobs are settled up to the time of the latest event of `data`, and wait in `pendingBlobs` beyond it.
 */
export interface Generation {
  appId: string;
  collection: string;
  /** 0: known only from an event of `blobs` without a number; the next collection of the name takes it over. */
  number: bigint;
  retentionDays: number | null;
  documentCount: bigint;
  data: Measure;
  /** Settled up to here. */
  blobs: Measure;
  /** Later measures of blobs, in order, not settled yet. */
  pendingBlobs: readonly Measure[];
  beganAt: Date | null;
  /** What has been settled, in units, see retention.ts. */
  accrued: bigint;
  deletedAt: Date | null;
}

/** Before any event. */
const never = new Date(0);

/** Bounds the pending measures while events of `data` are delayed; beyond, the oldest is settled. */
const pendingBlobsMax = 500;

export const newGeneration = (appId: string, collection: string, number: bigint): Generation => ({
  appId,
  collection,
  number,
  retentionDays: null,
  documentCount: 0n,
  data: { bytes: 0n, at: never },
  blobs: { bytes: 0n, at: never },
  pendingBlobs: [],
  beganAt: null,
  accrued: 0n,
  deletedAt: null,
});

/** Applies absolute figures of `data`. They do not change a deleted generation. */
export async function withData(
  before: Generation,
  change: Measure & Pick<Generation, 'documentCount' | 'retentionDays'>,
  prices: Prices,
): Promise<Generation> {
  if (before.deletedAt) return before;
  const { bytes, documentCount, retentionDays } = change;
  const at = later(before.data.at, change.at);
  const accrued = before.accrued + (await costBetween(before, before.data, at, prices));
  const beganAt = before.beganAt ?? (bytes > 0n ? at : null);
  return settled({ ...before, retentionDays, documentCount, data: { bytes, at }, beganAt, accrued }, prices);
}

/** Applies the absolute size of the blobs. After the end of the generation it costs nothing. */
export async function withBlobs(before: Generation, change: Measure, prices: Prices): Promise<Generation> {
  const last = before.pendingBlobs.at(-1) ?? before.blobs;
  const next = { bytes: change.bytes, at: later(last.at, change.at) };
  return settled({ ...before, pendingBlobs: [...before.pendingBlobs, next] }, prices);
}

/** Ends the generation. Later events of its blobs cost nothing after this time. */
export async function ended(before: Generation, at: Date, prices: Prices): Promise<Generation> {
  if (before.deletedAt) return before;
  const deletedAt = later(before.data.at, at);
  const accrued = before.accrued + (await costBetween(before, before.data, deletedAt, prices));
  const data = { bytes: 0n, at: deletedAt };
  return settled({ ...before, documentCount: 0n, data, deletedAt, accrued }, prices);
}

/** Settles the measures of blobs that no later event of `data` can affect. */
async function settled(before: Generation, prices: Prices): Promise<Generation> {
  let { accrued, blobs } = before;
  const pendingBlobs = [...before.pendingBlobs];
  for (;;) {
    const [next] = pendingBlobs;
    if (!next || (next.at > before.data.at && !before.deletedAt && pendingBlobs.length <= pendingBlobsMax)) break;
    accrued += await costBetween(before, blobs, next.at, prices);
    blobs = next;
    pendingBlobs.shift();
  }
  return { ...before, accrued, blobs, pendingBlobs };
}

/** The total cost until now, in units. */
export async function costUntil(generation: Generation, now: Date, prices: Prices): Promise<bigint> {
  const { data, blobs, pendingBlobs } = generation;
  let units = generation.accrued + (await costBetween(generation, data, now, prices));
  let from = blobs;
  for (const next of pendingBlobs) {
    units += await costBetween(generation, from, earlier(next.at, now), prices);
    from = next;
  }
  return units + (await costBetween(generation, from, now, prices));
}

/** The bytes stored now. */
export function bytesOf({ data, blobs, pendingBlobs }: Generation): bigint {
  return data.bytes + (pendingBlobs.at(-1) ?? blobs).bytes;
}

async function costBetween(
  { beganAt, deletedAt }: Generation,
  { bytes, at }: Measure,
  until: Date,
  prices: Prices,
): Promise<bigint> {
  const end = deletedAt ? earlier(until, deletedAt) : until;
  if (bytes === 0n || !beganAt || end <= at) return 0n;
  const kept = { bytes, fromMs: at.getTime(), toMs: end.getTime(), beganMs: beganAt.getTime() };
  return costUnits(kept, await prices.list());
}

const later = (a: Date, b: Date): Date => (a > b ? a : b);
const earlier = (a: Date, b: Date): Date => (a < b ? a : b);
