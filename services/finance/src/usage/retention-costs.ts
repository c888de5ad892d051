import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { bytesOf, costUntil, nextChargeAt, owed, type Generation } from './generation';
import { fromRow, generationColumns, type GenerationRow } from './generation-rows';
import { readOnce, type Prices } from './prices';
import { costUnits, currentPrice, periodEndMs, periodMs, roundedUtia, unitsPerUtia } from './retention';

/** The cost of keeping a collection; amounts in utia. */
export interface CollectionCost {
  collection: string;
  retentionDays: number | null;
  /** Data, indexes and blobs; 0 of a deleted collection. */
  sizeBytes: bigint;
  documentCount: bigint;
  freeDays: number;
  pricePerGibDay: bigint;
  /** The next 30 days at the present size and price, rounded half up; free days that are left cost nothing. */
  monthlyCost: bigint;
  /** The amount owed: the cost until now less what was charged, in whole utia. A fraction is carried forward. */
  accrued: bigint;
  /** The end of the current period of 30 days since the first bytes came; of an empty one as if they came now. */
  nextChargeAt: Date;
}

/** The debt of all deleted collections of one name. */
interface Debt {
  utia: bigint;
  nextChargeAt: Date | undefined;
}

/**
 * The costs of keeping an application's collections, by name: one line for each existing collection, including what
 * deleted ones of its name owe, and one for each other name whose deleted collections owe something. Changes nothing.
 * `db` must read from one snapshot, or a cost that becomes settled in between would count twice. Throws what
 * `storedPrices` throws.
 */
export async function listRetentionCosts(
  db: Queryable,
  storedPrices: Prices,
  appId: string,
  now: Date,
): Promise<CollectionCost[]> {
  const prices = readOnce(storedPrices);
  // Only an event can still change a deleted generation without blobs.
  const isSettled = sql`deleted_at is not null and blob_bytes = 0 and blob_ahead = '[]'::jsonb`;
  const generationRows = await rows<GenerationRow>(
    db,
    sql`select ${generationColumns} from collection_generation where app_id = ${appId} and not (${isSettled})
        order by collection, number`,
  );
  const settled = await rows<{ collection: string; utia: string; nextChargeAt: Date | null }>(
    db,
    sql`select collection, sum(utia) as utia, min(next_charge_at) as "nextChargeAt"
        from (select collection, next_charge_at, div(accrued, ${unitsPerUtia}::numeric) - charged as utia
              from collection_generation where app_id = ${appId} and ${isSettled}) deleted
        where utia > 0 group by collection`,
  );
  const debts = new Map<string, Debt>();
  for (const { collection, utia, nextChargeAt: dueAt } of settled)
    debts.set(collection, { utia: BigInt(utia), nextChargeAt: dueAt ?? undefined });
  const live = new Map<string, { generation: Generation; owed: bigint }>();
  for (const generation of generationRows.map(fromRow)) {
    const { collection } = generation;
    const utia = owed(generation, await costUntil(generation, now, prices));
    if (generation.deletedAt) addDebt(debts, collection, { utia, nextChargeAt: nextChargeAt(generation) });
    else live.set(collection, { generation, owed: utia });
  }
  const lines = [...live.values()].map(({ generation, owed: own }) =>
    liveCost(generation, own + (debts.get(generation.collection)?.utia ?? 0n), prices, now),
  );
  const deleted = [...debts].filter(([collection, { utia }]) => utia > 0n && !live.has(collection));
  const all = await Promise.all([
    ...lines,
    ...deleted.map(([collection, debt]) => deletedCost(collection, debt, prices, now)),
  ]);
  return all.sort((a, b) => (a.collection < b.collection ? -1 : 1));
}

function addDebt(debts: Map<string, Debt>, collection: string, { utia, nextChargeAt: dueAt }: Debt): void {
  const before = debts.get(collection);
  const earliest = before?.nextChargeAt && dueAt && before.nextChargeAt < dueAt ? before.nextChargeAt : dueAt;
  debts.set(collection, { utia: utia + (before?.utia ?? 0n), nextChargeAt: earliest });
}

/** `accrued`: with what earlier collections of the name owe. */
async function liveCost(generation: Generation, accrued: bigint, prices: Prices, now: Date): Promise<CollectionCost> {
  const price = currentPrice(await prices.list());
  const nowMs = now.getTime();
  const beganMs = generation.beganAt?.getTime() ?? nowMs;
  const sizeBytes = bytesOf(generation);
  const month = { bytes: sizeBytes, fromMs: nowMs, toMs: nowMs + periodMs, beganMs };
  return {
    collection: generation.collection,
    retentionDays: generation.retentionDays,
    sizeBytes,
    documentCount: generation.documentCount,
    freeDays: price.freeDays,
    pricePerGibDay: price.utiaPerGibDay,
    monthlyCost: roundedUtia(costUnits(month, [price])),
    accrued,
    nextChargeAt: new Date(periodEndMs(beganMs, nowMs)),
  };
}

async function deletedCost(
  collection: string,
  { utia, nextChargeAt: dueAt }: Debt,
  prices: Prices,
  now: Date,
): Promise<CollectionCost> {
  const price = currentPrice(await prices.list());
  return {
    collection,
    retentionDays: null,
    sizeBytes: 0n,
    documentCount: 0n,
    freeDays: price.freeDays,
    pricePerGibDay: price.utiaPerGibDay,
    monthlyCost: 0n,
    accrued: utia,
    nextChargeAt: dueAt ?? now,
  };
}
