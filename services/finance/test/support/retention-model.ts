import { dayMs, type PriceList } from '../../src/usage/retention';

/** What is stored from a time on. */
export interface StoredPoint {
  atMs: number;
  bytes: bigint;
}

/** A collection, by the events about it that are known; each list in the order of time. */
export interface KnownCollection {
  app: string;
  name: string;
  number: number;
  data: StoredPoint[];
  blobs: StoredPoint[];
  deletedMs?: number;
}

export interface ModelCharge {
  app: string;
  collection: string;
  period: number;
  amount: bigint;
  moved: bigint;
}

const unitsPerUtia = 2n ** 30n * BigInt(dayMs);

/** Exact cost until a time in units, by adding up the stretches of time in which nothing changes. */
export function modelUnits(collection: KnownCollection, prices: PriceList, untilMs: number): bigint {
  const began = collection.data.find(({ bytes }) => bytes > 0n)?.atMs;
  if (began === undefined) return 0n;
  const end = Math.min(untilMs, collection.deletedMs ?? Infinity);
  const points = [...collection.data, ...collection.blobs];
  const cuts = [
    ...points.map(({ atMs }) => atMs),
    ...prices.flatMap(({ sinceMs, freeDays }) => [sinceMs, began + freeDays * dayMs]),
    end,
  ];
  const times = [...new Set(cuts)].filter((ms) => ms <= end).sort((a, b) => a - b);
  const at = (list: readonly StoredPoint[], ms: number) => list.filter(({ atMs }) => atMs <= ms).at(-1)?.bytes ?? 0n;
  let units = 0n;
  for (const [index, from] of times.slice(0, -1).entries()) {
    const price = prices.filter(({ sinceMs }) => sinceMs <= from).at(-1) ?? prices[0];
    if (from < began + price.freeDays * dayMs) continue;
    const bytes = at(collection.data, from) + at(collection.blobs, from);
    units += bytes * BigInt(times[index + 1]! - from) * price.utiaPerGibDay;
  }
  return units;
}

/** What charging does, one collection and period after the other. */
export class RetentionModel {
  readonly balances = new Map<string, bigint>();
  readonly charges: ModelCharge[] = [];
  private readonly states = new Map<number, { periods: number; charged: bigint; isOver: boolean }>();

  constructor(
    private readonly prices: PriceList,
    private readonly periodMs: number,
  ) {}

  /** An event about a collection has arrived: what was over is looked at again. */
  touched(number: number): void {
    const state = this.states.get(number);
    if (state) state.isOver = false;
  }

  /** Charges what ended until a time: in rounds of one period of each collection, the earliest first. */
  run(collections: readonly KnownCollection[], untilMs: number): void {
    for (;;) {
      const due = collections
        .map((collection) => ({ collection, ...this.next(collection) }))
        .filter(({ endMs, state }) => endMs <= untilMs && !state.isOver)
        .sort((a, b) => a.endMs - b.endMs || compare(a.collection, b.collection));
      if (due.length === 0) return;
      for (const { collection, endMs, state } of due) this.charge(collection, endMs, state);
    }
  }

  private next(collection: KnownCollection) {
    const state = this.states.get(collection.number) ?? { periods: 0, charged: 0n, isOver: false };
    this.states.set(collection.number, state);
    const began = collection.data.find(({ bytes }) => bytes > 0n)?.atMs ?? Infinity;
    return { state, endMs: began + (state.periods + 1) * this.periodMs };
  }

  private charge(
    collection: KnownCollection,
    endMs: number,
    state: { periods: number; charged: bigint; isOver: boolean },
  ): void {
    const left = modelUnits(collection, this.prices, endMs) / unitsPerUtia - state.charged;
    const amount = left > 0n ? left : 0n;
    const balance = this.balances.get(collection.app) ?? 0n;
    const moved = amount < balance ? amount : balance;
    this.balances.set(collection.app, balance - moved);
    state.periods += 1;
    state.charged += moved;
    state.isOver = collection.deletedMs !== undefined && collection.deletedMs <= endMs && moved === amount;
    if (amount === 0n) return;
    this.charges.push({ app: collection.app, collection: collection.name, period: state.periods, amount, moved });
  }
}

function compare(a: KnownCollection, b: KnownCollection): number {
  if (a.app !== b.app) return a.app < b.app ? -1 : 1;
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  return a.number - b.number;
}
