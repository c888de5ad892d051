import { conflict, invalid, notFound } from '@granary/shared/errors';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
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
  indexedType,
  requireCollection,
  uniqueColumn,
  type CollectionRef,
  type IndexColumns,
  type IndexDefinition,
  type ReadAccess,
} from '../catalog/collection';
import { addCollection } from './collections';
import {
  cancelBuilds,
  createPostgresIndexes,
  dropKeyIndexes,
  duplicates,
  fillKeys,
  INDEX_NOT_FOUND,
} from '../tables/index-build';
import { dropUnusedFields, ensureFields } from '../tables/fields';
import { enqueueJob } from '../jobs/queue';
import { definitionOf, isComposite, isSame, type Definition } from './index-definition';
import { selectIndexes, toIndex, type IndexRow } from './index-listing';
import { ALREADY_EXISTS } from '../catalog/names';
import type { Schema } from '../catalog/schema';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findApp } from '../catalog/app';

/** Indexes of one collection, at most: each is work for every write. */
export const indexesMax = 64;
/** A table with fewer rows is indexed in the request itself. */
const plainBuildRowsMax = 1_000;
const plainBuildBytesMax = 8 * 1024 * 1024;

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
    const same = handle.indexes.find((index) => index.name === request.name);
    if (same) {
      if (isSame(same, definition)) {
        const repeated = await isEnqueued(tx, app.number, request.ticketId);
        return answer(repeated ? request.ticketId : '', !repeated);
      }
      throw conflict(ALREADY_EXISTS, `An index with the name ${request.name} and another definition already exists`);
    }
    const job = { appId: app.appId, ticketId: request.ticketId };
    const ticketId = await addIndex(tx, handle, handle.schema, definition, await databaseTime(tx), job);
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return answer(ticketId, false);
  });
}

/** Adds the columns and the catalog row; writers fill the columns from then on. Gives a ticket, or '' when it is ready. */
async function addIndex(
  tx: Connection,
  handle: CollectionRef,
  schema: Schema | undefined,
  definition: Definition,
  at: Date,
  job: { appId: string; ticketId: string },
): Promise<string> {
  checkCount(handle.indexes.length);
  if (handle.indexes.some(({ status }) => status === 'building')) {
    await cancelBuilds(tx, sql`i.collection_number = ${handle.number}`);
  }
  const { number } = await insertIndex(tx, handle, schema, definition, 'building', at);
  const fresh = (await findCollection(tx, { number: handle.appNumber, appId: handle.appId }, handle.name))!;
  const index = fresh.indexes.find((candidate) => candidate.number === number)!;
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

/** The fields of an index with how their keys are made: of a date where its type or the schema says so. */
const keysOf = (declaredType: string, fields: readonly string[], schema: Schema | undefined) =>
  fields.map((name) => ({ name, isDate: indexedType(declaredType, schema, name) === 'date' }));

/** Adds the catalog row, and the columns that the table does not have yet. */
async function insertIndex(
  tx: Connection,
  table: Table,
  schema: Schema | undefined,
  definition: Definition,
  status: string,
  at: Date,
): Promise<IndexColumns> {
  const fields = await ensureFields(tx, table, keysOf(definition.type, definition.fields, schema));
  const { number } = (await row<{ number: bigint }>(
    tx,
    sql`insert into document_index (app_number, collection_number, name, field_name, fields, field_numbers, index_type,
          is_unique, status, created_at)
        values (${table.appNumber}, ${table.number}, ${definition.name}, ${definition.fieldName},
                ${isComposite(definition) ? definition.fields : null}, ${fields}::bigint[], ${definition.type},
                ${definition.unique}, ${status}, ${at})
        returning number`,
  ))!;
  if (definition.unique) {
    await execute(
      tx,
      sql`alter table ${documentsTable(table)} add column ${uniqueColumn({ number })} text collate "C"`,
    );
  }
  return { number, unique: definition.unique, keys: fields.map((field) => ({ number: field })) };
}

/** The indexes that a schema asks for and that are not there, on a collection whose head is locked. */
export async function addSchemaIndexes(
  tx: Connection,
  table: Table | CollectionRef,
  schema: Schema,
  at: Date,
): Promise<void> {
  const existing = 'indexes' in table ? table : undefined;
  let count = existing?.indexes.length ?? 0;
  for (const [fieldName, rule] of schema.fields) {
    if (!rule.index && !rule.unique) continue;
    const name = `${table.name}_${fieldName}_idx`;
    const definition = { name, fieldName, fields: [fieldName], type: 'btree', unique: rule.unique };
    const same = existing?.indexes.find((index) => index.name === name);
    if (same && (same.fields.join() !== fieldName || (rule.unique && !same.unique))) {
      throw conflict(ALREADY_EXISTS, `An index with the name ${same.name} and another definition already exists`);
    }
    if (same) continue;
    checkCount(count++);
    if (existing) {
      await addIndex(tx, existing, schema, definition, at, { appId: existing.appId, ticketId: '' });
    } else {
      const index = await insertIndex(tx, table, schema, definition, 'ready', at);
      await createPostgresIndexes(tx, table, index, false);
    }
  }
}

/**
 * When the schema of a field becomes a date, or stops being one, it has other keys: the indexes that take their type from
 * the schema get the field with those, and are built anew.
 */
export async function rekeyIndexes(tx: Connection, before: CollectionRef, schema: Schema): Promise<void> {
  const changed = before.indexes.flatMap((index) => {
    const keys = keysOf(index.declaredType, index.fields, schema);
    return keys.every(({ isDate }, at) => isDate === index.keys[at]!.isDate) ? [] : [{ index, keys }];
  });
  if (changed.length === 0) return;
  // Any build of the collection holds the table whose columns change.
  await cancelBuilds(tx, sql`i.collection_number = ${before.number}`);
  for (const { index, keys } of changed) {
    const fields = await ensureFields(tx, before, keys);
    await dropKeyIndexes(tx, before, index);
    await execute(
      tx,
      sql`update document_index set status = 'building', field_numbers = ${fields}::bigint[] where number = ${index.number}`,
    );
    await enqueueJob(
      tx,
      { number: before.appNumber, appId: before.appId },
      'index.build',
      { index: index.number.toString(), app_id: before.appId, collection: before.name },
      { subject: index.number.toString() },
    );
  }
  await dropUnusedFields(tx, before);
}

/** Deletes an index, and the columns that no other needs; a build of it that is under way is cancelled. */
export async function deleteIndex(pool: Pool, request: IndexRequest): Promise<DeleteIndexResponse> {
  return withAppLockOnce<DeleteIndexResponse>(pool, request, async (tx, app) => {
    const { handle, index } = await findIndex(tx, request);
    // Any build of the collection holds the table that loses its columns.
    await cancelBuilds(tx, sql`i.collection_number = ${handle.number}`);
    const deleted = await execute(tx, sql`delete from document_index where number = ${index.number}`);
    if (deleted === 0) throw indexNotFound(request.name);
    await dropKeyIndexes(tx, handle, index);
    if (index.unique) {
      await execute(tx, sql`alter table ${documentsTable(handle)} drop column ${uniqueColumn(index)}`);
    }
    await dropUnusedFields(tx, handle);
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
    const index = handle.indexes.find((candidate) => candidate.name === request.name);
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
