import { conflict, forbidden, invalid, notFound, type ServiceError } from '@granary/shared/errors';
import type { CreateQueryRequest } from '@granary/shared/gen/granary/data/v1/CreateQueryRequest';
import type { DeleteQueryResponse } from '@granary/shared/gen/granary/data/v1/DeleteQueryResponse';
import type { QueryRequest } from '@granary/shared/gen/granary/data/v1/QueryRequest';
import type { ListQueriesResponse } from '@granary/shared/gen/granary/data/v1/ListQueriesResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { Query } from '@granary/shared/gen/granary/data/v1/Query';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import { nameRule } from '@granary/shared/names';
import { findCollection } from '../catalog/collection';
import { LookupCache } from '../catalog/cache';
import { and } from '../query/language/condition';
import { allJoins } from '../query/language/joins';
import { listPage } from '@granary/shared/postgres/listing';
import { ALREADY_EXISTS, isName } from '../catalog/names';
import { noSuchCollection } from '../catalog/near-collection';
import { invalidQuery, overLimit } from '../query/language/query-error';
import { assertOperands } from '../query/plan/operands';
import { documentsRelation, presentDocuments } from '../query/plan/relation';
import { resolveReferences } from '../query/execute/references';
import { readJsonText } from '../query/language/paging';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { ownReadPrice, priceText, storedPrice } from '../catalog/read-price';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findApp } from '../catalog/app';
import { parseBaseQuery, parseParameters, refuseReservedNames, type PredefinedQuery } from './definition';
import { joinedCollections } from './joined-collections';

export const QUERY_NOT_FOUND = 'QUERY_NOT_FOUND';

/** Predefined queries of one app, at most; each version counts. */
export const queriesMax = 1_000;
const textLengthMax = 10_000;
const versionLengthMax = 100;

/**
 * Creates a predefined query, or a version of one beside those that exist. Throws ALREADY_EXISTS, COLLECTION_NOT_FOUND,
 * INVALID_QUERY, LIMIT_EXCEEDED, VALIDATION_FAILED; FORBIDDEN when it would make a private source public and the caller
 * may not publish.
 */
export async function createQuery({ pool }: { pool: Pool }, request: CreateQueryRequest): Promise<Query> {
  const { name, sourceCollection, description, version } = request;
  if (!isName(name)) throw invalid('The name is not valid', { name: [nameRule] });
  if (description.length > textLengthMax) {
    throw overLimit('description', `may have at most ${textLengthMax} characters`);
  }
  if (version.length > versionLengthMax) throw overLimit('version', `may have at most ${versionLengthMax} characters`);
  if (!['', 'public', 'private'].includes(request.readAccess))
    throw invalidQuery('access_policy.read', 'must be public or private');
  const baseQuery = valueOf(request.baseQueryJson, 'base_query') ?? new Map<string, JsonValue>();
  const parameters = valueOf(request.parametersJson, 'parameters') ?? [];
  const { find, joins, limit } = parseBaseQuery(baseQuery);
  refuseReservedNames(parseParameters(parameters, limit));
  const exampleRequest = valueOf(request.exampleRequestJson, 'example_request');
  const exampleResponse = valueOf(request.exampleResponseJson, 'example_response');
  const textOrNull = (value: JsonValue): string | null => (value === null ? null : toText(value));

  return withAppLockOnce(pool, request, async (tx, app) => {
    if (await findQuery(tx, app.number, name, version)) {
      throw conflict(ALREADY_EXISTS, `A query with the name ${name}${ofVersion(version)} already exists`);
    }
    const counted = await row<{ queries: bigint }>(
      tx,
      sql`select count(*) as queries from query where app_number = ${app.number}`,
    );
    if (counted!.queries >= queriesMax)
      throw invalid(`An app may have at most ${queriesMax} queries`, {}, LIMIT_EXCEEDED);
    await resolveReferences(tx, app.appId, and(find, ...allJoins(joins).map((join) => join.find)));
    const source = await findCollection(tx, app, sourceCollection);
    if (!source) throw await noSuchCollection(tx, app, sourceCollection);
    assertOperands(documentsRelation(source, presentDocuments), find);
    const joined = await joinedCollections(tx, app, joins);
    const isPublished = request.readAccess === 'public';
    const showsPrivate = isPublished && source.readAccess === 'private';
    const shown = isPublished ? joined.privateNames : [];
    if ((showsPrivate || shown.length > 0) && !request.mayPublish) {
      throw forbidden('A public query over a private collection needs the permission Admin');
    }
    await execute(
      tx,
      sql`insert into query (app_number, name, source_collection, base_query_text, parameters_text, description, version,
            example_request_text, example_response_text, read_access, shows_private,
            joined_collections, shown_collections, read_price_config_text, created_at)
          values (${app.number}, ${name}, ${sourceCollection}, ${toText(baseQuery)}, ${toText(parameters)},
            ${description}, ${version}, ${textOrNull(exampleRequest)}, ${textOrNull(exampleResponse)},
            ${request.readAccess || 'public'}, ${showsPrivate}, ${joined.names}, ${shown},
            ${priceText(request.readPriceConfig)}, clock_timestamp())`,
    );
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return toQuery(await requireQuery(tx, app, name, version));
  });
}

const ofVersion = (version: string | undefined): string => (version ? ` and the version ${version}` : '');

/** The value in a field of a message; null where it is empty. */
function valueOf(bytes: Uint8Array, location: string): JsonValue {
  return bytes.length === 0 ? null : readJsonText(Buffer.from(bytes), location);
}

const withSource = sql`left join collection c
  on c.app_number = q.app_number and c.name = q.source_collection and c.deleted_at is null`;
/**
 * The predefined queries `q` of an app, each in its newest version, with their sources `c`. Versions are numbered in
 * the order of their creation.
 */
export const newestQueries = (appNumber: bigint): Sql =>
  sql`(select distinct on (name) * from query where app_number = ${appNumber} order by name, number desc) q ${withSource}`;
/** A query is as private as what it shows, unless an administrator has made it public. */
export const isPrivateQuery = sql`(q.read_access = 'private'
  or (coalesce(c.read_access, 'public') = 'private' and not q.shows_private)
  or exists (select from collection j where j.app_number = q.app_number and j.name = any(q.joined_collections)
    and j.name <> all(q.shown_collections) and j.read_access = 'private' and j.deleted_at is null))`;

interface QueryRow {
  name: string;
  source_collection: string;
  base_query_text: string;
  parameters_text: string;
  description: string;
  version: string;
  example_request_text: string | null;
  example_response_text: string | null;
  read_access: string;
  shows_private: boolean;
  shown_collections: string[];
  /** Whether it is private itself, or because what it shows is private now. */
  is_private: boolean;
  created_at: Date;
  read_price_config_text: string | null;
  revision: bigint;
  /** All versions of the query, the newest first. */
  versions: string[];
}

const queryColumns = sql`q.name, q.source_collection, q.base_query_text, q.parameters_text, q.description, q.version,
  q.example_request_text, q.example_response_text, q.read_access, q.shows_private, q.shown_collections,
  ${isPrivateQuery} as is_private,
  q.created_at, q.read_price_config_text, (select h.catalog_revision from head h where h.app_number = q.app_number) as revision, array(select v.version from query v where v.app_number = q.app_number and v.name = q.name
    order by v.number desc) as versions`;

/** A version of a query; without one the newest. */
function findQuery(db: Queryable, appNumber: bigint, name: string, version?: string): Promise<QueryRow | undefined> {
  const only = version === undefined ? empty : sql` and q.version = ${version}`;
  return row<QueryRow>(
    db,
    sql`select ${queryColumns} from query q ${withSource}
        where q.app_number = ${appNumber} and q.name = ${name}${only} order by q.number desc limit 1`,
  );
}

async function requireQuery(
  db: Queryable,
  app: { number: bigint },
  name: string,
  version: string | undefined,
): Promise<QueryRow> {
  const query = isVersion(version) ? await findQuery(db, app.number, name, version) : undefined;
  if (!query) throw queryNotFound(name, version);
  return query;
}

/** Whether a query may have a version of this text; undefined asks for the newest. */
const isVersion = (version: string | undefined): boolean =>
  version === undefined || (version.length <= versionLengthMax && !/\0|\p{Surrogate}/u.test(version));

export const queryNotFound = (name: string, version?: string): ServiceError =>
  notFound(QUERY_NOT_FOUND, `There is no query ${name}${version === undefined ? '' : ` of the version ${version}`}`);

function toQuery(query: QueryRow): Query {
  const price = storedPrice(query.read_price_config_text);
  return {
    name: query.name,
    sourceCollection: query.source_collection,
    baseQueryJson: Buffer.from(query.base_query_text),
    parametersJson: Buffer.from(query.parameters_text),
    description: query.description,
    version: query.version,
    exampleRequestJson: Buffer.from(query.example_request_text ?? ''),
    exampleResponseJson: Buffer.from(query.example_response_text ?? ''),
    createdAt: query.created_at.toISOString(),
    readAccess: query.is_private ? 'private' : 'public',
    versions: query.versions,
    ...(price && { readPriceConfig: price }),
  };
}

/** A page of the queries of an app in their newest versions, by name. Throws INVALID_CURSOR. */
export async function listQueries({ pool }: { pool: Pool }, request: ListRequest): Promise<ListQueriesResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns: queryColumns,
    from: sql`${newestQueries(app.number)} where true`,
    key: [{ column: sql`q.name`, type: 'text' as const }],
    bytes: sql`octet_length(q.base_query_text) + octet_length(q.parameters_text)
      + 6 * (octet_length(q.description) + octet_length(q.version))
      + coalesce(octet_length(q.example_request_text), 0) + coalesce(octet_length(q.example_response_text), 0)
      + (select 6 * sum(octet_length(v.version) + 1) from query v where v.app_number = q.app_number and v.name = q.name)`,
    keyOf: ({ name }: QueryRow) => [name],
  };
  const { entries, nextCursor } = await listPage<QueryRow>(pool, source, request);
  return { queries: entries.map(toQuery), nextCursor };
}

/** A version of a query; without one the newest. Throws QUERY_NOT_FOUND. */
export async function getQuery({ pool }: { pool: Pool }, { appId, name, version }: QueryRequest): Promise<Query> {
  return toQuery(await requireQuery(pool, await findApp(pool, appId), name, version));
}

/** Deletes a version of a query; without one all of them. Throws QUERY_NOT_FOUND. */
export async function deleteQuery({ pool }: { pool: Pool }, request: QueryRequest): Promise<DeleteQueryResponse> {
  const { name, version } = request;
  return withAppLockOnce<DeleteQueryResponse>(pool, request, async (tx, app) => {
    await requireQuery(tx, app, name, version);
    const only = version === undefined ? empty : sql` and version = ${version}`;
    await execute(tx, sql`delete from query where app_number = ${app.number} and name = ${name}${only}`);
    await bumpCatalogRevision(tx, app.number);
    return {};
  });
}

/** Predefined queries for their callers. */
export class QueryLookup {
  private readonly cache: LookupCache<PredefinedQuery>;

  constructor(pool: Pool) {
    this.cache = new LookupCache(async (appId, key) => {
      const [name, version] = key.split(separator, 2);
      return findPredefined(pool, await findApp(pool, appId), name!, version);
    });
  }

  /** A version of a query; without one the newest. Rejects with APP_NOT_FOUND. */
  get(appId: string, name: string, version?: string): Promise<PredefinedQuery | undefined> {
    if (version === undefined) return this.cache.get(appId, name);
    return isVersion(version) ? this.cache.get(appId, name + separator + version) : Promise.resolve(undefined);
  }

  forget(appId: string): void {
    this.cache.forget(appId);
  }
}

/** The separator between name and version in a key; no text in the database holds it. */
const separator = '\0';

async function findPredefined(
  db: Queryable,
  app: { number: bigint },
  name: string,
  version: string | undefined,
): Promise<PredefinedQuery | undefined> {
  const query = await findQuery(db, app.number, name, version);
  if (!query) return undefined;
  const baseQuery = parseBaseQuery(readJsonText(Buffer.from(query.base_query_text), 'base_query'));
  return {
    ...baseQuery,
    isPrivate: query.read_access === 'private',
    showsPrivate: query.shows_private,
    shownCollections: new Set(query.shown_collections),
    sourceCollection: query.source_collection,
    revision: query.revision,
    readPrices: ownReadPrice(query.read_price_config_text),
    parameters: parseParameters(readJsonText(Buffer.from(query.parameters_text), 'parameters'), baseQuery.limit),
  };
}
