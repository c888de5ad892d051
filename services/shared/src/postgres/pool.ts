import { readFileSync } from 'node:fs';
import pg from 'pg';
import type { Logger } from '../logger';
import { NotAvailableError, StartError } from '../start-error';
import { isUnreachable } from './errors';
import { PreparingClient } from './pool-client';
import { observePool } from './pool-metrics';
import { statementName } from './prepared';
import { SilenceWatch, silenceGraceMs } from './silence-watch';
import type { Sql } from './sql';

const { INT8, NUMERIC, JSON, JSONB } = pg.types.builtins;
const asText: readonly number[] = [NUMERIC, JSON, JSONB];

// int8 comes as bigint, for amounts and heights must not lose digits; numeric and JSON stay the text that they are.
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') => {
    if (oid === Number(INT8)) return (text: string) => BigInt(text);
    if (asText.includes(oid)) return (text: string) => text;
    return pg.types.getTypeParser(oid, format) as (text: string) => unknown;
  },
};

/** How long a statement may run where nothing else is said. */
export const statementTimeoutMs = 10_000;

/** How long a connection is used: each backend of Postgres keeps some memory for every table that it has read. */
export const connectionLifetimeMs = 30 * 60_000;

export type Pool = pg.Pool;
export type Connection = pg.PoolClient;
/** The target of a statement: a pool, or the connection of a transaction. */
export type Queryable = Pick<pg.Pool, 'query'> | Pick<pg.PoolClient, 'query'>;

export interface PoolOptions {
  url: string;
  /** A file with the password, which may change: it is read for each connection. Else the URL has it. */
  passwordFile?: string | undefined;
  size: number;
  applicationName: string;
  /** A statement that runs longer is cancelled by Postgres; 10 s if it is not given. */
  statementTimeoutMs?: number;
  /** A connection that is silent for so long beyond the time of its statement is dropped; 5 s if it is not given. */
  graceMs?: number;
  /** The age after which a connection is replaced, once it is free; 30 min if it is not given. */
  lifetimeMs?: number;
  log: Logger;
}

/** The configuration of every connection: limits on statements, locks and idle transactions. */
export function connectionConfig(
  options: Omit<PoolOptions, 'size' | 'log' | 'graceMs' | 'lifetimeMs'>,
): pg.ClientConfig {
  return {
    connectionString: urlWithPassword(options),
    application_name: options.applicationName,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
    // Else a host that has vanished is noticed after two hours.
    keepAliveInitialDelayMillis: 10_000,
    statement_timeout: options.statementTimeoutMs ?? statementTimeoutMs,
    lock_timeout: 5_000,
    idle_in_transaction_session_timeout: 15_000,
  };
}

/** The URL with the password of now. What cannot be read is left out: Postgres refuses the connection, and says so. */
function urlWithPassword({ url, passwordFile }: Pick<PoolOptions, 'url' | 'passwordFile'>): string {
  if (passwordFile === undefined) return url;
  try {
    const password = encodeURIComponent(readFileSync(passwordFile, 'utf8').trim());
    return Object.assign(new URL(url), { password }).href;
  } catch {
    return url;
  }
}

/** The client of a pool, which makes each connection with the password of that moment. */
function clientWithPassword(options: Pick<PoolOptions, 'url' | 'passwordFile'>): typeof PreparingClient {
  if (options.passwordFile === undefined) return PreparingClient;
  return class extends PreparingClient {
    constructor(config: pg.ClientConfig) {
      super({ ...config, connectionString: urlWithPassword(options) });
    }
  };
}

/** A pool of connections with statement, lock and idle time limits set on each. json and jsonb come as text. */
export function createPool(options: PoolOptions): Pool {
  const pool = new pg.Pool({
    ...connectionConfig(options),
    Client: clientWithPassword(options),
    max: options.size,
    idleTimeoutMillis: 30_000,
    maxLifetimeSeconds: (options.lifetimeMs ?? connectionLifetimeMs) / 1_000,
    types,
  });
  // An idle connection that breaks is replaced; the error says only that Postgres went away.
  // At an end Postgres may stop before it has read that the connection is closed.
  pool.on('error', (error) => {
    if (!pool.ending) options.log.warn({ err: error }, 'an idle database connection broke');
  });
  // It can also break after the pool has let go of it and before whoever gets it listens; without a listener of ours
  // that would end the process. The next statement reports it.
  pool.on('connect', (connection) => connection.on('error', () => {}));
  const silence = new SilenceWatch({
    statementTimeoutMs: options.statementTimeoutMs ?? statementTimeoutMs,
    graceMs: options.graceMs ?? silenceGraceMs,
    log: options.log,
  });
  // Every connection of the pool is made by its `Client`.
  pool.on('connect', (connection) => silence.add(connection as unknown as PreparingClient));
  pool.on('remove', (connection) => silence.delete(connection as unknown as PreparingClient));
  observePool(options.applicationName, pool);
  return pool;
}

/** Runs a statement; a frequent one is prepared. */
function run<R extends pg.QueryResultRow>(db: Queryable, statement: Sql): Promise<pg.QueryResult<R>> {
  const { text, values } = statement.compile();
  const name = statementName(text);
  return (db as pg.Pool).query<R>(name === undefined ? { text, values } : { name, text, values });
}

export async function rows<R extends object>(db: Queryable, statement: Sql): Promise<R[]> {
  return (await run<R & pg.QueryResultRow>(db, statement)).rows;
}

export async function row<R extends object>(db: Queryable, statement: Sql): Promise<R | undefined> {
  return (await rows<R>(db, statement))[0];
}

/** How many rows a statement touched. */
export async function execute(db: Queryable, statement: Sql): Promise<number> {
  return (await run(db, statement)).rowCount ?? 0;
}

/**
 * Refuses a Postgres that could lose an acknowledged write or that orders text other than by code points.
 * Throws an Error that names the setting.
 */
export async function assertSafePostgres(pool: Pool): Promise<void> {
  const { rows: settingRows } = await pool
    .query<{ name: string; setting: string }>(
      `select name, setting from pg_settings
       where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'server_version_num', 'server_encoding',
         'transaction_read_only')
       union all
       select 'collation', coalesce(datlocale, datcollate) from pg_database where datname = current_database()`,
    )
    .catch((cause: unknown) => {
      const NotReached = isUnreachable(cause) ? NotAvailableError : StartError;
      throw new NotReached(`The database cannot be reached: ${reasonOf(cause)}. Check DATABASE_URL.`, { cause });
    });
  const settings = new Map(settingRows.map((setting) => [setting.name, setting.setting]));
  for (const name of ['fsync', 'full_page_writes']) {
    if (settings.get(name) !== 'on')
      throw new StartError(`Postgres has ${name} off: acknowledged writes could be lost. Turn it on`);
  }
  if (settings.get('synchronous_commit') === 'off') {
    throw new StartError('Postgres has synchronous_commit off: acknowledged writes could be lost. Turn it on');
  }
  if (settings.get('transaction_read_only') === 'on') {
    throw new NotAvailableError('Postgres is read-only, a standby perhaps: DATABASE_URL must name the primary');
  }
  if (Number(settings.get('server_version_num')) < 180000)
    throw new StartError('Postgres 18 or newer is needed: DATABASE_URL names an older one');
  if (settings.get('server_encoding') !== 'UTF8') throw new StartError('the database must be encoded in UTF8');
  if (!['C', 'POSIX', 'C.UTF-8', 'PG_UNICODE_FAST'].includes(settings.get('collation') ?? '')) {
    throw new StartError(
      `the database has the collation ${settings.get('collation')}: text must sort by code points (C or C.UTF-8)`,
    );
  }
}

/** Node gathers what several addresses of a name answered in an error without a message. */
function reasonOf(cause: unknown): string {
  const first: unknown = cause instanceof AggregateError ? cause.errors[0] : cause;
  return first instanceof Error ? first.message : String(first);
}
