import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { jittered, pause } from '@granary/shared/concurrency/backoff';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { addressText } from '../values/network';
import { readNetworksFile, type CountryRange } from './networks-file';

/** How often the file is checked for a change. */
const checkEveryMs = 2_000;
const rowsPerStatement = 10_000;
const loadTimeoutMs = 120_000;
/** The hash that stands for a file where there is none. */
const none = Buffer.alloc(0);

interface Options {
  pool: Pool;
  log: Logger;
  /** The path of the file, see readNetworksFile. */
  file: string;
}

/**
 * Keeps the table of networks by country like a file: loads it now, and again whenever it changes. Who reads meanwhile
 * sees the old networks or the new ones. Rejects with a StartError where the file is not valid; one that is not valid
 * later is logged, and the old networks stay.
 */
export async function followCountryNetworks(options: Options): Promise<{ stop(): Promise<void> }> {
  const stopped = new AbortController();
  let version = await versionOf(options.file);
  await load(options);
  const following = (async () => {
    for (;;) {
      await pause(jittered(checkEveryMs), stopped.signal);
      if (stopped.signal.aborted) return;
      try {
        const present = await versionOf(options.file);
        if (present === version) continue;
        version = present;
        await load(options);
      } catch (error) {
        options.log.warn(
          { err: error },
          'the file of networks by country was not loaded, the networks stay as they are',
        );
      }
    }
  })();
  return {
    stop: async () => {
      stopped.abort();
      await following;
    },
  };
}

/** Removes the networks of a file that is not configured any more. */
export async function forgetCountryNetworks(pool: Pool): Promise<void> {
  if (await isLoaded(pool, none)) return;
  await retriedTransaction(pool, (tx) => replace(tx, [], none), { statementTimeoutMs: loadTimeoutMs });
}

/** Changes whenever the file does. */
async function versionOf(file: string): Promise<string> {
  const { ino, size, mtimeMs, ctimeMs } = await stat(file);
  return [ino, size, mtimeMs, ctimeMs].join();
}

async function load({ pool, log, file }: Options): Promise<void> {
  const bytes = await readFile(file);
  const sha256 = createHash('sha256').update(bytes).digest();
  if (await isLoaded(pool, sha256)) return;
  const ranges = await runSliced(readNetworksFile(bytes.toString('utf8')));
  await retriedTransaction(pool, (tx) => replace(tx, ranges, sha256), { statementTimeoutMs: loadTimeoutMs });
  log.info({ ranges: ranges.length }, 'networks by country are loaded');
}

async function isLoaded(pool: Pool, sha256: Buffer): Promise<boolean> {
  return (await row(pool, sql`select from country_file where sha256 = ${sha256}`)) !== undefined;
}

/** Copies of the service that load at the same time do so one after the other. */
async function replace(tx: Connection, ranges: readonly CountryRange[], sha256: Buffer): Promise<void> {
  await execute(tx, sql`update country_file set sha256 = ${sha256}, range_count = ${ranges.length}, loaded_at = now()`);
  await execute(tx, sql`delete from country_range`);
  for (let offset = 0; offset < ranges.length; offset += rowsPerStatement) {
    const some = ranges.slice(offset, offset + rowsPerStatement);
    const [first, last] = (['first', 'last'] as const).map((end) =>
      some.map((range) => addressText(range.family, range[end])),
    );
    const countries = some.map(({ country }) => country);
    await execute(
      tx,
      sql`insert into country_range (first, last, country)
          select * from unnest(${first}::inet[], ${last}::inet[], ${countries}::text[])`,
    );
  }
  await execute(tx, sql`analyze country_range`);
}
