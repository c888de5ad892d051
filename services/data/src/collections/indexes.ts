import { conflict, invalid, notFound, notImplemented } from '@granary/shared/errors';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql } from '@granary/shared/postgres/sql';
import { sqlState } from '@granary/shared/postgres/errors';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import type { CreateIndexResponse } from '@granary/shared/gen/granary/data/v1/CreateIndexResponse';
import type { DeleteIndexResponse } from '@granary/shared/gen/granary/data/v1/DeleteIndexResponse';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import type { IndexRequest } from '@granary/shared/gen/granary/data/v1/IndexRequest';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import {
  documentsTable,
  findCollection,
  keyColumn,
  requireCollection,
  schemaType,
  uniqueColumn,
  type CollectionRef,
  type IndexColumns,
  type IndexDefinition,
  type ReadAccess,
} from '../catalog/collection';
import { addCollection } from './collections';
import { cancelBuilds, createPostgresIndexes, duplicates, fillKeys, INDEX_NOT_FOUND } from '../tables/index-build';
import { enqueueJob } from '../jobs/queue';
import { selectIndexes, toIndex, type IndexRow } from './index-listing';
import { ALREADY_EXISTS, isFieldPath, isIndexName } from '../catalog/names';
import type { Schema } from '../catalog/schema';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findApp } from '../catalog/app';

/** Indexes of one collection, at most: each is work for every write. */
export const indexesMax = 64;
/** A table with fewer rows is indexed in the request itself. */
const plainBuildRowsMax = 1_000;
const plainBuildBytesMax = 8 * 1024 * 1024;
const typeSynonyms = new Set(['btree', 'string', 'number', 'boolean', 'date']);
const laterTypes = new Set(['hash', 'fulltext', 'price', 'encrypted']);
const compositeFieldsMax = 4;

interface Table {
  appNumber: bigint;
  number: bigint;
  name: string;
}

/**
 * Makes an index: a btree, a btree over a declared type, or a composite one over several fields. Small tables are
 * indexed at once; else the answer carries the ticket of the build. The same definition again changes nothing.
 */
export async function createIndex(
  pool: Pool,
  request: CreateIndexRequest,
  defaultRead: ReadAccess,
): Promise<CreateIndexResponse> {
  const definition = definitionOf(request);
  return withAppLockOnce<CreateIndexResponse>(pool, request, async (tx, app) => {
    let created: CollectionRef | undefined;
    const answer = async (ticketId: string, updated: boolean): Promise<CreateIndexResponse> => ({
      index: await getIndex(tx, request.appId, request.collection, request.name),
      updated,
      ticketId,
      ...(created && { createdCollection: { name: created.name, readAccess: created.readAccess } }),
    });
    const handle =
      (await findCollection(tx, app, request.collection)) ??
      (created = await addCollection(
        tx,
        app,
        { name: request.collection, readAccess: defaultRead },
        await databaseTime(tx),
      ));
    const same = handle.definitions.find((index) => index.name === request.name);
    if (same) {
      if (isSame(same, definition)) {
        const repeated = await isEnqueued(tx, app.number, request.ticketId);
        return answer(repeated ? request.ticketId : '', !repeated);
      }
      throw conflict(ALREADY_EXISTS, `An index with the name ${request.name} and another definition already exists`);
    }
    const job = { appId: app.appId, ticketId: request.ticketId };
    const ticketId = await addIndex(tx, handle, definition, await databaseTime(tx), job);
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return answer(ticketId, false);
  });
}

interface Definition {
  name: string;
  fieldName: string;
  fields: string[];
  type: string;
  unique: boolean;
}

const isComposite = ({ fields }: Pick<Definition, 'fields'>): boolean => fields.length > 1;

const isSame = (index: IndexDefinition, { fields, type, unique }: Definition): boolean =>
  index.declaredType === type && index.unique === unique && index.fields.join() === fields.join();

/** The definition that is asked for. Throws VALIDATION_FAILED, and NOT_IMPLEMENTED for the types that are to come. */
function definitionOf(request: CreateIndexRequest): Definition {
  const { name, unique } = request;
  const asked = request.indexType.toLowerCase();
  if (laterTypes.has(asked)) throw notImplemented(`an index of type ${asked}`);
  const problems: Record<string, string[]> = {};
  if (!isIndexName(name)) problems['name'] = ['must have 1 to 200 printable characters'];
  // A btree over several fields is what is called composite.
  const type = asked === 'btree' && request.fields.length > 1 ? 'composite' : asked;
  if (type !== 'composite' && !typeSynonyms.has(type)) {
    problems['index_type'] = [`must be one of ${[...typeSynonyms, 'composite', ...laterTypes].join(', ')}`];
  }
  const fields = request.fields.length > 0 ? request.fields : [request.fieldName];
  const fieldName = request.fieldName === '' ? fields[0]! : request.fieldName;
  if (type === 'composite') {
    const problem = fieldsProblem(request.fields);
    if (problem) problems['fields'] = [problem];
    else if (!isNameOf(fields, fieldName)) problems['field_name'] = ['must be one of fields, or all of them joined'];
  } else if (!isFieldPath(fieldName)) {
    problems['field_name'] = ['must be a field path of 1 to 16 steps with dots between them'];
  } else if (fields.length > 1 || fields[0] !== fieldName) {
    problems['fields'] = ['must be the same as field_name; an index over several fields has the type composite'];
  }
  if (Object.keys(problems).length > 0) throw invalid('The index is not valid', problems);
  return { name, fieldName, fields, type, unique };
}

function fieldsProblem(fields: readonly string[]): string | undefined {
  if (fields.length < 2 || fields.length > compositeFieldsMax) return `must hold 2 to ${compositeFieldsMax} fields`;
  if (new Set(fields).size < fields.length) return 'must hold each field once';
  return fields.every(isFieldPath) ? undefined : 'must hold field paths of 1 to 16 steps with dots between them';
}

/** Whether a composite may be listed under a name: clients send one of its fields, or all of them joined. */
function isNameOf(fields: readonly string[], name: string): boolean {
  const letters = (text: string) => text.replace(/[^\p{L}\p{N}]/gu, '');
  return fields.includes(name) || letters(name) === letters(fields.join(''));
}

/** Adds the columns and the catalog row; writers fill the columns from then on. Gives a ticket, or '' when it is ready. */
async function addIndex(
  tx: Connection,
  handle: CollectionRef,
  definition: Definition,
  at: Date,
  job: { appId: string; ticketId: string },
): Promise<string> {
  checkCount(handle.definitions.length);
  if (handle.definitions.some(({ status }) => status === 'building')) {
    await cancelBuilds(tx, sql`i.collection_number = ${handle.number}`);
  }
  const number = await insertIndex(tx, handle, definition, 'building', at);
  const fresh = (await findCollection(tx, { number: handle.appNumber, appId: handle.appId }, handle.name))!;
  const index = fresh.definitions.find((candidate) => candidate.number === number)!;
  await addColumns(tx, handle, index);
  if (handle.rowCount >= plainBuildRowsMax || handle.sizeBytes >= plainBuildBytesMax) {
    return enqueueJob(
      tx,
      { number: handle.appNumber, appId: job.appId },
      'index.build',
      { index: number.toString(), app_id: job.appId, collection: handle.name },
      { ticketId: job.ticketId, subject: number.toString() },
    );
  }
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
    throw invalid(`A collection may have at most ${indexesMax} indexes`, {}, LIMIT_EXCEEDED);
  }
}

/** Whether a call was made before: it has put its job into the queue. */
async function isEnqueued(tx: Connection, appNumber: bigint, ticketId: string): Promise<boolean> {
  return (
    ticketId !== '' &&
    (await row(tx, sql`select from job where ticket_id = ${ticketId} and app_number = ${appNumber}`)) !== undefined
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
    sql`insert into document_index (app_number, collection_number, name, field_name, fields, index_type, is_unique, status, created_at)
        values (${table.appNumber}, ${table.number}, ${definition.name}, ${definition.fieldName},
                ${isComposite(definition) ? definition.fields : null}, ${definition.type},
                ${definition.unique}, ${status}, ${at})
        returning number`,
  ))!;
  return number;
}

async function addColumns(tx: Connection, table: Table, index: IndexColumns): Promise<void> {
  const keys = index.keys.map((key) => sql`add column ${keyColumn(key)} jsonb`);
  const unique = index.unique ? [sql`add column ${uniqueColumn(index)} text collate "C"`] : [];
  await execute(tx, sql`alter table ${documentsTable(table)} ${join([...keys, ...unique], ', ')}`);
}

/** The indexes that a schema asks for and that are not there, on a collection whose head is locked. */
export async function addSchemaIndexes(
  tx: Connection,
  table: Table | CollectionRef,
  schema: Schema,
  at: Date,
): Promise<void> {
  const existing = 'indexes' in table ? table : undefined;
  let count = existing?.definitions.length ?? 0;
  for (const [fieldName, rule] of schema.fields) {
    if (!rule.index && !rule.unique) continue;
    const name = `${table.name}_${fieldName}_idx`;
    const definition = { name, fieldName, fields: [fieldName], type: 'btree', unique: rule.unique };
    const same = existing?.definitions.find((index) => index.name === name);
    if (same && (same.fields.join() !== fieldName || (rule.unique && !same.unique))) {
      throw conflict(ALREADY_EXISTS, `An index with the name ${same.name} and another definition already exists`);
    }
    if (same) continue;
    checkCount(count++);
    if (existing) {
      await addIndex(tx, existing, definition, at, { appId: existing.appId, ticketId: '' });
    } else {
      const number = await insertIndex(tx, table, definition, 'ready', at);
      const index = { number, unique: rule.unique, keys: [{ number, part: 0 }] };
      await addColumns(tx, table, index);
      await createPostgresIndexes(tx, table, index, false);
    }
  }
}

/**
 * When the schema of a field becomes a date, or stops being one, its keys mean something else: the indexes that take
 * their type from the schema are built anew.
 */
export async function rekeyIndexes(tx: Connection, before: CollectionRef, schema: Schema): Promise<void> {
  for (const index of before.definitions) {
    if (index.declaredType !== 'btree' && index.declaredType !== 'composite') continue;
    const isAsBefore = index.keys.every(
      ({ type, fieldName }) => (type === 'date') === (schemaType(schema, fieldName) === 'date'),
    );
    if (isAsBefore) continue;
    await execute(tx, sql`update document_index set status = 'building' where number = ${index.number}`);
    await enqueueJob(
      tx,
      { number: before.appNumber, appId: before.appId },
      'index.build',
      { index: index.number.toString(), app_id: before.appId, collection: before.name },
      { subject: index.number.toString() },
    );
  }
}

/** Deletes an index with its columns; a build of it that is under way is cancelled. */
export async function deleteIndex(pool: Pool, request: IndexRequest): Promise<DeleteIndexResponse> {
  return withAppLockOnce<DeleteIndexResponse>(pool, request, async (tx, app) => {
    const found = await findIndex(tx, request);
    // Any build of the collection holds the table that loses its columns.
    await cancelBuilds(tx, sql`i.collection_number = ${found.handle.number}`);
    const deleted = await execute(tx, sql`delete from document_index where number = ${found.index.number}`);
    if (deleted === 0) throw indexNotFound(request.name);
    const columns = [...found.index.keys.map(keyColumn), ...(found.index.unique ? [uniqueColumn(found.index)] : [])];
    const drops = join(
      columns.map((column) => sql`drop column ${column}`),
      ', ',
    );
    await execute(tx, sql`alter table ${documentsTable(found.handle)} ${drops}`);
    await bumpCatalogRevision(tx, app.number);
    return {};
  });
}

/** Builds an index again from the documents; reads do without it meanwhile. */
export async function rebuildIndex(pool: Pool, request: IndexRequest): Promise<JobResponse> {
  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    const found = await findIndex(tx, request);
    const { name } = found.index;
    if (await isEnqueued(tx, app.number, request.ticketId)) return { name, ticketId: request.ticketId };
    await execute(
      tx,
      sql`update document_index set status = 'building', error = null where number = ${found.index.number}`,
    );
    await bumpCatalogRevision(tx, app.number);
    const ticketId = await enqueueJob(
      tx,
      app,
      'index.build',
      { index: found.index.number.toString(), app_id: app.appId, collection: found.handle.name },
      { ticketId: request.ticketId, subject: found.index.number.toString() },
    );
    return { name, ticketId };
  });
}

const indexNotFound = (name: string) => notFound(INDEX_NOT_FOUND, `There is no index ${name}`);

/** Finds an index by collection and name, or by the older route's `<collection>_<field>_index`. */
async function findIndex(
  pool: Queryable,
  request: IndexRequest,
): Promise<{ handle: CollectionRef; index: IndexDefinition }> {
  const app = await findApp(pool, request.appId);
  if (request.collection !== '') {
    const handle = await requireCollection(pool, request.appId, request.collection);
    const index = handle.definitions.find((candidate) => candidate.name === request.name);
    if (!index) throw indexNotFound(request.name);
    return { handle, index };
  }
  const found = await row<{ collection: string; name: string }>(
    pool,
    sql`select c.name as collection, i.name from document_index i join collection c on c.number = i.collection_number
        where i.app_number = ${app.number} and c.deleted_at is null
          and (c.name || '_' || i.field_name || '_index' = ${request.name} or i.name = ${request.name})
        order by i.name = ${request.name} desc, i.fields is not null, i.number limit 1`,
  );
  if (!found) throw indexNotFound(request.name);
  return findIndex(pool, { ...request, collection: found.collection, name: found.name });
}

export async function getIndex(pool: Queryable, appId: string, collection: string, name: string): Promise<Index> {
  const { index } = await findIndex(pool, { appId, collection, name, ticketId: '' });
  const found = await row<IndexRow>(pool, selectIndexes(sql`i.number = ${index.number}`));
  if (!found) throw indexNotFound(name);
  return toIndex(found);
}
