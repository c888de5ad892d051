import { conflict, invalid, notFound } from '@granary/shared/errors';
import type { Call } from '@granary/shared/rpc/types';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CreateIndexRequest } from '@granary/shared/gen/granary/data/v1/CreateIndexRequest';
import type { CreateIndexResponse } from '@granary/shared/gen/granary/data/v1/CreateIndexResponse';
import type { DeleteIndexResponse } from '@granary/shared/gen/granary/data/v1/DeleteIndexResponse';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import type { IndexRequest } from '@granary/shared/gen/granary/data/v1/IndexRequest';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import { findCollection, requireCollection, type CollectionRef, type ReadAccess } from '../catalog/collection';
import { selectIndexes, toIndex, type IndexRow } from './index-listing';
import { ALREADY_EXISTS } from '../catalog/names';
import { didYouMean, nearCollection } from '../catalog/near-collection';
import { checkDefinitionBytes } from '../catalog/definition-limit';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findApp, type App } from '../catalog/app';
import {
  contradictedType,
  declaredFieldType,
  INDEX_NOT_FOUND,
  isSearchIndex,
  type IndexDefinition,
} from '../catalog/index-definition';
import { ruleOfType } from '../catalog/schema';
import type { WantedType } from '../documents/misfits';
import type { NewDataKey } from '../encryption-keys/data-keys';
import { changeTypes, type AssertFit } from './fitting-documents';
import { addIndex, enqueueBuild, restoreColumns, type NewIndex } from '../tables/define-index';
import { dropIndex } from '../tables/drop-index';
import { changePrices } from './index-prices';
import { assertUnneeded, type QueriesNeeding } from './index-needs';
import { heldWriteState, keepDone, writeClosed } from '../commit/held-writes';
import { addCollection } from '../tables/create-collection';
import { encryptForIndex, keyForIndex, requirePaidIndex, type EncryptionSettings } from './encryption';
import { definitionOf, isSame } from './index-request';
import { cancelBuilds } from '../tables/build-job';
import type { PoolContext } from '../postgres/databases';

/**
 * Creates an index: a btree, a btree over a declared type, a composite one over several fields, a full-text one, or one
 * over a field that is stored encrypted from now on, for which PAYMENT_REQUIRED is thrown until it is paid. Small
 * tables are indexed at once; else the answer carries the ticket of the build. The same definition again changes no
 * more than prices, and builds an index whose build has failed. Throws DOCUMENTS_DO_NOT_FIT where stored values have
 * not the type of the index, unless it is forced.
 */
export async function createIndex(
  { pool, ...settings }: IndexContext,
  request: CreateIndexRequest,
  { signal }: Pick<Call, 'signal'>,
): Promise<CreateIndexResponse> {
  const definition = definitionOf(request);
  const app = await findApp(pool, request.appId);
  const firstKey = definition.type === 'encrypted' ? await keyForIndex(pool, app.number, settings) : undefined;
  const held = request.isHeld === true ? request.ticketId : undefined;
  const question = {
    collection: request.collection,
    wantedOf: (collection: CollectionRef) =>
      collection.indexes.some(({ name }) => name === request.name) ? [] : coveredTypes(definition),
    isForced: request.force === true,
  };
  const made = await changeTypes(pool, app, question, signal, (assertFit) =>
    makeIndex(pool, request, definition, { ...settings, firstKey, held, assertFit }),
  );
  // A call that is repeated finds the answer of its first time under the Idempotency-Key of the request.
  const isOwn = made.replayed === true && held !== undefined && (await heldWriteState(pool, held)) === 'done';
  return isOwn ? { ...made, replayed: false } : made;
}

interface IndexContext extends PoolContext, IndexSettings {}

interface IndexSettings extends EncryptionSettings {
  defaultRead: ReadAccess;
}

/** The types of the values that an index covers, where its type says which. */
function coveredTypes({ fieldName, type }: NewIndex): WantedType[] {
  const fieldType = declaredFieldType(type);
  if (fieldType === undefined) return [];
  // Published clients give fields of objects and arrays an index of the type string.
  return [{ name: fieldName, rule: ruleOfType(fieldType), allowsContainers: fieldType === 'string' }];
}

function makeIndex(
  pool: Pool,
  request: CreateIndexRequest,
  definition: NewIndex,
  context: IndexSettings & { firstKey: NewDataKey | undefined; held: string | undefined; assertFit: AssertFit },
): Promise<CreateIndexResponse> {
  const { defaultRead, firstKey, held, assertFit } = context;
  const isEncrypted = definition.type === 'encrypted';
  return withAppLockOnce<CreateIndexResponse>(pool, request, async (tx, app) => {
    const state = held === undefined ? undefined : await heldWriteState(tx, held);
    if (state === 'closed') throw writeClosed();
    const more: Partial<CreateIndexResponse> = {};
    const answer = async (ticketId: string, updated: boolean): Promise<CreateIndexResponse> => {
      const index = await indexNow(tx, request);
      if (held !== undefined && !updated && state !== 'done') await keepDone(tx, held);
      return { index, updated, ticketId, warnings: [], ...more };
    };
    // The call is repeated.
    if (state === 'done') return answer((await isEnqueued(tx, app.number, held!)) ? held! : '', false);
    const existing = await findCollection(tx, app, request.collection);
    const time = await databaseTime(tx);
    const collection =
      existing ?? (await addCollection(tx, app, { name: request.collection, readAccess: defaultRead }, time));
    if (!existing) {
      more.createdCollection = { name: collection.name, readAccess: collection.readAccess };
      more.warnings = await creationWarnings(tx, app, collection);
    }
    const same = collection.indexes.find((index) => index.name === request.name);
    if (same && !isSame(same, definition)) {
      throw conflict(ALREADY_EXISTS, `An index with the name ${request.name} and another definition already exists`);
    }
    assertOneSearch(collection, definition);
    if (same) {
      await changePrices(tx, { appNumber: app.number, number: same.number }, request);
      if (same.status === 'failed') return answer(await buildAgain(tx, collection, same, request.ticketId), false);
      const repeated = await isEnqueued(tx, app.number, request.ticketId);
      return answer(repeated ? request.ticketId : '', !repeated);
    }
    assertTypeOfSchema(collection, definition);
    const unfitDocuments = existing ? await assertFit(tx, existing) : 0;
    if (request.force) more.unfitDocuments = unfitDocuments.toString();
    if (isEncrypted) await encryptForIndex(tx, collection, definition.fieldName, firstKey, context, time);
    const ticketId = await addIndex(tx, collection, collection.schema, definition, time, request.ticketId);
    await checkDefinitionBytes(tx, app.number);
    // The payment is required last, so that an index that cannot be made is refused before anybody pays for it.
    if (isEncrypted) requirePaidIndex(request.isPaid === true, collection.name, definition.fieldName);
    await bumpCatalogRevision(tx, app.number);
    return answer(ticketId, false);
  });
}

/** Warns that the name of a collection that was created may be misspelt. */
async function creationWarnings(tx: Connection, app: App, { name }: CollectionRef): Promise<string[]> {
  const near = await nearCollection(tx, app, name);
  return near === undefined ? [] : [`There was no collection ${name}, so it was created${didYouMean(near)}`];
}

/** Whether the call is repeated: its job is in the queue already. */
async function isEnqueued(tx: Connection, appNumber: bigint, ticketId: string): Promise<boolean> {
  return (
    ticketId !== '' &&
    (await row(tx, sql`select from job where ticket_id = ${ticketId} and app_number = ${appNumber}`)) !== undefined
  );
}

/**
 * Deletes an index, and the columns that no other needs; a build of it that is under way is cancelled. Throws
 * INDEX_NOT_FOUND, INDEX_IN_USE.
 */
export async function deleteIndex(
  { pool, queriesNeeding }: PoolContext & { queriesNeeding: QueriesNeeding },
  request: IndexRequest,
): Promise<DeleteIndexResponse> {
  return withAppLockOnce<DeleteIndexResponse>(pool, request, async (tx, app) => {
    const { collection, index } = await findIndex(tx, request);
    await assertUnneeded(tx, collection, index, queriesNeeding);
    // Any build of the collection holds the table that loses its columns.
    await cancelBuilds(tx, sql`i.collection_number = ${collection.number}`);
    const deleted = await execute(tx, sql`delete from document_index where number = ${index.number}`);
    if (deleted === 0) throw indexNotFound(request.name);
    await dropIndex(tx, collection, index);
    await bumpCatalogRevision(tx, app.number);
    return {};
  });
}

/** Rebuilds an index from the documents; reads do not use it meanwhile. */
export async function rebuildIndex({ pool }: PoolContext, request: IndexRequest): Promise<JobResponse> {
  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    const target = await findIndex(tx, request);
    const { name } = target.index;
    if (await isEnqueued(tx, app.number, request.ticketId)) return { name, ticketId: request.ticketId };
    return { name, ticketId: await buildAgain(tx, target.collection, target.index, request.ticketId) };
  });
}

/** Queues another build of an index; one that has failed gets its columns again. Returns the ticket. */
async function buildAgain(
  tx: Connection,
  collection: CollectionRef,
  index: IndexDefinition,
  ticketId: string,
): Promise<string> {
  if (index.status === 'failed') {
    // Any build of the collection holds the table that gets columns.
    await cancelBuilds(tx, sql`i.collection_number = ${collection.number}`);
    await restoreColumns(tx, collection, index);
  }
  await execute(tx, sql`update document_index set status = 'building', error = null where number = ${index.number}`);
  await bumpCatalogRevision(tx, collection.appNumber);
  return enqueueBuild(tx, collection, index, { ticketId });
}

/** A search means what the language of its index says, so a field has one full-text index. Throws ALREADY_EXISTS. */
function assertOneSearch({ indexes }: CollectionRef, { name, fieldName, type }: NewIndex): void {
  if (type !== 'fulltext') return;
  const other = indexes.find((index) => isSearchIndex(index) && index.fieldName === fieldName && index.name !== name);
  if (!other) return;
  throw conflict(ALREADY_EXISTS, `The field ${fieldName} already has the full-text index ${other.name}`);
}

/** Throws VALIDATION_FAILED for an index of another type than the schema says. */
function assertTypeOfSchema({ schema }: CollectionRef, { fields, type }: NewIndex): void {
  const field = fields.find((name) => contradictedType(type, schema, name) !== undefined);
  if (field === undefined) return;
  const message = `cannot be ${type}, for the schema says that ${field} is of type ${contradictedType(type, schema, field)}`;
  throw invalid(`The index is not valid: index_type ${message}`, { index_type: [message] });
}

const indexNotFound = (name: string) => notFound(INDEX_NOT_FOUND, `There is no index ${name}`);

type IndexName = Pick<IndexRequest, 'appId' | 'collection' | 'name'>;

/** Finds an index by collection and name, or by the older route's `<collection>_<field>_index`. */
async function findIndex(
  pool: Queryable,
  request: IndexName,
): Promise<{ collection: CollectionRef; index: IndexDefinition }> {
  const app = await findApp(pool, request.appId);
  if (request.collection !== '') {
    const collection = await requireCollection(pool, request.appId, request.collection);
    const index = collection.indexes.find((candidate) => candidate.name === request.name);
    if (!index) throw indexNotFound(request.name);
    return { collection, index };
  }
  const match = await row<{ collection: string; name: string }>(
    pool,
    sql`select c.name as collection, i.name from document_index i join collection c on c.number = i.collection_number
        where i.app_number = ${app.number} and c.deleted_at is null
          and (c.name || '_' || i.field_name || '_index' = ${request.name} or i.name = ${request.name})
        order by i.name = ${request.name} desc, i.fields is not null, i.number limit 1`,
  );
  if (!match) throw indexNotFound(request.name);
  return findIndex(pool, { ...request, collection: match.collection, name: match.name });
}

export function getIndex({ pool }: PoolContext, request: IndexRequest): Promise<Index> {
  return indexNow(pool, request);
}

/** The index as it is for `db`, which may be in a transaction. */
async function indexNow(db: Queryable, request: IndexName): Promise<Index> {
  const { index } = await findIndex(db, request);
  const indexRow = await row<IndexRow>(db, selectIndexes(sql`i.number = ${index.number}`));
  if (!indexRow) throw indexNotFound(request.name);
  return toIndex(indexRow);
}
