import type { Prices } from './prices';
import { costUnits } from './retention';

/** What a service holds of a collection since a moment. */
export interface Measure {
  bytes: bigint;
  at: Date;
}

/**
 * One collection: of those that had the same name one after the other each is a generation, told apart by the data
 * service's number. What one has cost is still owed when it is deleted.
 *
 * Its events come from two services, so those of the one may be applied long before those of the other, and the state
 * must be the same in the end. Events of one service arrive in order. The data service decides when the generation
 * began to hold bytes, and when it ended; so what is known of blobs is settled only up to the time of the last event of
 * data, and waits in `ahead` beyond it.
 */
export interface Generation {
  appId: string;
  collection: string;
  /** 0: known only by an event of the blobs service that has no number; the next collection of the name takes it over. */
  number: bigint;
  retentionDays: number | null;
  documentCount: bigint;
  data: Measure;
  /** Settled up to here. */
  blobs: Measure;
  /** Later measures of blobs, in order. */
  ahead: readonly Measure[];
  beganAt: Date | null;
  /** What has been settled, in units, see retention.ts. */
  accrued: bigint;
  deletedAt: Date | null;
}

/** Before any event. */
const never = new Date(0);

/** Of a busy collection while the events of data are held up; beyond, the oldest one is settled with what is known. */
const aheadMax = 500;

export const newGeneration = (appId: string, collection: string, number: bigint): Generation => ({
  ...{ appId, collection, number, retentionDays: null, documentCount: 0n },
  ...{ data: { bytes: 0n, at: never }, blobs: { bytes: 0n, at: never }, ahead: [] },
  ...{ beganAt: null, accrued: 0n, deletedAt: null },
});

/** Absolute figures of the data service. Those of a generation that was deleted change nothing. */
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

/** What the blobs service holds: absolute. After the end of the generation it costs nothing. */
export async function withBlobs(before: Generation, change: Measure, prices: Prices): Promise<Generation> {
  const last = before.ahead.at(-1) ?? before.blobs;
  const next = { bytes: change.bytes, at: later(last.at, change.at) };
  return settled({ ...before, ahead: [...before.ahead, next] }, prices);
}

/** Its end. What it holds after it costs nothing, whatever is still to come of blobs from before. */
export async function ended(before: Generation, at: Date, prices: Prices): Promise<Generation> {
  if (before.deletedAt) return before;
  const deletedAt = later(before.data.at, at);
  const accrued = before.accrued + (await costBetween(before, before.data, deletedAt, prices));
  const data = { bytes: 0n, at: deletedAt };
  return settled({ ...before, documentCount: 0n, data, deletedAt, accrued }, prices);
}

/** Settles the measures of blobs that no later event of data can change any more. */
async function settled(before: Generation, prices: Prices): Promise<Generation> {
  let { accrued, blobs } = before;
  const ahead = [...before.ahead];
  for (;;) {
    const [next] = ahead;
    if (!next || (next.at > before.data.at && !before.deletedAt && ahead.length <= aheadMax)) break;
    accrued += await costBetween(before, blobs, next.at, prices);
    blobs = next;
    ahead.shift();
  }
  return { ...before, accrued, blobs, ahead };
}

/** All that it has cost until now, in units. */
export async function costUntil(generation: Generation, now: Date, prices: Prices): Promise<bigint> {
  const { data, blobs, ahead } = generation;
  let units = generation.accrued + (await costBetween(generation, data, now, prices));
  let from = blobs;
  for (const next of ahead) {
    units += await costBetween(generation, from, earlier(next.at, now), prices);
    from = next;
  }
  return units + (await costBetween(generation, from, now, prices));
}

/** What it holds now. */
export function bytesOf({ data, blobs, ahead }: Generation): bigint {
  return data.bytes + (ahead.at(-1) ?? blobs).bytes;
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
