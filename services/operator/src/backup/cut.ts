import { setTimeout as delay } from 'node:timers/promises';
import { Client, DatabaseError } from 'pg';
import { jittered } from '@granary/shared/concurrency/backoff';
import { ConfigError } from '@granary/shared/config';

/** The longest that one attempt may block writers while it waits for those in progress. */
const lockTimeoutMs = 250;
const lockPauseMs = 200;
const lockPatienceMs = 120_000;

/** One moment in the log of the cluster, with snapshots of two of its databases at that moment. */
export interface Cut {
  restorePoint: string;
  /** Log position after the restore point. */
  lsn: string;
  /** Time of the database. */
  at: Date;
  /** Names of the complete log files from `fromLsn` to the restore point. */
  logFiles: string[];
  /** Connections with a snapshot of their database at the cut, until they end. */
  data: Client;
  blobs: Client;
}

/**
 * Writes a restore point into the log while no transaction changes the head of an app or the rows of blobs. So the two
 * snapshots see exactly what a recovery to the restore point restores. Writers wait for some milliseconds. `connect`
 * opens a superuser connection to a database; all connections except the two snapshots are closed.
 */
export async function makeCut(options: {
  connect: (database: string) => Promise<Client>;
  restorePoint: string;
  fromLsn: string;
  signal: AbortSignal;
}): Promise<Cut> {
  const { connect, restorePoint, fromLsn, signal } = options;
  const clients: Client[] = [];
  const open = async (database: string): Promise<Client> => {
    const client = await connect(database);
    clients.push(client);
    return client;
  };
  try {
    const [dataLock, blobsLock] = [await open('granary_data'), await open('granary_blobs')];
    const [data, blobs] = [await open('granary_data'), await open('granary_blobs')];
    await withLocks(dataLock, blobsLock, signal);
    for (const client of [data, blobs]) {
      await client.query('begin isolation level repeatable read read only');
      // The first statement takes the snapshot.
      await client.query('select 1');
    }
    const made = await dataLock.query<{ lsn: string; at: Date }>(
      'select pg_create_restore_point($1)::text as lsn, clock_timestamp() as at',
      [restorePoint],
    );
    const { lsn, at } = made.rows[0]!;
    for (const client of [dataLock, blobsLock]) await client.query('commit');
    const logFiles = await closeLog(dataLock, fromLsn, lsn);
    for (const client of [dataLock, blobsLock]) await client.end();
    return { restorePoint, lsn, at, logFiles, data, blobs };
  } catch (error) {
    await Promise.all(clients.map((client) => client.end().catch(() => {})));
    throw error;
  }
}

/**
 * Begins a transaction on each connection that locks its tables against writers. A lock waits for the writers in
 * progress, and new writers queue behind it, so each attempt is short and retried.
 */
async function withLocks(data: Client, blobs: Client, signal: AbortSignal): Promise<void> {
  const untilMs = Date.now() + lockPatienceMs;
  for (;;) {
    try {
      await data.query(`begin; set local lock_timeout = ${lockTimeoutMs}; lock table head in share mode`);
      await blobs.query(`begin; set local lock_timeout = ${lockTimeoutMs}; lock table blob, object in share mode`);
      return;
    } catch (error) {
      for (const client of [data, blobs]) await client.query('rollback');
      const isLate = error instanceof DatabaseError && error.code === '55P03';
      if (!isLate) throw error;
      if (Date.now() > untilMs) {
        throw new ConfigError(
          'The tables could not be locked for the cut, because writes never stopped; a transaction may be stuck.',
        );
      }
      await delay(jittered(lockPauseMs, 0.5), undefined, { signal });
    }
  }
}

/** Switches to a new log file, so that the files with the log between the positions are complete and final. */
async function closeLog(client: Client, fromLsn: string, toLsn: string): Promise<string[]> {
  await client.query('select pg_switch_wal()');
  const { rows } = await client.query<{ name: string }>(
    `select name from pg_ls_waldir()
     where name ~ '^[0-9A-F]{24}$' and name >= pg_walfile_name($1::pg_lsn) and name <= pg_walfile_name($2::pg_lsn)
       or name ~ '^[0-9A-F]{8}[.]history$'
     order by name`,
    [fromLsn, toLsn],
  );
  return rows.map(({ name }) => name);
}
