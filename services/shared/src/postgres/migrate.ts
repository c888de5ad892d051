import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Connection, Pool } from './pool';
import { retriedTransaction } from './transaction';

const NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;
// Any fixed number will do, as long as everything that migrates a database takes the same.
const migrationLock = 7_265_001;

interface Migration {
  name: string;
  text: string;
  checksum: string;
}

async function readMigrations(directory: string): Promise<Migration[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.sql')).sort();
  return Promise.all(
    names.map(async (name, at) => {
      if (Number(NAME.exec(name)?.[1] ?? -1) !== at + 1) throw new Error(`${name}: migrations are numbered 0001, 0002, …`);
      const text = await readFile(join(directory, name), 'utf8');
      return { name, text, checksum: createHash('sha256').update(text).digest('hex') };
    }),
  );
}

/**
 * Brings a database up to the migrations of a directory: forward only, each in a transaction of its own, under a
 * lock so that copies of a service may start together. Throws when a migration that was applied has changed.
 */
export async function migrate(pool: Pool, directory: string): Promise<void> {
  const migrations = await readMigrations(directory);
  await retriedTransaction(pool, (tx) => prepare(tx));
  for (const [at, migration] of migrations.entries()) {
    await retriedTransaction(pool, (tx) => apply(tx, migration, at + 1), { statementTimeoutMs: 60_000 });
  }
}

async function prepare(tx: Connection): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(${migrationLock})`);
  await tx.query(`create table if not exists migration (
    number int primary key, name text not null, checksum text not null, applied_at timestamptz not null default now())`);
}

async function apply(tx: Connection, migration: Migration, number: number): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(${migrationLock})`);
  const { rows } = await tx.query<{ checksum: string }>('select checksum from migration where number = $1', [number]);
  if (rows[0]) {
    if (rows[0].checksum === migration.checksum) return;
    throw new Error(`${migration.name} was changed after it had been applied`);
  }
  await tx.query(migration.text);
  await tx.query('insert into migration (number, name, checksum) values ($1, $2, $3)', [number, migration.name, migration.checksum]);
}
