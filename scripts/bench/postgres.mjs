import pg from 'pg';
import { startPostgres } from '@granary/local/postgres/postgres';
import { serve } from './child.mjs';

/** Files of the log of 16 MiB each, as many as the server keeps. */
const logFiles = 64;

/** The Postgres that all sides share, each with databases of its own. It ends with this process. */
let postgres;
const databases = [];

serve({
  start: async (dataDir) => {
    postgres = await startPostgres({ dataDir, log: { info: () => {}, warn: (text) => console.error(text) } });
    return { pid: postgres.postmasterPid() };
  },
  /** Makes databases, and a role of the same name for each; answers their URLs by name. */
  makeDatabases: async (names) => {
    const urls = {};
    for (const name of names) urls[name] = await postgres.ensureDatabase(name, name);
    databases.push(...names);
    return urls;
  },
  /** What would happen some minutes after a load anyway, so that it does not happen in the middle of a run. */
  tidy: async () => {
    await makeLogFiles();
    for (const database of databases) {
      const client = new pg.Client({ connectionString: postgres.url(database) });
      await client.connect();
      await client.query('vacuum (analyze)').finally(() => client.end());
    }
  },
  stop: () => postgres?.stop(),
});

/**
 * A server that has been at work for a while uses the files of its log again. A new one has none, and every commit waits
 * while one is made.
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
