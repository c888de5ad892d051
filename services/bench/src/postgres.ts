import pg from 'pg';
import { startPostgres, type EmbeddedPostgres } from '@granary/local/postgres/postgres';
import { serve } from './child';

/** The number of 16 MiB log files that the server retains. */
const logFiles = 64;

/**
 * The Postgres shared by all sides, each with its own databases. It ends with this process, which may happen before
 * `start` has set it.
 */
let postgres: EmbeddedPostgres;
const databases: string[] = [];

const calls = {
  start: async (dataDir: string) => {
    const log = { info: () => {}, warn: (text: string) => console.error(text) };
    postgres = await startPostgres({ dataDir, choosesWalSync: true, log });
    return { pid: postgres.postmasterPid() };
  },
  /** Creates databases, and a role of the same name for each; returns their URLs by name. */
  makeDatabases: async (names: string[]) => {
    const urls: Record<string, string> = {};
    for (const name of names) urls[name] = await postgres.ensureDatabase(name, name);
    databases.push(...names);
    return urls;
  },
  /** Does the maintenance that would run minutes after a load, so that it does not run during a measurement. */
  tidy: async () => {
    await makeLogFiles();
    for (const database of databases) {
      const client = new pg.Client({ connectionString: postgres.url(database) });
      await client.connect();
      await client.query('vacuum (analyze)').finally(() => client.end());
    }
  },
  /**
   * Blocks that the statements of a database have read, in memory or not, as far as its connections have reported them.
   */
  blocksRead: async (database: string) => {
    const client = new pg.Client({ connectionString: postgres.url('postgres') });
    await client.connect();
    const text = 'select blks_hit + blks_read as blocks from pg_stat_database where datname = $1';
    const { rows } = await client.query<{ blocks: string }>(text, [database]).finally(() => client.end());
    return Number(rows[0]!.blocks);
  },
  /** Runs a statement; returns its rows, and how long it took. */
  execute: async ({ database, text }: { database: string; text: string }) => {
    const client = new pg.Client({ connectionString: postgres.url(database) });
    await client.connect();
    try {
      const beganMs = performance.now();
      const { rows } = await client.query<Record<string, unknown>>(text);
      return { rows, ms: performance.now() - beganMs };
    } finally {
      await client.end();
    }
  },
  /** Runs a `copy … to stdout` and takes its bytes; returns how many they are, and how long that took. */
  copyOut: async ({ database, text }: { database: string; text: string }) => {
    const client = new pg.Client({ connectionString: postgres.url(database) });
    await client.connect();
    try {
      const beganMs = performance.now();
      const bytes = await copyBytes(client, text);
      return { bytes, ms: performance.now() - beganMs };
    } finally {
      await client.end();
    }
  },
  stop: () => postgres?.stop(),
};

export type PostgresCalls = typeof calls;

serve(calls);

/**
 * A server that has run for a while reuses its log files. A new one has none, so every commit waits while one is
 * created.
 */
async function makeLogFiles() {
  const client = new pg.Client({ connectionString: postgres.url('postgres') });
  await client.connect();
  try {
    for (let made = 0; made < logFiles; made++) {
      await client.query(`select pg_logical_emit_message(true, 'bench', 'a file of the log'), pg_switch_wal()`);
    }
    await client.query('checkpoint');
  } finally {
    await client.end();
  }
}

/** The bytes that a `copy … to stdout` sends; pg has no method for it. */
const copyBytes = (client: pg.Client, text: string): Promise<number> =>
  new Promise((resolve, reject) => {
    let bytes = 0;
    const copy = {
      submit: (connection: pg.Connection) => connection.query(text),
      handleCopyData: ({ chunk }: { chunk: Buffer }) => (bytes += chunk.length),
      handleCommandComplete: () => {},
      handleReadyForQuery: () => resolve(bytes),
      handleError: reject,
    };
    client.query(copy);
  });
