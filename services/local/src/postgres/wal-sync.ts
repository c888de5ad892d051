import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';

/**
 * Ways to make the log durable: `fdatasync` flushes what was written, `open_datasync` writes through (O_DSYNC).
 * Both promise the same of a commit that is answered; which of them is faster depends on the disk.
 */
export const walSyncMethods = ['fdatasync', 'open_datasync'] as const;
export type WalSyncMethod = (typeof walSyncMethods)[number];

/** Medians of one run, in µs. */
export interface WalSyncTimes {
  /** A small commit. */
  commitUs: number;
  /** A commit of 256 KB, as a bulk has. */
  bulkUs: number;
}

export interface WalSyncChoice {
  method: WalSyncMethod;
  times: Readonly<Record<WalSyncMethod, WalSyncTimes>>;
}

interface Trial {
  /** Records of the log in each commit, and the size of one in bytes. */
  records: number;
  bytes: number;
  /** A turn of it ends after this time or so many commits, and has one at least. */
  turnMs: number;
  commitsMax: number;
}

const commits: Trial = { records: 1, bytes: 300, turnMs: 20, commitsMax: 200 };
/** Few, because the log keeps its size: all of them together write some 8 MB. */
const bulks: Trial = { records: 32, bytes: 8_000, turnMs: 8, commitsMax: 2 };
/** The methods take turns, so that what else the machine does is the same for both; all takes about half a second. */
const turns = 8;
const reloadTimeoutMs = 2_000;
/** Within this share of each other two times count as equal. */
const tolerance = 0.1;

interface MethodRow {
  method: string;
  /** Whether nothing but the default of the platform decides it. */
  is_default: boolean;
  /** Whether Postgres has both methods here, and would use `fdatasync` by itself. */
  has_both: boolean;
}

async function readMethod(client: Client): Promise<MethodRow> {
  const { rows } = await client.query<MethodRow>(
    `select setting as method, source = 'default' as is_default, enumvals @> $1 and boot_val = 'fdatasync' as has_both
     from pg_settings where name = 'wal_sync_method'`,
    [walSyncMethods],
  );
  return rows[0]!;
}

/** Whether no method has been chosen for this cluster yet, by a trial or by hand. */
export const hasDefaultWalSync = async (client: Client): Promise<boolean> => (await readMethod(client)).is_default;

/**
 * Runs both methods on an idle cluster, and keeps the faster one in its data directory for every start from now on.
 * Undefined where the platform has other ones: then nothing has changed. An error leaves the method as it was.
 * A process that is killed leaves the one that it was trying, which is as durable.
 */
export async function chooseWalSync(client: Client): Promise<WalSyncChoice | undefined> {
  const before = await readMethod(client);
  if (!before.has_both) return undefined;
  try {
    const times = await timesOfBoth(client);
    const method = fasterMethod(times);
    await useMethod(client, method);
    return { method, times };
  } catch (error) {
    // The name comes from Postgres.
    const restoring = before.is_default ? 'reset wal_sync_method' : `set wal_sync_method = ${before.method}`;
    await client.query(`alter system ${restoring}`).catch(() => {});
    throw error;
  }
}

async function timesOfBoth(client: Client): Promise<WalSyncChoice['times']> {
  const samples = { fdatasync: newSamples(), open_datasync: newSamples() };
  // The first commits of a server are slower than all later ones.
  await commitFor(client, commits, []);
  for (let turn = 0; turn < turns; turn += 1) {
    for (const method of walSyncMethods) {
      await useMethod(client, method);
      await commitFor(client, commits, samples[method].commits);
      await commitFor(client, bulks, samples[method].bulks);
    }
  }
  return { fdatasync: timesOf(samples.fdatasync), open_datasync: timesOf(samples.open_datasync) };
}

/** `open_datasync` where it makes commits clearly faster and bulks not clearly slower, else `fdatasync`. */
export function fasterMethod({ fdatasync, open_datasync: writeThrough }: WalSyncChoice['times']): WalSyncMethod {
  const isFaster = writeThrough.commitUs < fdatasync.commitUs * (1 - tolerance);
  const isSlowerInBulk = writeThrough.bulkUs > fdatasync.bulkUs * (1 + tolerance);
  return isFaster && !isSlowerInBulk ? 'open_datasync' : 'fdatasync';
}

/**
 * Sets the method of a running cluster, which keeps it in `postgresql.auto.conf`. Throws an Error where something else
 * decides it, such as the command line of Postgres.
 */
export async function useMethod(client: Client, method: WalSyncMethod): Promise<void> {
  // ALTER SYSTEM takes no parameters; the names are those above.
  await client.query(`alter system set wal_sync_method = ${method}`);
  await client.query('select pg_reload_conf()');
  const isUsed = async () => {
    const { rows } = await client.query<{ wal_sync_method: string }>('show wal_sync_method');
    return rows[0]?.wal_sync_method === method;
  };
  const endsAtMs = performance.now() + reloadTimeoutMs;
  while (!(await isUsed())) {
    if (performance.now() > endsAtMs) throw new Error(`Postgres does not take wal_sync_method = ${method}`);
    await delay(1);
  }
}

/** Times in µs. */
interface Samples {
  commits: number[];
  bulks: number[];
}

const newSamples = (): Samples => ({ commits: [], bulks: [] });

const timesOf = (samples: Samples): WalSyncTimes => ({
  commitUs: median(samples.commits),
  bulkUs: median(samples.bulks),
});

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1]!;

/** Commits as a trial says, and adds how long each commit took. */
async function commitFor(
  client: Client,
  { records, bytes, turnMs, commitsMax }: Trial,
  samples: number[],
): Promise<void> {
  const text = `select pg_logical_emit_message(true, 'granary', repeat('x', ${bytes})) from generate_series(1, ${records})`;
  const endsAtMs = performance.now() + turnMs;
  for (let count = 0; count === 0 || (count < commitsMax && performance.now() < endsAtMs); count += 1) {
    const startedAtMs = performance.now();
    await client.query(text);
    samples.push((performance.now() - startedAtMs) * 1_000);
  }
}
