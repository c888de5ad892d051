import { conflict, forbidden, invalid, notFound, type FieldMessages } from '@granary/shared/errors';
import { message, type Call } from '@granary/shared/rpc/types';
import { databaseTime } from '@granary/shared/postgres/clock';
import { shownViewName } from '../catalog/table-names';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { append } from '@granary/shared/bus/outbox';
import type { Collection } from '@granary/shared/gen/granary/data/v1/Collection';
import type { CollectionStats } from '@granary/shared/gen/granary/data/v1/CollectionStats';
import type { CreateCollectionRequest } from '@granary/shared/gen/granary/data/v1/CreateCollectionRequest';
import type { DeleteCollectionResponse } from '@granary/shared/gen/granary/data/v1/DeleteCollectionResponse';
import type { DeleteCollectionRequest } from '@granary/shared/gen/granary/data/v1/DeleteCollectionRequest';
import type { ListCollectionsResponse } from '@granary/shared/gen/granary/data/v1/ListCollectionsResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { SetRetentionRequest } from '@granary/shared/gen/granary/data/v1/SetRetentionRequest';
import type { UpdateCollectionRequest } from '@granary/shared/gen/granary/data/v1/UpdateCollectionRequest';
import { COLLECTION_NOT_FOUND, requireCollection, type CollectionRef, type ReadAccess } from '../catalog/collection';
import { contradictedType } from '../catalog/index-definition';
import { enqueueJob } from '../jobs/queue';
import { listPage } from '@granary/shared/postgres/listing';
import { hasSameType, parseSchema, ruleOfType, type Schema } from '../catalog/schema';
import { checkDefinitionBytes } from '../catalog/definition-limit';
import { usageColumns, usageEvent, type UsageRow } from '../usage/event';
import { priceText, storedPrice } from '../catalog/read-price';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { logErasure } from '../chain/erasure-log';
import { findApp, type App } from '../catalog/app';
import { addSchemaIndexes, rekeyIndexes } from '../tables/define-index';
import { addCollection } from '../tables/create-collection';
import type { WantedType } from '../documents/misfits';
import { changeTypes, type AssertFit } from './fitting-documents';
import type { PoolContext } from '../postgres/databases';
import type { CollectionRequest } from '@granary/shared/gen/granary/data/v1/CollectionRequest';

export const COLLECTION_NOT_EMPTY = 'COLLECTION_NOT_EMPTY';
export const COLLECTION_IN_USE = 'COLLECTION_IN_USE';

export async function createCollection(
  { pool, defaultRead }: PoolContext & { defaultRead: ReadAccess },
  request: CreateCollectionRequest,
): Promise<Collection> {
  return withAppLockOnce(pool, request, async (tx, app) => {
    const created = await addCollection(
      tx,
      app,
      {
        name: request.name,
        namespace: request.namespace,
        primaryColumn: request.primaryColumn,
        sortColumn: request.sortColumn,
        schemaText: request.schemaJson === '' ? undefined : request.schemaJson,
        readAccess: readAccess(request.readAccess || defaultRead),
        readPriceText: priceText(request.readPriceConfig),
        hasWritePricing: request.writePricing,
      },
      await databaseTime(tx),
    );
    return collectionNow(tx, created.appId, created.name);
  });
}

function readAccess(text: string): ReadAccess {
  if (text === 'public' || text === 'private') return text;
  throw invalid('The access policy is not valid', { 'access_policy.read': ['must be public or private'] });
}

interface CollectionRow {
  name: string;
  namespace: string | null;
  primary_column: string | null;
  sort_column: string | null;
  schema_text: string | null;
  read_access: string;
  retention_days: number | null;
  read_price_config_text: string | null;
  write_pricing: boolean;
  documents: bigint;
  size_bytes: bigint;
  created_at: Date;
  updated_at: Date;
}

const collectionColumns = sql`name, namespace, primary_column, sort_column, schema_text, read_access, retention_days,
  read_price_config_text, write_pricing, row_count - deleted_count as documents, size_bytes, created_at, updated_at`;

function toCollection(appId: string, collection: CollectionRow): Collection {
  return message<Collection>({
    appId,
    name: collection.name,
    namespace: collection.namespace ?? undefined,
    primaryColumn: collection.primary_column ?? undefined,
    sortColumn: collection.sort_column ?? undefined,
    schemaJson: collection.schema_text ?? '',
    readAccess: collection.read_access,
    retentionDays: collection.retention_days ?? undefined,
    documentCount: collection.documents.toString(),
    sizeBytes: collection.size_bytes.toString(),
    createdAt: collection.created_at.toISOString(),
    updatedAt: collection.updated_at.toISOString(),
    readPriceConfig: storedPrice(collection.read_price_config_text),
    writePricing: collection.write_pricing,
  });
}

/** The predefined queries that read a collection, as their source or by a join. */
const readsCollection = (name: string): Sql => sql`(source_collection = ${name} or ${name} = any(joined_collections))`;

/** Throws APP_NOT_FOUND, COLLECTION_NOT_FOUND. */
export function getCollection({ pool }: PoolContext, { appId, collection }: CollectionRequest): Promise<Collection> {
  return collectionNow(pool, appId, collection);
}

/** The collection as it is for `db`, which may be in a transaction. */
async function collectionNow(db: Queryable, appId: string, name: string): Promise<Collection> {
  const collection = await row<CollectionRow>(
    db,
    sql`select ${collectionColumns} from collection
      where app_number = (select number from application where app_id = ${appId} and deleted_at is null)
        and name = ${name} and deleted_at is null`,
  );
  if (collection) return toCollection(appId, collection);
  // Throws where it is the app that is missing.
  await findApp(db, appId);
  throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
}

/** A page of the collections of an app, by name. Throws INVALID_CURSOR. */
export async function listCollections({ pool }: PoolContext, request: ListRequest): Promise<ListCollectionsResponse> {
  const { appId } = request;
  const app = await findApp(pool, appId);
  const source = {
    columns: collectionColumns,
    from: sql`collection where app_number = ${app.number} and deleted_at is null`,
    key: [{ column: sql`name`, type: 'text' as const }],
    bytes: sql`coalesce(octet_length(schema_text), 0) + coalesce(octet_length(read_price_config_text), 0) + 6 * (coalesce(octet_length(namespace), 0)
      + coalesce(octet_length(primary_column), 0) + coalesce(octet_length(sort_column), 0))`,
    keyOf: ({ name }: CollectionRow) => [name],
  };
  const { entries, nextCursor } = await listPage<CollectionRow>(pool, source, request);
  return { collections: entries.map((collection) => toCollection(appId, collection)), nextCursor };
}

/**
 * Changes what the request names. Where a field gets another type, documents that are there already must have it,
 * unless the change is forced; they are not checked against the other rules of a new schema. Throws
 * DOCUMENTS_DO_NOT_FIT, VALIDATION_FAILED for a type that contradicts an index, FORBIDDEN when what is private would
 * become public and the caller may not publish.
 */
export async function updateCollection(
  { pool }: PoolContext,
  request: UpdateCollectionRequest,
  { signal }: Pick<Call, 'signal'>,
): Promise<Collection> {
  const { schemaJson, appId, name, force = false } = request;
  // Empty text takes the schema away, absence leaves it.
  const schema: Schema | undefined =
    schemaJson === undefined ? undefined : schemaJson === '' ? { fields: new Map() } : parseSchema(schemaJson);
  const question = {
    collection: name,
    wantedOf: (collection: CollectionRef) => (schema ? changedTypes(collection, schema) : []),
    isForced: force,
  };
  return changeTypes(pool, await findApp(pool, appId), question, signal, (assertFit) =>
    changeCollection(pool, request, schema, assertFit),
  );
}

/** The fields to which a schema gives another type than they have. */
const changedTypes = ({ schema: before }: CollectionRef, schema: Schema): WantedType[] =>
  [...schema.fields].flatMap(([name, rule]) => {
    const previousRule = before?.fields.get(name);
    const isSame = previousRule !== undefined && hasSameType(previousRule, rule);
    return isSame ? [] : [{ name, rule: ruleOfType(rule.type, rule.isDay), allowsContainers: false }];
  });

function changeCollection(
  pool: Pool,
  request: UpdateCollectionRequest,
  schema: Schema | undefined,
  assertFit: AssertFit,
): Promise<Collection> {
  return withAppLockOnce(pool, request, async (tx, app) => {
    const before = await requireCollection(tx, request.appId, request.name);
    const { schemaJson, readPriceConfig: price } = request;
    if (before.readAccess === 'private' && request.readAccess === 'public' && !request.mayPublish) {
      throw forbidden('Making a private collection public needs the permission Admin');
    }
    if (schema) assertTypesOfIndexes(before, schema);
    const unfitDocuments = await assertFit(tx, before);
    await execute(
      tx,
      sql`update collection set
            namespace = coalesce(${request.namespace ?? null}, namespace),
            primary_column = coalesce(${request.primaryColumn ?? null}, primary_column),
            sort_column = coalesce(${request.sortColumn ?? null}, sort_column),
            schema_text = ${schemaJson === undefined ? sql`schema_text` : sql`${schemaJson || null}::text`},
            read_access = coalesce(${request.readAccess === undefined ? null : readAccess(request.readAccess)}, read_access),
            read_price_config_text = ${price ? sql`${priceText(price)}::text` : sql`read_price_config_text`},
            write_pricing = coalesce(${request.writePricing ?? null}, write_pricing),
            updated_at = now()
          where number = ${before.number}`,
    );
    if (schema) {
      await rekeyIndexes(tx, before, schema);
      await addSchemaIndexes(tx, before, schema, await databaseTime(tx));
      await checkDefinitionBytes(tx, app.number);
    }
    await bumpCatalogRevision(tx, app.number);
    const changed = await collectionNow(tx, request.appId, request.name);
    return request.force ? { ...changed, unfitDocuments: unfitDocuments.toString() } : changed;
  });
}

/** Throws VALIDATION_FAILED for a schema that gives a field another type than that of an index over it. */
function assertTypesOfIndexes(before: CollectionRef, schema: Schema): void {
  const problems: FieldMessages = {};
  for (const { declaredType, fields, name } of before.indexes) {
    for (const field of fields) {
      const contradicted = contradictedType(declaredType, schema, field);
      // One that is contradicted already stays until its field gets another type.
      if (contradicted === undefined || contradicted === contradictedType(declaredType, before.schema, field)) continue;
      const place = `schema_definition.fields.${field}.type`;
      problems[place] = [`cannot be ${contradicted}, for the index ${name} is of type ${declaredType}`];
    }
  }
  const [first] = Object.entries(problems);
  if (first) throw invalid(`The schema is not valid: ${first[0]} ${first[1].join()}`, problems);
}

/**
 * Marks a collection as deleted at once; its tables are dropped by a job, its blobs and usage by the
 * consumers of the event. Throws COLLECTION_NOT_EMPTY without force, COLLECTION_IN_USE without cascade.
 */
export async function deleteCollection(
  { pool }: PoolContext,
  request: DeleteCollectionRequest,
): Promise<DeleteCollectionResponse> {
  return withAppLockOnce<DeleteCollectionResponse>(pool, request, async (tx, app) => {
    const ref = await requireCollection(tx, request.appId, request.name);
    if (ref.rowCount > 0n && !request.force) {
      throw conflict(
        COLLECTION_NOT_EMPTY,
        `The collection ${ref.name} holds documents; send {"force": true} in the body to delete it with them`,
      );
    }
    const users = await rows<{ kind: string; name: string }>(
      tx,
      sql`select distinct 'view' as kind, ${shownViewName} as name from view v
          where v.app_number = ${app.number} and ${ref.name} = any(v.source_collections)
          union all
          select distinct 'query', name from query where app_number = ${app.number} and ${readsCollection(ref.name)}
          order by 1, 2 limit 100`,
    );
    if (users.length > 0 && !request.cascade) {
      throw conflict(
        COLLECTION_IN_USE,
        `Views or queries read the collection ${ref.name}; send {"cascade": true} in the body to delete them with it`,
        {
          used_by: users.map(({ kind, name }) => `${kind} ${name}`),
        },
      );
    }
    await execute(tx, sql`delete from query where app_number = ${app.number} and ${readsCollection(ref.name)}`);
    const views = await rows<{ tables: bigint[] }>(
      tx,
      sql`delete from view where app_number = ${app.number} and ${ref.name} = any(source_collections)
          returning array_remove(array[table_number, building_table_number], null) as tables`,
    );
    const viewTables = views.flatMap(({ tables }) => tables);
    await dropCollection(tx, app, ref, viewTables);
    await logErasure(tx, ref, { reason: 'dropped', ids: [], at: await databaseTime(tx) });
    return {};
  });
}

async function dropCollection(tx: Connection, app: App, ref: CollectionRef, viewTables: bigint[]): Promise<void> {
  const time = await databaseTime(tx);
  const { usage_sequence: sequence, height } = (await row<{ usage_sequence: bigint; height: bigint }>(
    tx,
    sql`update collection set deleted_at = ${time}, usage_sequence = usage_sequence + 1 where number = ${ref.number}
        returning usage_sequence, (select height from head where app_number = ${app.number})`,
  ))!;
  await append(tx, [
    {
      topic: 'usage',
      key: app.appId,
      aggregateId: `collection/${ref.number}`,
      aggregateSequence: sequence,
      type: 'collection.deleted',
      payload: {
        app_id: app.appId,
        collection: ref.name,
        collection_number: ref.number.toString(),
        app_number: app.number.toString(),
        // Files of a later collection of this name have a higher one.
        height: height.toString(),
        at: time.toISOString(),
      },
    },
  ]);
  await enqueueJob(tx, app, 'collection.drop', {
    collection_number: ref.number.toString(),
    view_tables: viewTables.map(String),
  });
}

/** Sets the retention, which applies to existing documents too. */
export async function setRetention({ pool }: PoolContext, request: SetRetentionRequest): Promise<Collection> {
  const days = request.retentionDays ?? null;
  if (days !== null && (days < 1 || days > 36_500)) {
    throw invalid('The retention is not valid', {
      retention_days: ['must be a whole number from 1 to 36500, or null'],
    });
  }
  return withAppLockOnce(pool, request, async (tx, app) => {
    const ref = await requireCollection(tx, request.appId, request.collection);
    const usage = (await row<UsageRow>(
      tx,
      sql`update collection set retention_days = ${days}, updated_at = now(), usage_sequence = usage_sequence + 1
          where number = ${ref.number} returning ${usageColumns}`,
    ))!;
    await append(tx, [usageEvent(app.appId, ref.name, usage, await databaseTime(tx))]);
    await bumpCatalogRevision(tx, app.number);
    return collectionNow(tx, request.appId, request.collection);
  });
}

/** Throws APP_NOT_FOUND, COLLECTION_NOT_FOUND. */
export async function getCollectionStats(
  { pool }: PoolContext,
  { appId, collection: name }: CollectionRequest,
): Promise<CollectionStats> {
  const ref = await requireCollection(pool, appId, name);
  const times = (await row<{ last_write_at: Date | null; created_at: Date; updated_at: Date }>(
    pool,
    sql`select last_write_at, created_at, updated_at from collection where number = ${ref.number}`,
  ))!;
  return message<CollectionStats>({
    collection: name,
    documentCount: (ref.rowCount - ref.deletedCount).toString(),
    deletedCount: ref.deletedCount.toString(),
    versionCount: (ref.rowCount + ref.versionCount).toString(),
    sizeBytes: ref.sizeBytes.toString(),
    indexCount: ref.indexes.length,
    lastWriteAt: times.last_write_at?.toISOString(),
    createdAt: times.created_at.toISOString(),
    updatedAt: times.updated_at.toISOString(),
  });
}
