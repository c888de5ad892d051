import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, DatabaseError } from 'pg';
import { limitMs } from './speed';

/** Holds the superuser's URL of the Postgres that the test run started. */
export const testPostgresVariable = 'GRANARY_TEST_POSTGRES';

const role = 'granary_test';
const busyTemplateTimeoutMs = 10_000;

/** A worker of jest runs one suite at a time, which loads this module anew. */
const worker = process.env['JEST_WORKER_ID'];
const ofWorker = `test_${worker ?? 'main'}_`;
const ofSuite = `${ofWorker}${randomBytes(4).toString('hex')}_`;
let isFirst = true;

export interface TestDatabase {
  /** URL for the role that owns the database; like a service's role it is no superuser. */
  url: string;
}

/**
 * A fresh empty database. The next suite of this worker drops it, with whoever is still connected; those of the last
 * suite go with the cluster at the end of the run, and so do those of jest's main process.
 */
export async function testDatabase(): Promise<TestDatabase> {
  return createFrom('template0');
}

/** A fresh copy of a template database, see `templateDatabase`. */
export async function cloneDatabase(template: string): Promise<TestDatabase> {
  return createFrom(template);
}

/**
 * Makes the template database `name` once per run, however many workers ask, and answers its name. `migrate` fills it
 * through the URL it gets, and must have closed its connections when it resolves.
 */
export async function templateDatabase(name: string, migrate: (url: string) => Promise<void>): Promise<string> {
  const lock = createHash('sha256').update(name).digest().readInt32BE(0);
  return asSuperuser(async (client) => {
    await client.query('select pg_advisory_lock($1, $2)', [20_251, lock]);
    const found = await client.query('select from pg_database where datname = $1 and datistemplate', [name]);
    if (found.rowCount === 1) return name;
    // A worker died while it migrated.
    await client.query(`drop database if exists ${quote(name)} with (force)`);
    await ensureRole(client);
    await client.query(`create database ${quote(name)} owner ${role} template template0`);
    await migrate(urlOf(name));
    await client.query(`alter database ${quote(name)} with is_template true allow_connections false`);
    return name;
  });
}

/** The superuser's URL of a database, for tests that cut connections or look at the server. */
export function superuserUrl(database = 'postgres'): string {
  const url = process.env[testPostgresVariable];
  if (url === undefined) throw new Error(`${testPostgresVariable} is not set: run the tests through jest`);
  return Object.assign(new URL(url), { pathname: `/${database}` }).href;
}

async function createFrom(template: string): Promise<TestDatabase> {
  const name = ofSuite + randomUUID().replaceAll('-', '');
  if (isFirst && worker !== undefined) void dropEarlier();
  isFirst = false;
  await asSuperuser(async (client) => {
    await ensureRole(client);
    const deadline = performance.now() + limitMs(busyTemplateTimeoutMs);
    for (;;) {
      try {
        await client.query(`create database ${quote(name)} owner ${role} template ${quote(template)} strategy wal_log`);
        return;
      } catch (error) {
        // object_in_use: a connection that was closed just now is still going away.
        if (!(error instanceof DatabaseError && error.code === '55006') || performance.now() > deadline) throw error;
        await delay(50);
      }
    }
  });
  return { url: urlOf(name) };
}

/** Drops what earlier suites of this worker have made, beside the suite: each drop waits for a checkpoint. */
async function dropEarlier(): Promise<void> {
  await asSuperuser(async (client) => {
    // It need not be done where the worker ends before. The types of pg lack the method.
    (client as Client & { unref(): void }).unref();
    const { rows } = await client.query<{ name: string }>(
      'select datname as name from pg_database where starts_with(datname, $1) and not starts_with(datname, $2)',
      [ofWorker, ofSuite],
    );
    for (const { name } of rows) await client.query(`drop database if exists ${quote(name)} with (force)`);
  }).catch(() => {
    // The end of the run has stopped Postgres meanwhile. They take room, but are in nobody's way.
  });
}

async function ensureRole(client: Client): Promise<void> {
  await client.query('select pg_advisory_lock(20252)');
  try {
    const found = await client.query('select from pg_roles where rolname = $1', [role]);
    if (found.rowCount === 0) await client.query(`create role ${role} login password '${rolePassword()}'`);
  } finally {
    await client.query('select pg_advisory_unlock(20252)');
  }
}

async function asSuperuser<T>(work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: superuserUrl() });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

function urlOf(database: string): string {
  return Object.assign(new URL(superuserUrl(database)), { username: role, password: rolePassword() }).href;
}

function rolePassword(): string {
  return createHash('sha256').update(superuserUrl()).digest('hex');
}

function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
