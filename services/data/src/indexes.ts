import { conflict, invalid, notFound, notImplemented, ServiceError } from '@granary/shared/errors';
import { message } from '@granary/shared/grpc/types';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { sqlState } from '@granary/shared/postgres/errors';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import type { CreateIndexResponse } from '@granary/shared/gen/granary/data/v1/CreateIndexResponse';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import type { IndexRequest } from '@granary/shared/gen/granary/data/v1/IndexRequest';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import {
  documentsTable,
  findApp,
  findCollection,
  keyColumn,
  requireCollection,
  schemaType,
  uniqueColumn,
  type CollectionHandle,
  type IndexDescriptor,
} from './catalog';
import { addCollection, changingApp } from './collections';
import { growCatalogRevision, lockHead } from './head';
import { enqueueJob, JobInterruptedError, type JobContext, type Report } from './jobs';
import { isFieldPath, isIndexName } from './names';
import { keysOfStored, rulesOf } from './prepare';
import type { Schema } from './schema';

export const INDEX_NOT_FOUND = 'INDEX_NOT_FOUND';
export const UNIQUE_VIOLATION = 'UNIQUE_VIOLATION';

/** Indexes of one collection, at most: each is work for every write. */
export const indexesMax = 64;
/** A table with fewer rows is indexed in the request itself. */
const plainBuildRowsMax = 1_000;
const plainBuildBytesMax = 8 * 1024 * 1024;
/** Rows that one transaction of a build reads and fills: fewer where they are large. */
const fillBatchRows = 1_000;
const fillBatchBytes = 8 * 1024 * 1024;
const buildTimeoutMs = 3_600_000;
/** Builds take turns within a database: each reads a whole table. */
const buildLock = 7_265_002;

const typeSynonyms = new Set(['btree', 'string', 'number', 'boolean', 'date']);
const laterTypes = new Set(['hash', 'fulltext', 'composite', 'price', 'encrypted']);

interface Table {
  appNumber: bigint;
  number: bigint;
  name: string;
}

/** Names of the two Postgres indexes that an index may have. */
const keyIndexName = (number: bigint): Sql => named('i_', number);
const uniqueIndexName = (number: bigint): Sql => named('q_', number);

/** The number of the index whose uniqueness a Postgres constraint guards. */
export function uniqueIndexNumber(constraint: string | undefined): bigint | undefined {
  const match = /^q_(\d{1,19})$/.exec(constraint ?? '');
  return match ? BigInt(match[1]!) : undefined;
}

/**
 * Makes an index (btree, or a btree over a declared type). Small tables are indexed at once; else the answer carries
 * the ticket of the build. The same definition again changes nothing.
 */
export async function createIndex(pool: Pool, request: CreateIndexRequest): Promise<CreateIndexResponse> {
  const type = request.indexType.toLowerCase();
  if (laterTypes.has(type)) throw notImplemented(`An index of type ${type}`);
  checkDefinition(request, type);
  const { name, ticketId, updated } = await changingApp(pool, request.appId, async (tx, app) => {
    const handle =
      (await findCollection(tx, app, request.collection)) ??
      (await addCollection(tx, app, { name: request.collection }, new Date()));
    const same = handle.indexes.find((index) => index.name === request.name);
    if (same) {
      const before = (await row<{ index_type: string }>(
        tx,
        sql`select index_type from document_index where number = ${same.number}`,
      ))!;
      if (same.fieldName === request.fieldName && before.index_type === type && same.unique === request.unique) {
        const repeated = await isEnqueued(tx, app.number, request.ticketId);
        return { name: same.name, ticketId: repeated ? request.ticketId : '', updated: !repeated };
      }
      throw conflict('ALREADY_EXISTS', `An index with the name ${request.name} and another definition already exists`);
    }
    const ticketId = await addIndex(
      tx,
      handle,
      { name: request.name, fieldName: request.fieldName, type, unique: request.unique },
      new Date(),
      {
        appId: app.appId,
        ticketId: request.ticketId,
      },
    );
    await growCatalogRevision(tx, app.number);
    return { name: request.name, ticketId, updated: false };
  });
  return { index: await getIndex(pool, request.appId, request.collection, name), updated, ticketId };
}

function checkDefinition(request: CreateIndexRequest, type: string): void {
  const problems: Record<string, string[]> = {};
  if (!isIndexName(request.name)) problems['name'] = ['must have 1 to 200 printable characters'];
  if (!typeSynonyms.has(type))
    problems['index_type'] = [`must be one of ${[...typeSynonyms, ...laterTypes].join(', ')}`];
  if (!isFieldPath(request.fieldName)) {
    problems['field_name'] = ['must be a field path of 1 to 16 steps with dots between them'];
  }
  if (Object.keys(problems).length > 0) throw invalid('The index is not valid', problems);
}

interface Definition {
  name: string;
  fieldName: string;
  type: string;
  unique: boolean;
}

/** Adds the columns and the catalog row; writers fill the columns from then on. Gives a ticket, or '' when it is ready. */
async function addIndex(
  tx: Connection,
  handle: CollectionHandle,
  definition: Definition,
  at: Date,
  job: { appId: string; ticketId: string },
): Promise<string> {
  checkCount(handle.indexes.length);
  if (handle.indexes.some(({ status }) => status === 'building')) {
    await cancelBuilds(tx, sql`i.collection_number = ${handle.number}`);
  }
  const number = await insertIndex(tx, handle, definition, 'building', at);
  await addColumns(tx, handle, { number, unique: definition.unique });
  if (handle.rowCount >= plainBuildRowsMax || handle.sizeBytes >= plainBuildBytesMax) {
    return enqueueJob(
      tx,
      { number: handle.appNumber, appId: job.appId },
      'index.build',
      { index: number.toString(), app_id: job.appId, collection: handle.name },
      job.ticketId || undefined,
    );
  }
  const fresh = (await findCollection(tx, { number: handle.appNumber, appId: handle.appId }, handle.name))!;
  const index = fresh.indexes.find((candidate) => candidate.number === number)!;
  await fillKeys(tx, fresh, index, (statement) => execute(tx, statement), undefined);
  await createPostgresIndexes(tx, fresh, index, false).catch((error: unknown) => {
    throw sqlState(error) === '23505' ? duplicates(index) : error;
  });
  await execute(tx, sql`update document_index set status = 'ready' where number = ${number}`);
  return '';
}

/** Throws LIMIT_EXCEEDED when a collection with so many indexes may not have another. */
function checkCount(indexes: number): void {
  if (indexes >= indexesMax) {
    throw invalid(`A collection may have at most ${indexesMax} indexes`, {}, 'LIMIT_EXCEEDED');
  }
}

/** Whether a call was made before: it has put its job into the queue. */
async function isEnqueued(tx: Connection, appNumber: bigint, ticketId: string): Promise<boolean> {
  return (
    ticketId !== '' &&
    (await row(tx, sql`select from job where ticket_id = ${ticketId} and app_number = ${appNumber}`)) !== undefined
  );
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

function duplicates(index: IndexDescriptor): ServiceError {
  return conflict(
    UNIQUE_VIOLATION,
    `The documents have equal values of ${index.fieldName}: the index cannot be unique`,
    {
      [index.fieldName]: ['must be unique, and stored documents have equal values'],
    },
  );
}

async function insertIndex(
  tx: Connection,
  table: Table,
  definition: Definition,
  status: string,
  at: Date,
): Promise<bigint> {
  const { number } = (await row<{ number: bigint }>(
    tx,
    sql`insert into document_index (app_number, collection_number, name, field_name, index_type, is_unique, status, created_at)
        values (${table.appNumber}, ${table.number}, ${definition.name}, ${definition.fieldName}, ${definition.type},
                ${definition.unique}, ${status}, ${at})
        returning number`,
  ))!;
  return number;
}

async function addColumns(tx: Connection, table: Table, index: { number: bigint; unique: boolean }): Promise<void> {
  const unique = index.unique ? sql`, add column ${uniqueColumn(index)} text collate "C"` : empty;
  await execute(tx, sql`alter table ${documentsTable(table)} add column ${keyColumn(index)} jsonb${unique}`);
}

/** The indexes that a schema asks for and that are not there, on a collection whose head is locked. */
export async function addSchemaIndexes(
  tx: Connection,
  table: Table | CollectionHandle,
  schema: Schema,
  at: Date,
): Promise<void> {
  const existing = 'indexes' in table ? table : undefined;
  let count = existing?.indexes.length ?? 0;
  for (const [fieldName, rule] of schema.fields) {
    if (!rule.index && !rule.unique) continue;
    const definition = { name: `${table.name}_${fieldName}_idx`, fieldName, type: 'btree', unique: rule.unique };
    const same = existing?.indexes.find((index) => index.name === definition.name);
    if (same && (same.fieldName !== fieldName || (rule.unique && !same.unique))) {
      throw conflict('ALREADY_EXISTS', `An index with the name ${same.name} and another definition already exists`);
    }
    if (same) continue;
    checkCount(count++);
    if (existing) {
      await addIndex(tx, existing, definition, at, { appId: existing.appId, ticketId: '' });
    } else {
      const number = await insertIndex(tx, table, definition, 'ready', at);
      await addColumns(tx, table, { number, unique: rule.unique });
      await createPostgresIndexes(tx, table, { number, unique: rule.unique }, false);
    }
  }
}

/**
 * When the schema of a field becomes a date, or stops being one, its keys mean something else: the indexes that take
 * their type from the schema are built anew.
 */
export async function rekeyIndexes(tx: Connection, before: CollectionHandle, schema: Schema): Promise<void> {
  for (const index of before.indexes) {
    const declared = (await row<{ index_type: string }>(
      tx,
      sql`select index_type from document_index where number = ${index.number}`,
    ))!;
    if (declared.index_type !== 'btree') continue;
    if ((index.type === 'date') === (schemaType(schema, index.fieldName) === 'date')) continue;
    await execute(tx, sql`update document_index set status = 'building' where number = ${index.number}`);
    await enqueueJob(tx, { number: before.appNumber, appId: before.appId }, 'index.build', {
      index: index.number.toString(),
      app_id: before.appId,
      collection: before.name,
    });
  }
}

/** The statements that make the btree of the keys and, for a unique index, the one that refuses a second value. */
async function createPostgresIndexes(
  db: Queryable,
  table: { appNumber: bigint; number: bigint },
  index: { number: bigint; unique: boolean },
  concurrently: boolean,
): Promise<void> {
  const how = concurrently ? trusted('concurrently') : empty;
  const on = documentsTable(table);
  await execute(db, sql`create index ${how} ${keyIndexName(index.number)} on ${on} (${keyColumn(index)}, id)`);
  if (index.unique) {
    await execute(
      db,
      sql`create unique index ${how} if not exists ${uniqueIndexName(index.number)} on ${on} (${uniqueColumn(index)})`,
    );
  }
}

/**
 * Fills the columns of an index for the rows that writers have not filled since: in batches by id, each update only
 * where the version is still the one that was read.
 */
async function fillKeys(
  db: Queryable,
  handle: CollectionHandle,
  index: IndexDescriptor,
  update: (statement: Sql) => Promise<unknown>,
  report: Report | undefined,
): Promise<void> {
  const rules = rulesOf({ ...handle, indexes: [index], schema: undefined });
  const table = documentsTable(handle);
  let last = '';
  let done = 0;
  for (;;) {
    const batch = await rows<{ id: string; body: string; version: bigint }>(
      db,
      sql`select id, body, version
          from (select *, sum(octet_length(body)) over (order by id) - octet_length(body) as bytes_before
                from (select id, body, version from ${table} where id > ${last} order by id limit ${fillBatchRows}) batch) sized
          where bytes_before < ${fillBatchBytes} order by id`,
    );
    if (batch.length === 0) return;
    const values = batch.map(({ body }) => keysOfStored(Buffer.from(body), rules));
    const unique = index.unique ? sql`, ${uniqueColumn(index)} = v.unique_value` : empty;
    await update(
      sql`update ${table} t set ${keyColumn(index)} = v.key::jsonb${unique}
          from unnest(${batch.map(({ id }) => id)}::text[], ${batch.map(({ version }) => version.toString())}::int8[],
                      ${values.map(({ keys }) => keys[0])}::text[], ${values.map(({ uniques }) => uniques[0])}::text[])
               as v(id, version, key, unique_value)
          where t.id = v.id and t.version = v.version`,
    );
    last = batch.at(-1)!.id;
    done += batch.length;
    await report?.(Math.min(0.8, (0.8 * done) / Math.max(1, Number(handle.rowCount))), `${done} documents read`);
  }
}

/** An index that is to be built, as it was when the build began. */
interface Building {
  handle: CollectionHandle;
  index: IndexDescriptor;
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
    await dropLeftovers(connection, handle.appNumber, index.number);
    // Writers of the same rows in another order would make a deadlock, so each batch is written under the head's lock.
    const update = (statement: Sql) =>
      retriedTransaction(pool, async (tx) => {
        await lockHead(tx, handle.appNumber);
        await execute(tx, statement);
      });
    await fillKeys(connection, handle, index, update, report);
    await createPostgresIndexes(connection, handle, index, true);
    await report(0.95, 'indexes made');
    await execute(connection, sql`analyze ${documentsTable(handle)} (${keyColumn(index)})`);
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
    await lockHead(tx, handle.appNumber);
    const ours = await execute(
      tx,
      sql`update document_index set status = ${status}, error = ${error}
          where number = ${index.number} and xmin::text = ${version}`,
    );
    if (ours === 0) return;
    if (status === 'failed') {
      for (const name of [keyIndexName(index.number), uniqueIndexName(index.number)]) {
        await execute(tx, sql`drop index if exists ${named('a_', handle.appNumber, '.')}${name}`);
      }
    }
    await growCatalogRevision(tx, handle.appNumber);
  });
}

/** Drops the old btree of the keys, and a unique one that was left INVALID; a valid one goes on guarding. */
async function dropLeftovers(db: Queryable, appNumber: bigint, number: bigint): Promise<void> {
  const schema = named('a_', appNumber, '.');
  await execute(db, sql`drop index if exists ${schema}${keyIndexName(number)}`);
  const invalidLeft = await row(
    db,
    sql`select from pg_index where not indisvalid and indexrelid = to_regclass(${`a_${appNumber}.q_${number}`})`,
  );
  if (invalidLeft) await execute(db, sql`drop index if exists ${schema}${uniqueIndexName(number)}`);
}

/** Deletes an index with its columns; a build of it that is under way is cancelled. */
export async function deleteIndex(pool: Pool, request: IndexRequest): Promise<void> {
  const found = await findIndex(pool, request);
  await changingApp(pool, request.appId, async (tx, app) => {
    // Any build of the collection holds the table that loses its columns.
    await cancelBuilds(tx, sql`i.collection_number = ${found.handle.number}`);
    const deleted = await execute(tx, sql`delete from document_index where number = ${found.index.number}`);
    if (deleted === 0) throw indexNotFound(request.name);
    const columns = [keyColumn(found.index), ...(found.index.unique ? [uniqueColumn(found.index)] : [])];
    const drops = join(
      columns.map((column) => sql`drop column ${column}`),
      ', ',
    );
    await execute(tx, sql`alter table ${documentsTable(found.handle)} ${drops}`);
    await growCatalogRevision(tx, app.number);
  });
}

/** Builds an index again from the documents; reads do without it meanwhile. */
export async function rebuildIndex(pool: Pool, request: IndexRequest): Promise<JobResponse> {
  const found = await findIndex(pool, request);
  const ticketId = await changingApp(pool, request.appId, async (tx, app) => {
    if (await isEnqueued(tx, app.number, request.ticketId)) return request.ticketId;
    await execute(
      tx,
      sql`update document_index set status = 'building', error = null where number = ${found.index.number}`,
    );
    await growCatalogRevision(tx, app.number);
    return enqueueJob(
      tx,
      app,
      'index.build',
      { index: found.index.number.toString(), app_id: app.appId, collection: found.handle.name },
      request.ticketId || undefined,
    );
  });
  return { name: found.index.name, ticketId };
}

const indexNotFound = (name: string) => notFound(INDEX_NOT_FOUND, `There is no index ${name}`);

/** Finds an index by collection and name, or by the older route's `<collection>_<field>_index`. */
async function findIndex(
  pool: Pool,
  request: IndexRequest,
): Promise<{ handle: CollectionHandle; index: IndexDescriptor }> {
  const app = await findApp(pool, request.appId);
  if (request.collection !== '') {
    const handle = await requireCollection(pool, request.appId, request.collection);
    const index = handle.indexes.find((candidate) => candidate.name === request.name);
    if (!index) throw indexNotFound(request.name);
    return { handle, index };
  }
  const found = await row<{ collection: string; name: string }>(
    pool,
    sql`select c.name as collection, i.name from document_index i join collection c on c.number = i.collection_number
        where i.app_number = ${app.number} and c.deleted_at is null
          and (c.name || '_' || i.field_name || '_index' = ${request.name} or i.name = ${request.name})
        order by i.name = ${request.name} desc, i.number limit 1`,
  );
  if (!found) throw indexNotFound(request.name);
  return findIndex(pool, { ...request, collection: found.collection, name: found.name });
}

interface IndexRow {
  name: string;
  collection: string;
  field_name: string;
  index_type: string;
  is_unique: boolean;
  status: string;
  error: string | null;
  size_bytes: bigint;
  entry_count: bigint;
  created_at: Date;
}

function selectIndexes(where: Sql): Sql {
  // The sizes come from the catalog of Postgres, under names that are made from our numbers.
  return sql`select i.name, c.name as collection, i.field_name, i.index_type, i.is_unique, i.status, i.error, i.created_at,
      coalesce(pg_relation_size(to_regclass('a_' || i.app_number || '.i_' || i.number)), 0)
        + coalesce(pg_relation_size(to_regclass('a_' || i.app_number || '.q_' || i.number)), 0) as size_bytes,
      greatest(0, coalesce((select reltuples from pg_class where oid = to_regclass('a_' || i.app_number || '.i_' || i.number)), 0))::int8 as entry_count
    from document_index i join collection c on c.number = i.collection_number
    where c.deleted_at is null and ${where} order by c.name, i.number limit 10000`;
}

function toIndex(found: IndexRow): Index {
  return message<Index>({
    name: found.name,
    collection: found.collection,
    fieldName: found.field_name,
    indexType: found.index_type,
    unique: found.is_unique,
    status: found.status,
    error: found.error ?? undefined,
    sizeBytes: found.size_bytes.toString(),
    entryCount: found.entry_count.toString(),
    createdAt: found.created_at.toISOString(),
  });
}

/** All indexes of an app, or of one collection of it. */
export async function listIndexes(pool: Pool, appId: string, collection: string): Promise<Index[]> {
  const app = await findApp(pool, appId);
  const only =
    collection === '' ? empty : sql` and c.number = ${(await requireCollection(pool, appId, collection)).number}`;
  const found = await rows<IndexRow>(pool, selectIndexes(sql`i.app_number = ${app.number}${only}`));
  return found.map(toIndex);
}

export async function getIndex(pool: Pool, appId: string, collection: string, name: string): Promise<Index> {
  const { index } = await findIndex(pool, { appId, collection, name, ticketId: '' });
  const found = await row<IndexRow>(pool, selectIndexes(sql`i.number = ${index.number}`));
  if (!found) throw indexNotFound(name);
  return toIndex(found);
}
