/** A price and the time from which it applies; the first of a list applies to all time before it too. */
export interface PricePeriod {
  sinceMs: number;
  utiaPerGibDay: bigint;
  /** Days from the first bytes of a collection that cost nothing. */
  freeDays: number;
}

/** Newest last, at least one. */
export type PriceList = readonly [PricePeriod, ...PricePeriod[]];

export const dayMs = 86_400_000;
/** The charging period, and the month of `monthly_cost`. */
export const periodMs = 30 * dayMs;

/**
 * Costs accrue in units of bytes x milliseconds x utia per GiB-day, which are integers and exact; this many are one
 * utia. They are divided only when displayed, so that small collections do not round to nothing.
 */
export const unitsPerUtia = 2n ** 30n * BigInt(dayMs);

export interface Kept {
  bytes: bigint;
  fromMs: number;
  toMs: number;
  /** Time of the first bytes of the collection: the free days count from here. */
  beganMs: number;
}

/** The cost of storing bytes for an interval, in units. Each part has the price and free days of its day. */
export function costUnits({ bytes, fromMs, toMs, beganMs }: Kept, prices: PriceList): bigint {
  let units = 0n;
  for (const [index, { sinceMs, utiaPerGibDay, freeDays }] of prices.entries()) {
    const startMs = Math.max(fromMs, beganMs + freeDays * dayMs, index === 0 ? -Infinity : sinceMs);
    const endMs = Math.min(toMs, prices[index + 1]?.sinceMs ?? Infinity);
    if (endMs > startMs) units += bytes * BigInt(endMs - startMs) * utiaPerGibDay;
  }
  return units;
}

export const wholeUtia = (units: bigint): bigint => units / unitsPerUtia;

export const roundedUtia = (units: bigint): bigint => (units + unitsPerUtia / 2n) / unitsPerUtia;

/** The end of the charging period that contains a moment; periods count from the first bytes. */
export function periodEndMs(beganMs: number, nowMs: number): number {
  return beganMs + (Math.floor(Math.max(0, nowMs - beganMs) / periodMs) + 1) * periodMs;
}

export function currentPrice(prices: PriceList): PricePeriod {
  return prices[prices.length - 1]!;
}
