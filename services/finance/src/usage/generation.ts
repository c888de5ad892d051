import type { Prices } from './prices';
import { costUnits, periodEndMs, periodMs, wholeUtia } from './retention';

/** The bytes that a service stores for a collection from a moment on. */
export interface Measure {
  bytes: bigint;
  at: Date;
}

/**
 * One collection. Collections that had the same name one after the other are generations of it, distinguished by their
 * number in `data`. The cost of a deleted one is still owed.
 *
 * Its events come from two services. Those of one service arrive in order, but one service may be far ahead of the
 * other, and the final state must not depend on it. The events of `data` determine when the generation began and ended;
 * so measures of blobs are settled up to the time of the latest event of `data`, and wait in `pendingBlobs` beyond it.
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
  /** The cost that has been settled, in units; see retention.ts. */
  accrued: bigint;
  /** The part of it that belongs to later charging periods than the next to be charged, by the number of the period. */
  accruedLater: ReadonlyMap<number, bigint>;
  deletedAt: Date | null;
  /** How many periods have been charged, and what was charged for them, in utia. */
  chargedPeriods: number;
  charged: bigint;
}

/** The settled cost after a change. */
type Accrued = Pick<Generation, 'accrued' | 'accruedLater'>;

/** A time before any event. */
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
  accruedLater: new Map(),
  deletedAt: null,
  chargedPeriods: 0,
  charged: 0n,
});

/** Applies absolute figures of `data`. They do not change a deleted generation. */
export async function withData(
  before: Generation,
  change: Measure & Pick<Generation, 'documentCount' | 'retentionDays'>,
  prices: Prices,
): Promise<Generation> {
  if (before.deletedAt) return before;
  const { bytes, documentCount, retentionDays } = change;
  const changedAt = later(before.data.at, change.at);
  const accrued = await accrue(before, before, before.data, changedAt, prices);
  const beganAt = before.beganAt ?? (bytes > 0n ? changedAt : null);
  return settled(
    { ...before, ...accrued, retentionDays, documentCount, data: { bytes, at: changedAt }, beganAt },
    prices,
  );
}

/** Applies the absolute size of the blobs. After the end of the generation it costs nothing. */
export async function withBlobs(before: Generation, change: Measure, prices: Prices): Promise<Generation> {
  const last = before.pendingBlobs.at(-1) ?? before.blobs;
  const next = { bytes: change.bytes, at: later(last.at, change.at) };
  return settled({ ...before, pendingBlobs: [...before.pendingBlobs, next] }, prices);
}

/** Ends the generation. Later events of its blobs cost nothing after this time. */
export async function ended(before: Generation, endedAt: Date, prices: Prices): Promise<Generation> {
  if (before.deletedAt) return before;
  const deletedAt = later(before.data.at, endedAt);
  const accrued = await accrue(before, before, before.data, deletedAt, prices);
  const data = { bytes: 0n, at: deletedAt };
  return settled({ ...before, ...accrued, documentCount: 0n, data, deletedAt }, prices);
}

/** Settles the measures of blobs that no later event of `data` can affect. */
async function settled(before: Generation, prices: Prices): Promise<Generation> {
  let accrued: Accrued = before;
  let { blobs } = before;
  const pendingBlobs = [...before.pendingBlobs];
  for (;;) {
    const [next] = pendingBlobs;
    if (!next || (next.at > before.data.at && !before.deletedAt && pendingBlobs.length <= pendingBlobsMax)) break;
    accrued = await accrue(before, accrued, blobs, next.at, prices);
    blobs = next;
    pendingBlobs.shift();
  }
  const { accrued: units, accruedLater } = accrued;
  return { ...before, accrued: units, accruedLater, blobs, pendingBlobs };
}

/**
 * Settles the cost of a measure until a time, and keeps apart what of it belongs to later periods than the next one.
 */
async function accrue(
  generation: Generation,
  { accrued, accruedLater }: Accrued,
  measure: Measure,
  until: Date,
  prices: Prices,
): Promise<Accrued> {
  const units = await costBetween(generation, measure, until, prices);
  const { beganAt, chargedPeriods } = generation;
  if (units === 0n || !beganAt) return { accrued, accruedLater };
  const periods = new Map(accruedLater);
  for (let period = Math.max(chargedPeriods + 2, periodAt(beganAt, measure.at)); ; period++) {
    const begin = endOfPeriod(beganAt, period - 1);
    if (begin >= until) break;
    const part = { bytes: measure.bytes, at: later(measure.at, begin) };
    const cost = await costBetween(generation, part, earlier(until, endOfPeriod(beganAt, period)), prices);
    periods.set(period, (periods.get(period) ?? 0n) + cost);
  }
  return { accrued: accrued + units, accruedLater: periods };
}

/** The number of the charging period, from 1, that contains a time. */
const periodAt = (beganAt: Date, at: Date): number =>
  Math.round((periodEndMs(beganAt.getTime(), at.getTime()) - beganAt.getTime()) / periodMs);

const endOfPeriod = (beganAt: Date, period: number): Date => new Date(beganAt.getTime() + period * periodMs);

/** The end of the next period to be charged; undefined before the first bytes. */
export const nextChargeAt = ({ beganAt, chargedPeriods }: Generation): Date | undefined =>
  beganAt ? endOfPeriod(beganAt, chargedPeriods + 1) : undefined;

/**
 * The amount owed at the end of the next period to be charged, in whole utia: the cost of the generation until then,
 * less what was already charged. It is the same whenever it is computed, unless events from before that end arrive in
 * between. Such events change the next charge instead, which they may lower.
 */
export async function owedForNextPeriod(generation: Generation, prices: Prices): Promise<bigint> {
  const end = nextChargeAt(generation);
  if (!end) return 0n;
  let units = await costUntil(generation, end, prices);
  for (const cost of generation.accruedLater.values()) units -= cost;
  return owed(generation, units);
}

/** The part of a cost, given in units, that was not charged yet; in whole utia, never negative. */
export function owed({ charged }: Generation, units: bigint): bigint {
  const left = wholeUtia(units) - charged;
  return left > 0n ? left : 0n;
}

/** The generation after the charge of its next period. */
export function withCharge(before: Generation, moved: bigint): Generation {
  const chargedPeriods = before.chargedPeriods + 1;
  const accruedLater = new Map([...before.accruedLater].filter(([period]) => period > chargedPeriods + 1));
  return { ...before, chargedPeriods, charged: before.charged + moved, accruedLater };
}

/** The total cost until a time that is not before the last settled one, in units. */
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
  { bytes, at: since }: Measure,
  until: Date,
  prices: Prices,
): Promise<bigint> {
  const end = deletedAt ? earlier(until, deletedAt) : until;
  if (bytes === 0n || !beganAt || end <= since) return 0n;
  const kept = { bytes, fromMs: since.getTime(), toMs: end.getTime(), beganMs: beganAt.getTime() };
  return costUnits(kept, await prices.list());
}

const later = (a: Date, b: Date): Date => (a > b ? a : b);
const earlier = (a: Date, b: Date): Date => (a < b ? a : b);
