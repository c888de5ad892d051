import { Backoff } from '@granary/shared/concurrency/backoff';
import { isRetryable } from '@granary/shared/postgres/errors';
import { execute, row, type Queryable } from '@granary/shared/postgres/pool';
import { empty, join, named, Sql, sql, trusted } from '@granary/shared/postgres/sql';
import type { IndexColumns, IndexDefinition } from '../catalog/index-definition';
import { searchConfiguration } from '../catalog/search-language';
import { descendingKey, documentsTable, emptyKey, keyColumn, searchColumn, uniqueColumn } from '../catalog/table-names';

/**
 * Kilobytes of new words that a full-text index collects before it sorts them in: a write that does so takes longer.
 */
const pendingListKb = 128;

/**
 * Names of the Postgres indexes that an index may have: its keys or words, those rows of a composite that lack one,
 * unique values.
 */
const keyIndexName = (number: bigint): Sql => named('i_', number);
const emptyIndexName = (number: bigint): Sql => named('n_', number);
const uniqueIndexName = (number: bigint): Sql => named('q_', number);

/** The number of the index whose uniqueness a Postgres constraint ensures. */
export function uniqueIndexNumber(constraint: string | undefined): bigint | undefined {
  const match = /^q_(\d{1,19})$/.exec(constraint ?? '');
  return match ? BigInt(match[1]!) : undefined;
}

/**
 * Creates the index of the words of a full-text index. For any other the btree of the keys; for a composite one also
 * that of the rows that lack a value, in their place in a descending order; and for a unique index the constraint that
 * refuses a second value. That one is checked at the end of a statement, so that two documents of one commit may
 * exchange their values.
 */
export async function createPostgresIndexes(
  db: Queryable,
  table: { appNumber: bigint; number: bigint },
  index: IndexColumns,
  concurrently: boolean,
): Promise<void> {
  const how = concurrently ? trusted('concurrently') : empty;
  const on = documentsTable(table);
  if (index.language !== null) {
    const words = sql`to_tsvector(${searchConfiguration(index.language)}, ${searchColumn(index)})`;
    const pending = sql`with (gin_pending_list_limit = ${trusted(String(pendingListKb))})`;
    await execute(db, sql`create index ${how} ${keyIndexName(index.number)} on ${on} using gin (${words}) ${pending}`);
    return;
  }
  const keys = index.keys.map(keyColumn);
  await execute(db, sql`create index ${how} ${keyIndexName(index.number)} on ${on} (${join(keys, ', ')}, id)`);
  if (keys.length > 1) {
    const lacksValue = join(
      keys.map((key) => sql`${key} = ${emptyKey}`),
      ' or ',
    );
    const descending = join(keys.map(descendingKey), ', ');
    await execute(
      db,
      sql`create index ${how} ${emptyIndexName(index.number)} on ${on} (${descending}, id) where ${lacksValue}`,
    );
  }
  if (!index.unique || (await hasConstraint(db, table.appNumber, index.number))) return;
  const name = uniqueIndexName(index.number);
  await execute(db, sql`create unique index ${how} if not exists ${name} on ${on} (${uniqueColumn(index)})`);
  const constraint = sql`alter table ${on} add constraint ${name} unique using index ${name} deferrable initially immediate`;
  if (concurrently) await executeBesideWriters(db, constraint);
  else await execute(db, constraint);
}

/** How long a statement may wait for the lock of a table, and the pauses between its attempts. */
const exclusiveLockMs = 500;
const lockDelays = { firstMs: 500, maxMs: 2_000 };
const lockAttempts = 100;

/**
 * Runs a statement that locks a table against everyone, in a session without a lock timeout. While it waits for a
 * reader, writers wait behind it: so it waits shortly, several times.
 */
async function executeBesideWriters(db: Queryable, statement: Sql): Promise<void> {
  const backoff = new Backoff(lockDelays);
  try {
    await execute(db, sql`set lock_timeout = ${trusted(String(exclusiveLockMs))}`);
    for (;;) {
      try {
        await execute(db, statement);
        return;
      } catch (error) {
        if (!isRetryable(error) || backoff.failures >= lockAttempts) throw error;
        await backoff.wait();
      }
    }
  } finally {
    await execute(db, sql`set lock_timeout = 0`);
  }
}

/**
 * Drops the Postgres indexes that reads use; the one that ensures uniqueness stays. Concurrently, which no transaction
 * can, it waits for the readers of the table without making writers wait.
 */
export async function dropKeyIndexes(
  db: Queryable,
  table: { appNumber: bigint },
  index: Pick<IndexDefinition, 'number'>,
  concurrently = false,
): Promise<void> {
  const how = concurrently ? trusted('concurrently') : empty;
  for (const name of [keyIndexName(index.number), emptyIndexName(index.number)]) {
    await execute(db, sql`drop index ${how} if exists ${named('a_', table.appNumber, '.')}${name}`);
  }
}

async function hasConstraint(db: Queryable, appNumber: bigint, number: bigint): Promise<boolean> {
  const index = `a_${appNumber}.q_${number}`;
  return (await row(db, sql`select from pg_constraint where conindid = to_regclass(${index})`)) !== undefined;
}

/**
 * Drops the old btrees of the keys, and a unique one that is INVALID; a valid one still ensures uniqueness. Outside of
 * a transaction.
 */
export async function dropLeftovers(
  db: Queryable,
  table: { appNumber: bigint },
  index: IndexDefinition,
): Promise<void> {
  await dropKeyIndexes(db, table, index, true);
  const name = `a_${table.appNumber}.q_${index.number}`;
  const invalidLeft = await row(
    db,
    sql`select from pg_index where not indisvalid and indexrelid = to_regclass(${name})`,
  );
  if (!invalidLeft) return;
  const unique = sql`${named('a_', table.appNumber, '.')}${uniqueIndexName(index.number)}`;
  await execute(db, sql`drop index concurrently if exists ${unique}`);
}
