import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { resolveDataDir } from '@granary/local/postgres/data-dir';
import { startPostgres, type EmbeddedPostgres } from '@granary/local/postgres/postgres';
import { send, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';

const silent = { info: () => undefined, warn: () => undefined };
let directory: string;
let postgres: EmbeddedPostgres;
let granary: Granary;
let admin: Client;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-standbys-'));
  const { dataDir } = await resolveDataDir({ defaultDir: directory });
  postgres = await startPostgres({ dataDir, log: silent });
  const tasks = await postgres.ensureDatabase('granary_tasks', 'granary_tasks');
  granary = await startGranary('wire', { databaseUrls: { tasks } });
  admin = new Client({ connectionString: postgres.url('postgres') });
  await admin.connect();
});
afterAll(async () => {
  await granary.stop();
  await admin.end();
  await postgres.stop();
  await rm(directory, { recursive: true, force: true });
});

const message = 'has standbys and none is synchronous: a failover would lose acknowledged writes';
const isWarned = async () => (await send(granary.url, 'GET', '/health')).text.includes(message);

/** A connection for the WAL, which Postgres does not end although what it sends is not confirmed. */
function walReceiver(): Client {
  const options = { replication: 'true', options: '-c wal_sender_timeout=0' };
  const receiver = new Client({ connectionString: postgres.url('postgres'), ...options });
  receiver.on('error', () => {});
  return receiver;
}

/** What a standby is to its primary: a connection that receives the WAL, here from a slot. Resolves to its end. */
async function stream(slot: string): Promise<() => Promise<void>> {
  const standby = walReceiver();
  await standby.connect();
  const { rows } = await admin.query<{ lsn: string }>('select pg_current_wal_lsn() as lsn');
  standby.query(`START_REPLICATION SLOT ${slot} PHYSICAL ${rows[0]!.lsn}`).catch(() => {});
  return async () => {
    await admin.query('select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1', [slot]);
    await eventually(async () => {
      const { rowCount } = await admin.query('select from pg_replication_slots where active');
      return rowCount === 0;
    });
    await standby.end().catch(() => {});
  };
}

test('health is degraded while standbys exist and none is synchronous', async () => {
  expect(await isWarned()).toBe(false);
  await admin.query(`select pg_create_physical_replication_slot('standby')`);
  const end = await stream('standby');
  await eventually(isWarned);
  expect((await send(granary.url, 'GET', '/health')).body['status']).toBe('degraded');

  // Commits would now wait for the standby; health only reads.
  await admin.query(`alter system set synchronous_standby_names = '*'`);
  await admin.query('select pg_reload_conf()');
  await eventually(async () => !(await isWarned()));

  await admin.query('alter system reset synchronous_standby_names');
  await admin.query('select pg_reload_conf()');
  await eventually(isWarned);
  await end();
  await eventually(async () => !(await isWarned()));

  // A base backup streams from a slot that is temporary.
  const backup = walReceiver();
  await backup.connect();
  await backup.query('CREATE_REPLICATION_SLOT base TEMPORARY PHYSICAL RESERVE_WAL');
  const { rows } = await admin.query<{ lsn: string }>('select pg_current_wal_lsn() as lsn');
  backup.query(`START_REPLICATION SLOT base PHYSICAL ${rows[0]!.lsn}`).catch(() => {});
  await eventually(async () => (await admin.query('select from pg_replication_slots where active')).rowCount === 1);
  expect(await isWarned()).toBe(false);
  await backup.end().catch(() => {});
});
