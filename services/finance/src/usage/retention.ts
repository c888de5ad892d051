/** A price, and since when it holds; the first of a list holds for all time before it too. */
export interface PricePeriod {
  sinceMs: number;
  utiaPerGibDay: bigint;
  /** Days from the first bytes of a collection that cost nothing. */
  freeDays: number;
}

/** Newest last, at least one. */
export type PriceList = readonly [PricePeriod, ...PricePeriod[]];

export const dayMs = 86_400_000;
/** What is charged together, and what a month means in `monthly_cost`. */
export const periodMs = 30 * dayMs;

/**
 * Costs are kept in bytes x milliseconds x utia per GiB-day, which is whole and exact; so many of them are one utia.
 * A cost is divided only when somebody looks, so that small collections do not round to nothing for ever.
 */
export const unitsPerUtia = 2n ** 30n * BigInt(dayMs);

export interface Kept {
  bytes: bigint;
  fromMs: number;
  toMs: number;
  /** When the first bytes of the collection came: the free days count from here. */
  beganMs: number;
}

/** What keeping bytes for a time costs, in units. Each part of the time has the price and free days of its day. */
export function costUnits({ bytes, fromMs, toMs, beganMs }: Kept, prices: PriceList): bigint {
  let units = 0n;
  for (const [at, { sinceMs, utiaPerGibDay, freeDays }] of prices.entries()) {
    const startMs = Math.max(fromMs, beganMs + freeDays * dayMs, at === 0 ? -Infinity : sinceMs);
    const endMs = Math.min(toMs, prices[at + 1]?.sinceMs ?? Infinity);
    if (endMs > startMs) units += bytes * BigInt(endMs - startMs) * utiaPerGibDay;
  }
  return units;
}

export const wholeUtia = (units: bigint): bigint => units / unitsPerUtia;

export const roundedUtia = (units: bigint): bigint => (units + unitsPerUtia / 2n) / unitsPerUtia;

/** The end of the period of 30 days, counted from the first bytes, that a moment lies in. */
export function periodEndMs(beganMs: number, nowMs: number): number {
  return beganMs + (Math.floor(Math.max(0, nowMs - beganMs) / periodMs) + 1) * periodMs;
}

export function currentPrice(prices: PriceList): PricePeriod {
  return prices[prices.length - 1]!;
}
