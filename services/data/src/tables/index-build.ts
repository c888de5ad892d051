import { conflict, notFound, ServiceError } from '@granary/shared/errors';
import { sqlState } from '@granary/shared/postgres/errors';
import { execute, row, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import {
  descendingKey,
  documentsTable,
  emptyKey,
  findCollection,
  keyColumn,
  uniqueColumn,
  type CollectionRef,
  type IndexColumns,
  type IndexDefinition,
} from '../catalog/collection';
import { JobInterruptedError, type JobContext, type Report } from '../jobs/queue';
import { appendStoredKeys, keyArrays } from '../documents/keys';
import { compileRules, type DocumentRules } from '../documents/rules';
import { OrderedKeys } from '../values/ordered-key';
import { bumpCatalogRevision, lockApp } from '../catalog/app-lock';
import { findApp } from '../catalog/app';

export const INDEX_NOT_FOUND = 'INDEX_NOT_FOUND';
export const UNIQUE_VIOLATION = 'UNIQUE_VIOLATION';

/** Rows that one transaction of a build reads and fills: fewer where they are large. */
const fillBatchRows = 1_000;
const fillBatchBytes = 8 * 1024 * 1024;
const vacuumEveryBatches = 10;
const buildTimeoutMs = 3_600_000;
/** Builds take turns within a database: each reads a whole table. */
const buildLock = 7_265_002;

/** Names of the Postgres indexes that an index may have: its keys, those rows of a composite that lack one, unique values. */
const keyIndexName = (number: bigint): Sql => named('i_', number);
const emptyIndexName = (number: bigint): Sql => named('n_', number);
const uniqueIndexName = (number: bigint): Sql => named('q_', number);

/** The number of the index whose uniqueness a Postgres constraint guards. */
export function uniqueIndexNumber(constraint: string | undefined): bigint | undefined {
  const match = /^q_(\d{1,19})$/.exec(constraint ?? '');
  return match ? BigInt(match[1]!) : undefined;
}

/**
 * Interrupts the builds of indexes that hold their tables now, so that a change of a table does not wait for them.
 * Their jobs start again, and see what has changed. `which` is a condition on document_index i.
 */
export async function cancelBuilds(db: Queryable, which: Sql): Promise<void> {
  await execute(
    db,
    sql`select pg_cancel_backend(a.pid) from pg_stat_activity a join document_index i on a.application_name = 'granary-index-' || i.number
        where a.datname = current_database() and a.state = 'active'
          and a.query ~ '^(create (unique )?index|drop index|analyze) ' and ${which}`,
  );
}

/** What a unique index is refused with when stored documents have equal values. */
export function duplicates({ fields }: Pick<IndexDefinition, 'fields'>): ServiceError {
  const message =
    fields.length === 1
      ? 'must be unique, and stored documents have equal values'
      : 'must be unique together, and stored documents have equal values';
  return conflict(
    UNIQUE_VIOLATION,
    `The documents have equal values of ${fields.join(', ')}: the index cannot be unique`,
    Object.fromEntries(fields.map((field) => [field, [message]])),
  );
}

/**
 * Makes the btree of the keys; for a composite one of the rows that lack a value, as they come in an order that
 * descends; and for a unique index the constraint that refuses a second value. That one is checked at the end of a
 * statement, so that two documents of one commit may exchange their values.
 */
export async function createPostgresIndexes(
  db: Queryable,
  table: { appNumber: bigint; number: bigint },
  index: IndexColumns,
  concurrently: boolean,
): Promise<void> {
  const how = concurrently ? trusted('concurrently') : empty;
  const on = documentsTable(table);
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
  await execute(
    db,
    sql`alter table ${on} add constraint ${name} unique using index ${name} deferrable initially immediate`,
  );
}

/** Drops what an index was read by; what guards the uniqueness of one stays. */
export async function dropKeyIndexes(
  db: Queryable,
  table: { appNumber: bigint },
  index: Pick<IndexDefinition, 'number'>,
): Promise<void> {
  for (const name of [keyIndexName(index.number), emptyIndexName(index.number)]) {
    await execute(db, sql`drop index if exists ${named('a_', table.appNumber, '.')}${name}`);
  }
}

async function hasConstraint(db: Queryable, appNumber: bigint, number: bigint): Promise<boolean> {
  const index = `a_${appNumber}.q_${number}`;
  return (await row(db, sql`select from pg_constraint where conindid = to_regclass(${index})`)) !== undefined;
}

/**
 * Fills the columns of an index for the rows that writers have not filled since: in batches by id, each update only
 * where the version is still the one that was read.
 */
export async function fillKeys(
  db: Queryable,
  handle: CollectionRef,
  index: IndexDefinition,
  update: (statement: Sql) => Promise<unknown>,
  report: Report | undefined,
): Promise<void> {
  const rules = compileRules(index.keys, [index], undefined);
  const table = documentsTable(handle);
  // Inside a transaction there is no vacuum, and no need of it: only a build beside the writers reports.
  const vacuums = report !== undefined;
  let last = '';
  let done = 0;
  let batches = 0;
  for (;;) {
    const batch = await rows<StoredRow>(
      db,
      sql`select id, body, version
          from (select *, sum(octet_length(body)) over (order by id) - octet_length(body) as bytes_before
                from (select id, body, version from ${table} where id > ${last} order by id limit ${fillBatchRows}) batch) sized
          where bytes_before < ${fillBatchBytes} order by id`,
    );
    if (batch.length === 0) return;
    await update(fillingBatch(table, index, rules, batch));
    last = batch.at(-1)!.id;
    done += batch.length;
    // Each update leaves a dead row behind: without this the table would double.
    batches += 1;
    if (vacuums && batches % vacuumEveryBatches === 0) await execute(db, sql`vacuum ${table}`);
    await report?.(Math.min(0.8, (0.8 * done) / Math.max(1, Number(handle.rowCount))), `${done} documents read`);
  }
}

interface StoredRow {
  id: string;
  body: string;
  version: bigint;
}

/** Writes the keys and unique values of rows that are still as they were read, where they differ. */
function fillingBatch(table: Sql, index: IndexDefinition, rules: DocumentRules, batch: readonly StoredRow[]): Sql {
  const keys = new OrderedKeys(batch.length * index.keys.length * 32);
  const filled = batch.map(({ body }) => {
    const keysStart = keys.length;
    const uniques = appendStoredKeys(Buffer.from(body), rules, keys);
    return { keys, keysStart, keysEnd: keys.length, uniques };
  });
  const arrays = keyArrays(index.keys.length, filled).map((array) => sql`${array}::bytea[]`);
  const columns = index.keys.map(keyColumn);
  if (index.unique) {
    arrays.push(sql`${filled.map(({ uniques }) => uniques?.[0] ?? null)}::text[]`);
    columns.push(uniqueColumn(index));
  }
  const each = (part: (column: Sql) => Sql, separator: string) => join(columns.map(part), separator);
  return sql`update ${table} t set ${each((column) => sql`${column} = v.${column}`, ', ')}
    from unnest(${batch.map(({ id }) => id)}::text[], ${batch.map(({ version }) => version.toString())}::int8[], ${join(arrays, ', ')})
         as v(id, version, ${join(columns, ', ')})
    where t.id = v.id and t.version = v.version
      and (${each((column) => sql`t.${column} is distinct from v.${column}`, ' or ')})`;
}

/** An index that is to be built, as it was when the build began. */
interface Building {
  handle: CollectionRef;
  index: IndexDefinition;
  /** Postgres's own version of the catalog row: another one when a later build has been asked for. */
  version: string;
}

async function findBuilding(pool: Pool, payload: Record<string, unknown>): Promise<Building | undefined> {
  const number = BigInt(String(payload['index']));
  const app = await findApp(pool, String(payload['app_id']));
  const state = await row<{ version: string }>(
    pool,
    sql`select xmin::text as version from document_index where number = ${number}`,
  );
  const handle = await findCollection(pool, app, String(payload['collection']));
  const index = handle?.indexes.find((candidate) => candidate.number === number);
  return handle && index && state ? { handle, index, version: state.version } : undefined;
}

/** The job of a build: fills the columns, makes the Postgres indexes beside the writers, gathers statistics. */
export async function buildIndexJob(
  { pool, stopping }: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const deleted = () => notFound(INDEX_NOT_FOUND, 'The index was deleted');
  const found = await findBuilding(pool, payload);
  if (!found) throw deleted();
  const startedMs = Date.now();
  const cancel = () => void cancelBuilds(pool, sql`i.number = ${found.index.number}`).catch(() => {});
  stopping.addEventListener('abort', cancel);
  try {
    await build(pool, found, report);
  } catch (error) {
    if (sqlState(error) === '23505') {
      await endBuild(pool, found, 'failed');
      throw duplicates(found.index);
    }
    if (!(await findBuilding(pool, payload))) throw deleted();
    const isCancelled = sqlState(error) === '57014' && Date.now() - startedMs < buildTimeoutMs;
    throw isCancelled ? new JobInterruptedError('the build was cancelled', { cause: error }) : error;
  } finally {
    stopping.removeEventListener('abort', cancel);
  }
  await endBuild(pool, found, 'ready');
  return { index: found.index.name, collection: found.handle.name };
}

/** Throws JobInterruptedError while another build has its turn. */
async function build(pool: Pool, { handle, index }: Building, report: Report): Promise<void> {
  const connection = await pool.connect();
  // Without a listener the loss of the connection would end the process; the statement under way reports it.
  connection.on('error', () => {});
  try {
    await connection.query(
      `set statement_timeout = ${buildTimeoutMs}; set lock_timeout = 0; set application_name = 'granary-index-${index.number}'`,
    );
    // To wait inside Postgres would hold a snapshot, and the build that has its turn waits for all older ones.
    const turn = await row<{ taken: boolean }>(connection, sql`select pg_try_advisory_lock(${buildLock}) as taken`);
    if (!turn?.taken) throw new JobInterruptedError('another index is being built');
    await dropLeftovers(connection, handle, index);
    // Writers of the same rows in another order would make a deadlock, so each batch is written under the head's lock.
    const update = (statement: Sql) =>
      retriedTransaction(pool, async (tx) => {
        await lockApp(tx, handle.appNumber);
        await execute(tx, statement);
      });
    await fillKeys(connection, handle, index, update, report);
    await createPostgresIndexes(connection, handle, index, true);
    await report(0.95, 'indexes made');
    await execute(connection, sql`analyze ${documentsTable(handle)} (${join(index.keys.map(keyColumn), ', ')})`);
  } finally {
    // The session's settings and lock go with it.
    connection.release(true);
  }
}

/**
 * Marks a build as ready, or as failed, which takes away what would refuse or slow down writes. When another build
 * of the index was asked for meanwhile (its keys mean something else now), that one decides.
 */
async function endBuild(pool: Pool, { handle, index, version }: Building, status: 'ready' | 'failed'): Promise<void> {
  const error = status === 'failed' ? duplicates(index).message : null;
  await retriedTransaction(pool, async (tx) => {
    await lockApp(tx, handle.appNumber);
    const ours = await execute(
      tx,
      sql`update document_index set status = ${status}, error = ${error}
          where number = ${index.number} and xmin::text = ${version}`,
    );
    if (ours === 0) return;
    if (status === 'failed') {
      await execute(
        tx,
        sql`alter table ${documentsTable(handle)} drop constraint if exists ${uniqueIndexName(index.number)}`,
      );
      await execute(
        tx,
        sql`drop index if exists ${named('a_', handle.appNumber, '.')}${uniqueIndexName(index.number)}`,
      );
      await dropKeyIndexes(tx, handle, index);
    }
    await bumpCatalogRevision(tx, handle.appNumber);
  });
}

/** Drops the old btrees of the keys, and a unique one that was left INVALID; a valid one goes on guarding. */
async function dropLeftovers(db: Queryable, table: { appNumber: bigint }, index: IndexDefinition): Promise<void> {
  await dropKeyIndexes(db, table, index);
  const name = `a_${table.appNumber}.q_${index.number}`;
  const invalidLeft = await row(
    db,
    sql`select from pg_index where not indisvalid and indexrelid = to_regclass(${name})`,
  );
  if (!invalidLeft) return;
  await execute(db, sql`drop index if exists ${named('a_', table.appNumber, '.')}${uniqueIndexName(index.number)}`);
}
