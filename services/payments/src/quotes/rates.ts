import { cachedFor } from '@granary/shared/concurrency/ttl-cache';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';

/** How many units of an asset a TIA is worth. */
export interface Rate {
  /** The number of this rate, which no other rate has. */
  revision: number;
  /** The CAIP-2 network and the address of the token, in its one spelling, as `eip155:8453/0x8335…`. */
  asset: string;
  unitsPerTia: bigint;
}

const utiaPerTia = 1_000_000n;

/** An amount of utia in units of the asset, rounded up. */
export const inAsset = ({ unitsPerTia }: Rate, amountUtia: bigint): bigint =>
  (amountUtia * unitsPerTia + utiaPerTia - 1n) / utiaPerTia;

/** Stores rates as the valid ones; those that are valid already stay. Copies of the service may do it at once. */
export async function setRates(pool: Pool, rates: ReadonlyMap<string, bigint>): Promise<void> {
  if (rates.size === 0) return;
  await retriedTransaction(pool, async (tx) => {
    await tx.query('lock table rate in share row exclusive mode');
    await execute(
      tx,
      sql`insert into rate (asset, units_per_tia)
          select asset, units from unnest(${[...rates.keys()]}::text[], ${[...rates.values()].map(String)}::numeric[]) given (asset, units)
          where units is distinct from
            (select units_per_tia from rate where rate.asset = given.asset order by revision desc limit 1)`,
    );
  });
}

/** How long a process offers a rate that another copy has replaced. */
const cachedMs = 5_000;

export interface Rates {
  /** The valid rate of each asset. */
  current(): Promise<ReadonlyMap<string, Rate>>;
  /** The rates of an asset that quotes may still name, the latest first. */
  recent(): Promise<readonly Rate[]>;
}

/** The stored rates. `validSeconds` is how long a quote is valid. */
export function storedRates(pool: Pool, validSeconds: number): Rates {
  const load = cachedFor(cachedMs, () =>
    rows<Rate>(
      pool,
      // A rate counts until its last quote has expired, the time included for which another copy did not know of the
      // next one.
      sql`select revision::float8 as revision, asset, units_per_tia::text as "unitsPerTia" from (
            select *, lead(valid_from) over (partition by asset order by revision) as replaced_at from rate) all_rates
          where replaced_at is null
            or replaced_at > clock_timestamp() - ${validSeconds * 1_000 + 2 * cachedMs} * interval '1 millisecond'
          order by revision desc`,
    ).then((found) => found.map((rate) => ({ ...rate, unitsPerTia: BigInt(rate.unitsPerTia) }))),
  );
  return {
    current: async () => new Map((await load()).map((rate) => [rate.asset, rate] as const).reverse()),
    recent: load,
  };
}
