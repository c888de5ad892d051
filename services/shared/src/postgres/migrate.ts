import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { StartError } from '../start-error';
import type { Connection, Pool, Queryable } from './pool';
import { retriedTransaction } from './transaction';

const NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;
// Any fixed number will do, as long as everything that migrates a database takes the same.
const migrationLock = 7_265_001;
const statementTimeoutMs = 60_000;
/** A bound: Postgres gives each statement of a migration the whole timeout, and answers when all are done. */
const statementsPerText = 30;

export interface Migration {
  name: string;
  text: string;
}

/** The migrations of a directory, in their order. Throws when their numbers have a gap. */
export async function readMigrations(directory: string): Promise<Migration[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.sql')).sort();
  return Promise.all(
    names.map(async (name, index) => {
      if (Number(NAME.exec(name)?.[1] ?? -1) !== index + 1)
        throw new Error(`${name}: migrations are numbered 0001, 0002, …`);
      return { name, text: await readFile(join(directory, name), 'utf8') };
    }),
  );
}

/**
 * The repeatable migrations of a directory, in the folder `repeatable`: each replaces functions, and is applied after
 * all others whenever the database has not had this text yet. A release that has been replaced does not bring its text
 * back, so a function must serve the release before as well.
 */
export async function readRepeatables(directory: string): Promise<Migration[]> {
  const folder = join(directory, 'repeatable');
  if (!existsSync(folder)) return [];
  const names = (await readdir(folder)).sort();
  return Promise.all(names.map(async (name) => ({ name, text: await readFile(join(folder, name), 'utf8') })));
}

/**
 * Brings a database up to the migrations of a directory: forward only, each in a transaction of its own, under a
 * lock so that copies of a service may start together. Throws when a migration that was applied has changed.
 */
export async function migrate(pool: Pool, directory: string): Promise<void> {
  await applyMigrations(pool, 'service', await readMigrations(directory));
  await applyRepeatables(pool, await readRepeatables(directory));
}

/** Applies those repeatable migrations whose text the database has not had. The others must have been applied. */
export async function applyRepeatables(pool: Pool, repeatables: readonly Migration[]): Promise<void> {
  for (const repeatable of repeatables) {
    await retriedTransaction(pool, (tx) => applyRepeatable(tx, repeatable), { statementTimeoutMs, statementsPerText });
  }
}

/**
 * Brings a database up to the given migrations, as `migrate` does for a directory. Each source (the service itself, a
 * part of `shared`) numbers its migrations by itself.
 */
export async function applyMigrations(pool: Pool, source: string, migrations: readonly Migration[]): Promise<void> {
  const options = { statementTimeoutMs, statementsPerText };
  await retriedTransaction(pool, (tx) => prepare(tx), options);
  for (const [index, migration] of migrations.entries()) {
    await retriedTransaction(pool, (tx) => apply(tx, source, migration, index + 1), options);
  }
}

/** The names of the migrations of a source that a database lacks. Throws when one that was applied has changed. */
export async function missingMigrations(
  pool: Pool,
  source: string,
  migrations: readonly Migration[],
): Promise<readonly string[]> {
  // The command that migrates grants its tables once they are made.
  const { rows: tables } = await pool.query<{ isReadable: boolean }>(
    `select coalesce(has_table_privilege(to_regclass('migration'), 'select'), false) as "isReadable"`,
  );
  if (!tables[0]!.isReadable) return migrations.map(({ name }) => name);
  const { rows: applied } = await pool.query<{ number: number; checksum: string }>(
    'select number, checksum from migration where source = $1',
    [source],
  );
  const checksums = new Map(applied.map(({ number, checksum }) => [number, checksum]));
  return migrations.flatMap((migration, index) => {
    const checksum = checksums.get(index + 1);
    if (checksum === undefined) return [migration.name];
    assertUnchanged(migration, checksum);
    return [];
  });
}

/** The names of the repeatable migrations whose present text a database has never had. */
export async function missingRepeatables(pool: Pool, repeatables: readonly Migration[]): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const repeatable of repeatables) if (!(await wasApplied(pool, repeatable))) missing.push(repeatable.name);
  return missing;
}

/** Each text that a repeatable migration has had is a row of its source. */
const sourceOf = ({ name }: Migration): string => `repeatable ${name}`;

async function wasApplied(db: Queryable, repeatable: Migration): Promise<boolean> {
  const { rows } = await db.query('select from migration where source = $1 and checksum = $2', [
    sourceOf(repeatable),
    checksumOf(repeatable),
  ]);
  return rows.length > 0;
}

async function applyRepeatable(tx: Connection, repeatable: Migration): Promise<void> {
  await lockMigrations(tx);
  if (await wasApplied(tx, repeatable)) return;
  await tx.query(repeatable.text);
  await tx.query(
    `insert into migration (source, number, name, checksum)
     select $1, coalesce(max(number), 0) + 1, $2, $3 from migration where source = $1`,
    [sourceOf(repeatable), repeatable.name, checksumOf(repeatable)],
  );
}

const checksumOf = ({ text }: Migration): string => createHash('sha256').update(text).digest('hex');

function assertUnchanged(migration: Migration, applied: string): void {
  if (checksumOf(migration) === applied) return;
  throw new StartError(`The migration ${migration.name} was changed after it had been applied. Put the original back`);
}

/**
 * Waits for another copy that migrates as long as one of its migrations may take; a migration itself does not wait so.
 */
export async function lockMigrations(tx: Connection): Promise<void> {
  await tx.query('set local lock_timeout = 0');
  await tx.query(`select pg_advisory_xact_lock(${migrationLock})`);
  await tx.query('set local lock_timeout to default');
}

async function prepare(tx: Connection): Promise<void> {
  await lockMigrations(tx);
  await tx.query(`create table if not exists migration (
    source text, number int, name text not null, checksum text not null, applied_at timestamptz not null default now(),
    primary key (source, number))`);
}

async function apply(tx: Connection, source: string, migration: Migration, number: number): Promise<void> {
  await lockMigrations(tx);
  const { rows } = await tx.query<{ checksum: string }>(
    'select checksum from migration where source = $1 and number = $2',
    [source, number],
  );
  if (rows[0]) {
    assertUnchanged(migration, rows[0].checksum);
    return;
  }
  await tx.query(migration.text);
  await tx.query('insert into migration (source, number, name, checksum) values ($1, $2, $3, $4)', [
    source,
    number,
    migration.name,
    checksumOf(migration),
  ]);
}
