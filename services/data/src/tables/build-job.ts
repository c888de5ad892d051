import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { expectStatementTimeout } from '@granary/shared/postgres/pool-client';
import { notFound, ServiceError } from '@granary/shared/errors';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { sqlState } from '@granary/shared/postgres/errors';
import { empty, join, Sql, sql } from '@granary/shared/postgres/sql';
import { findApp } from '../catalog/app';
import { dropIndex } from './drop-index';
import { duplicatesError, findDuplicates } from './duplicates';
import { createPostgresIndexes, dropLeftovers } from './postgres-index';
import { bumpCatalogRevision, lockApp } from '../catalog/app-lock';
import { fillKeys } from './fill-keys';
import { JobInterruptedError, type JobContext, type Report } from '../jobs/queue';
import { documentsTable, keyColumn } from '../catalog/table-names';
import { findCollection, type CollectionRef } from '../catalog/collection';
import { INDEX_NOT_FOUND, isSearchIndex, UNIQUE_VIOLATION, type IndexDefinition } from '../catalog/index-definition';

const buildTimeoutMs = 3_600_000;
/** Advisory lock: one build at a time in a database, because each reads a whole table. */
const buildLock = 7_265_002;

/**
 * Cancels the builds of indexes that have locked their tables, so that a change of a table does not wait for them.
 * Their jobs start again and see the change. `which` is a condition on document_index i.
 */
export async function cancelBuilds(db: Queryable, which: Sql): Promise<void> {
  await execute(
    db,
    sql`select pg_cancel_backend(a.pid) from pg_stat_activity a join document_index i on a.application_name = 'granary-index-' || i.number
        where a.datname = current_database() and a.state = 'active'
          and a.query ~ '^(create (unique )?index|drop index|analyze) ' and ${which}`,
  );
}

/** The index of a build, as it was when the build began. */
interface Building {
  collection: CollectionRef;
  index: IndexDefinition;
  /** The version of the row in Postgres (xmin), which a later request for a build changes. */
  version: string;
}

async function findBuilding(pool: Pool, payload: Record<string, unknown>): Promise<Building | undefined> {
  const number = BigInt(String(payload['index']));
  const app = await findApp(pool, String(payload['app_id']));
  const state = await row<{ version: string }>(
    pool,
    sql`select xmin::text as version from document_index where number = ${number}`,
  );
  const collection = await findCollection(pool, app, String(payload['collection']));
  const index = collection?.indexes.find((candidate) => candidate.number === number);
  return collection && index && state ? { collection, index, version: state.version } : undefined;
}

/**
 * The job of a build: fills the columns, creates the Postgres indexes concurrently with writers, updates statistics.
 */
export async function buildIndexJob(
  { pool, stopping }: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const deleted = () => notFound(INDEX_NOT_FOUND, 'The index was deleted');
  const target = await findBuilding(pool, payload);
  if (!target) throw deleted();
  const startedMs = Date.now();
  const cancel = () => void cancelBuilds(pool, sql`i.number = ${target.index.number}`).catch(() => {});
  stopping.addEventListener('abort', cancel);
  try {
    await build(pool, target, report);
  } catch (error) {
    if (error instanceof ServiceError && error.reason === UNIQUE_VIOLATION) {
      await endBuild(pool, target, error.message);
      throw error;
    }
    if (!(await findBuilding(pool, payload))) throw deleted();
    const isCancelled = sqlState(error) === '57014' && Date.now() - startedMs < buildTimeoutMs;
    throw isCancelled ? new JobInterruptedError('the build was cancelled', { cause: error }) : error;
  } finally {
    stopping.removeEventListener('abort', cancel);
  }
  await endBuild(pool, target, undefined);
  return { index: target.index.name, collection: target.collection.name };
}

/**
 * Marks the index of a build that failed for good, as the index says why, unless another build of it is waiting.
 * Returns the reason.
 */
export async function giveUpBuild(
  { pool }: JobContext,
  payload: Record<string, unknown>,
  error: unknown,
): Promise<string | undefined> {
  if (error instanceof ServiceError) return undefined;
  const reason = reasonOf(sqlState(error));
  const target = await findBuilding(pool, payload);
  // One that is requested after this look-up changes the version.
  const waiting = await row(
    pool,
    sql`select from job where kind = 'index.build' and subject = ${String(payload['index'])} and status = 'Pending'`,
  );
  if (target?.index.status === 'building' && !waiting) await endBuild(pool, target, reason);
  return reason;
}

function reasonOf(state: string | undefined): string {
  // query_canceled
  if (state === '57014') return `The index takes longer than ${buildTimeoutMs / 60_000} minutes to build`;
  // data_exception, program_limit_exceeded
  if (state !== undefined && /^(22|54)/.test(state)) return 'The index cannot hold a value of a document';
  const code = state === undefined ? '' : ` with the code ${state}`;
  return `The index could not be built: several attempts ended in an error of the database${code}`;
}

/** Throws JobInterruptedError while another build is running. */
async function build(pool: Pool, { collection, index }: Building, report: Report): Promise<void> {
  const connection = await pool.connect();
  // Without a listener the loss of the connection would end the process; the running statement reports it.
  connection.on('error', () => {});
  try {
    expectStatementTimeout(connection, buildTimeoutMs);
    await connection.query(
      `set statement_timeout = ${buildTimeoutMs}; set lock_timeout = 0; set application_name = 'granary-index-${index.number}'`,
    );
    // Waiting inside Postgres would hold a snapshot, and the running build waits for all older snapshots.
    const lock = await row<{ taken: boolean }>(connection, sql`select pg_try_advisory_lock(${buildLock}) as taken`);
    if (!lock?.taken) throw new JobInterruptedError('another index is being built');
    await dropLeftovers(connection, collection, index);
    // Writers of the same rows in another order could deadlock, so each batch is written under the lock of the app.
    const update = (statement: Sql) =>
      retriedTransaction(pool, async (tx) => {
        await lockApp(tx, collection.appNumber);
        await execute(tx, statement);
      });
    await fillKeys(connection, collection, index, update, report);
    await refuseDuplicates(connection, collection, index);
    try {
      await createPostgresIndexes(connection, collection, index, true);
    } catch (error) {
      if (sqlState(error) !== '23505') throw error;
      // Written since, or, if there are none by now, gone again.
      await refuseDuplicates(connection, collection, index);
      throw new JobInterruptedError('documents had equal values for a moment', { cause: error });
    }
    await report(0.95, 'indexes made');
    // The statistics of an expression come with those of all columns only.
    const columns = isSearchIndex(index) ? empty : sql`(${join(index.keys.map(keyColumn), ', ')})`;
    await execute(connection, sql`analyze ${documentsTable(collection)} ${columns}`);
  } finally {
    // The session's settings and lock go with it.
    connection.release(true);
  }
}

/** Throws UNIQUE_VIOLATION with some of the values when a unique index cannot be built over what is stored. */
async function refuseDuplicates(db: Queryable, collection: CollectionRef, index: IndexDefinition): Promise<void> {
  const duplicates = index.unique ? await findDuplicates(db, collection, index) : [];
  if (duplicates.length > 0) throw duplicatesError(index, duplicates);
}

/** The end of a build waits for long readers of its table, when it drops columns. */
const endAttempts = 100;

/**
 * Marks a build as ready, or as failed, which drops all that would refuse or slow down writes. When another build of
 * the index was requested meanwhile (its keys have changed), the other build decides.
 */
async function endBuild(
  pool: Pool,
  { collection, index, version }: Building,
  failure: string | undefined,
): Promise<void> {
  const end = async (tx: Connection) => {
    await lockApp(tx, collection.appNumber);
    const ended =
      failure !== undefined
        ? sql`status = 'failed', error = ${failure}, field_numbers = '{}'`
        : sql`status = 'ready', error = null`;
    const ours = await execute(
      tx,
      sql`update document_index set ${ended} where number = ${index.number} and xmin::text = ${version}`,
    );
    if (ours === 0) return;
    if (failure !== undefined) {
      await cancelBuilds(tx, sql`i.collection_number = ${collection.number}`);
      await dropIndex(tx, collection, index);
    }
    await bumpCatalogRevision(tx, collection.appNumber);
  };
  await retriedTransaction(pool, end, { attempts: endAttempts });
}
