import { conflict, forbidden, invalid, notFound, type ServiceError } from '@granary/shared/errors';
import type { CreateQueryRequest } from '@granary/shared/gen/granary/data/v1/CreateQueryRequest';
import type { DeleteQueryResponse } from '@granary/shared/gen/granary/data/v1/DeleteQueryResponse';
import type { QueryRequest } from '@granary/shared/gen/granary/data/v1/QueryRequest';
import type { ListQueriesResponse } from '@granary/shared/gen/granary/data/v1/ListQueriesResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { Query } from '@granary/shared/gen/granary/data/v1/Query';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import type { Call } from '@granary/shared/rpc/types';
import type { Projection } from '@granary/shared/json/project';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { COLLECTION_NOT_FOUND, findCollection, type CollectionRef } from '../catalog/collection';
import { LookupCache } from '../catalog/cache';
import { listPage } from '../listings/listing';
import { ALREADY_EXISTS, isName, nameRule } from '../catalog/names';
import { AppDatabases } from '../query/execute/read-scheduler';
import { handleOf, type ReadContext } from '../reads/documents';
import {
  and,
  invalidQuery,
  isAll,
  overLimit,
  parseFind,
  parseName,
  parseOperator,
  type Condition,
} from '../query/language/filter';
import { conditionOfText, parametersByName, refused, take } from '../query/language/url-filter';
import { readDocuments, withFreshSource } from '../query/execute/read-page';
import {
  needsKey,
  numberOfText,
  parseCount,
  parseCursor,
  parseLimit,
  parseOffset,
  parseSelect,
  parseSortList,
  readJsonText,
  refuseUnknown,
} from '../query/language/paging';
import type { SortTerm } from '../query/plan/order';
import { documentsOf, typeOf } from '../query/plan/relation';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findApp } from '../catalog/app';

export const QUERY_NOT_FOUND = 'QUERY_NOT_FOUND';

/** Predefined queries of one app, at most. */
export const queriesMax = 1_000;
export const parametersMax = 64;
const textLengthMax = 10_000;

const baseQueryFields = new Set(['find', 'select', 'sort', 'limit']);
const parameterFields = new Set(['name', 'field_path', 'default', 'required', 'description']);
/** Parameters of every execution, which none of a query may be named after. */
const reservedParameters = new Set(['limit', 'offset', 'count', 'cursor']);

interface BaseQuery {
  find: Condition;
  projection: Projection;
  sort: SortTerm[];
  limit: number | undefined;
}

interface QueryParameter {
  name: string;
  target: ReturnType<typeof parseName>;
  /** Stands in where the URL has no value; undefined where the condition is then left out. */
  fallback: JsonValue | undefined;
  isRequired: boolean;
}

/** `{find, select, sort, limit}`. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
function parseBaseQuery(value: JsonValue): BaseQuery {
  if (!(value instanceof Map)) throw invalidQuery('base_query', 'must be an object');
  refuseUnknown(value.keys(), baseQueryFields, 'base_query');
  const limit = value.get('limit');
  return {
    find: parseFind(value.get('find'), 'base_query.find'),
    projection: parseSelect(value.get('select'), 'base_query.select'),
    sort: parseSortList(value.get('sort'), 'base_query.sort'),
    limit: limit === undefined || limit === null ? undefined : parseLimit(limit, 'base_query.limit'),
  };
}

/** `[{name, field_path, default?, required?, description?}]`. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
function parseParameters(value: JsonValue): Map<string, QueryParameter> {
  if (!Array.isArray(value)) throw invalidQuery('parameters', 'must be an array');
  if (value.length > parametersMax) throw overLimit('parameters', `may hold at most ${parametersMax} parameters`);
  const parameters = new Map<string, QueryParameter>();
  value.forEach((entry, index) => {
    const at = `parameters[${index}]`;
    if (!(entry instanceof Map)) throw invalidQuery(at, 'must be an object');
    refuseUnknown(entry.keys(), parameterFields, at);
    const name = entry.get('name');
    if (typeof name !== 'string' || name === '') throw invalidQuery(`${at}.name`, 'must be text');
    if (reservedParameters.has(name)) throw invalidQuery(`${at}.name`, 'is reserved');
    if (parameters.has(name)) throw invalidQuery(`${at}.name`, 'is used twice');
    const path = entry.get('field_path');
    if (typeof path !== 'string') throw invalidQuery(`${at}.field_path`, 'must be the path of a field');
    const required = entry.get('required') ?? false;
    if (typeof required !== 'boolean') throw invalidQuery(`${at}.required`, 'must be true or false');
    const target = parseName(path, `${at}.field_path`);
    const fallback = entry.get('default') ?? undefined;
    // A default that its operator cannot take is found now rather than at each execution.
    if (fallback !== undefined && typeof fallback !== 'string') {
      parseOperator(target.operator ?? 'is', target.path, fallback, `${at}.default`);
    }
    parameters.set(name, { name, target, fallback, isRequired: required });
  });
  return parameters;
}

/**
 * Makes a predefined query. Throws ALREADY_EXISTS, COLLECTION_NOT_FOUND, INVALID_QUERY, LIMIT_EXCEEDED,
 * VALIDATION_FAILED; FORBIDDEN when it would show a private source in public and the caller may not publish.
 */
export async function createQuery({ pool }: { pool: Pool }, request: CreateQueryRequest): Promise<Query> {
  const { name, sourceCollection, description, version } = request;
  if (!isName(name)) throw invalid('The name is not valid', { name: [nameRule] });
  for (const [field, text] of Object.entries({ description, version })) {
    if (text.length > textLengthMax) throw overLimit(field, `may have at most ${textLengthMax} characters`);
  }
  if (!['', 'public', 'private'].includes(request.readAccess))
    throw invalidQuery('access_policy.read', 'must be public or private');
  const baseQuery = valueOf(request.baseQueryJson, 'base_query') ?? new Map<string, JsonValue>();
  const parameters = valueOf(request.parametersJson, 'parameters') ?? [];
  parseBaseQuery(baseQuery);
  parseParameters(parameters);
  const exampleRequest = valueOf(request.exampleRequestJson, 'example_request');
  const exampleResponse = valueOf(request.exampleResponseJson, 'example_response');
  const textOrNull = (value: JsonValue): string | null => (value === null ? null : toText(value));

  return withAppLockOnce(pool, request, async (tx, app) => {
    if (await findQuery(tx, app.number, name))
      throw conflict(ALREADY_EXISTS, `A query with the name ${name} already exists`);
    const counted = await row<{ queries: bigint }>(
      tx,
      sql`select count(*) as queries from query where app_number = ${app.number}`,
    );
    if (counted!.queries >= queriesMax)
      throw invalid(`An app may have at most ${queriesMax} queries`, {}, LIMIT_EXCEEDED);
    const source = await findCollection(tx, app, sourceCollection);
    if (!source) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${sourceCollection}`);
    const showsPrivate = source.readAccess === 'private' && request.readAccess === 'public';
    if (showsPrivate && !request.mayPublish) {
      throw forbidden('A public query over a private collection needs the permission Admin');
    }
    await execute(
      tx,
      sql`insert into query (app_number, name, source_collection, base_query_text, parameters_text, description, version,
            example_request_text, example_response_text, read_access, shows_private, created_at)
          values (${app.number}, ${name}, ${sourceCollection}, ${toText(baseQuery)}, ${toText(parameters)},
            ${description}, ${version}, ${textOrNull(exampleRequest)}, ${textOrNull(exampleResponse)},
            ${request.readAccess || 'public'}, ${showsPrivate}, clock_timestamp())`,
    );
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return toQuery(await requireQuery(tx, app, name));
  });
}

/** The value in a field of a message; null where it is empty. */
function valueOf(bytes: Uint8Array, at: string): JsonValue {
  return bytes.length === 0 ? null : readJsonText(Buffer.from(bytes), at);
}

/** Predefined queries `q` with their sources `c`. */
export const queriesWithSource = sql`query q left join collection c
  on c.app_number = q.app_number and c.name = q.source_collection and c.deleted_at is null`;
/** A query is as private as what it shows, unless an administrator has made it public. */
export const isPrivateQuery = sql`(q.read_access = 'private'
  or (coalesce(c.read_access, 'public') = 'private' and not q.shows_private))`;

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
  /** Whether it is as private as its source is now, or by itself. */
  is_private: boolean;
  created_at: Date;
}

const queryColumns = sql`q.name, q.source_collection, q.base_query_text, q.parameters_text, q.description, q.version,
  q.example_request_text, q.example_response_text, q.read_access, q.shows_private, ${isPrivateQuery} as is_private,
  q.created_at`;

function findQuery(db: Queryable, appNumber: bigint, name: string): Promise<QueryRow | undefined> {
  return row<QueryRow>(
    db,
    sql`select ${queryColumns} from ${queriesWithSource} where q.app_number = ${appNumber} and q.name = ${name}`,
  );
}

async function requireQuery(db: Queryable, app: { number: bigint }, name: string): Promise<QueryRow> {
  const found = await findQuery(db, app.number, name);
  if (!found) throw queryNotFound(name);
  return found;
}

const queryNotFound = (name: string): ServiceError => notFound(QUERY_NOT_FOUND, `There is no query ${name}`);

function toQuery(found: QueryRow): Query {
  return {
    name: found.name,
    sourceCollection: found.source_collection,
    baseQueryJson: Buffer.from(found.base_query_text),
    parametersJson: Buffer.from(found.parameters_text),
    description: found.description,
    version: found.version,
    exampleRequestJson: Buffer.from(found.example_request_text ?? ''),
    exampleResponseJson: Buffer.from(found.example_response_text ?? ''),
    createdAt: found.created_at.toISOString(),
    readAccess: found.is_private ? 'private' : 'public',
  };
}

/** A page of the queries of an app, by name. Throws INVALID_CURSOR. */
export async function listQueries({ pool }: { pool: Pool }, request: ListRequest): Promise<ListQueriesResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns: queryColumns,
    from: sql`${queriesWithSource} where q.app_number = ${app.number}`,
    key: [{ column: sql`q.name`, type: 'text' as const }],
    bytes: sql`octet_length(q.base_query_text) + octet_length(q.parameters_text)
      + 6 * (octet_length(q.description) + octet_length(q.version))
      + coalesce(octet_length(q.example_request_text), 0) + coalesce(octet_length(q.example_response_text), 0)`,
    keyOf: ({ name }: QueryRow) => [name],
  };
  const { entries, nextCursor } = await listPage<QueryRow>(pool, source, request);
  return { queries: entries.map(toQuery), nextCursor };
}

/** Throws QUERY_NOT_FOUND. */
export async function getQuery({ pool }: { pool: Pool }, appId: string, name: string): Promise<Query> {
  return toQuery(await requireQuery(pool, await findApp(pool, appId), name));
}

/** Throws QUERY_NOT_FOUND. */
export async function deleteQuery({ pool }: { pool: Pool }, request: QueryRequest): Promise<DeleteQueryResponse> {
  const { name } = request;
  return withAppLockOnce<DeleteQueryResponse>(pool, request, async (tx, app) => {
    await requireQuery(tx, app, name);
    await execute(tx, sql`delete from query where app_number = ${app.number} and name = ${name}`);
    await bumpCatalogRevision(tx, app.number);
    return {};
  });
}

/** A predefined query as it is executed. */
export interface PredefinedQuery extends BaseQuery {
  isPrivate: boolean;
  /** Although its source is private it is public. */
  showsPrivate: boolean;
  sourceCollection: string;
  parameters: ReadonlyMap<string, QueryParameter>;
}

/** Predefined queries for their callers. `get` rejects with APP_NOT_FOUND. */
export const queryLookup = (pool: Pool): LookupCache<PredefinedQuery> =>
  new LookupCache(async (appId, name) => findPredefined(pool, await findApp(pool, appId), name));

async function findPredefined(
  db: Queryable,
  app: { number: bigint },
  name: string,
): Promise<PredefinedQuery | undefined> {
  const found = await findQuery(db, app.number, name);
  return (
    found && {
      ...parseBaseQuery(readJsonText(Buffer.from(found.base_query_text), 'base_query')),
      isPrivate: found.read_access === 'private',
      showsPrivate: found.shows_private,
      sourceCollection: found.source_collection,
      parameters: parseParameters(readJsonText(Buffer.from(found.parameters_text), 'parameters')),
    }
  );
}

/**
 * Executes a predefined query with the parameters of a URL: those of the query, `limit` (no more than the query's
 * own), `offset`, `cursor` and `count`. Throws QUERY_NOT_FOUND, UNAUTHENTICATED where the query or its collection is private,
 * VALIDATION_FAILED for a parameter that is required and missing, or unknown.
 */
export async function runQuery(
  db: ReadContext & { queries: LookupCache<PredefinedQuery> },
  request: ReadRequest,
  call: Pick<Call, 'signal'>,
): Promise<Buffer> {
  return withFreshSource(async (isRepeated) => {
    if (isRepeated) db.queries.forget(request.appId);
    const query = await db.queries.get(request.appId, request.name);
    if (!query) throw queryNotFound(request.name);
    const { sourceCollection, projection, sort, parameters } = query;
    // Without any condition the counters of the handle are part of the answer.
    const isFiltered = !isAll(query.find) || request.parameters.some((given) => parameters.has(given.name));
    const handle = await handleOf(db, request.appId, sourceCollection, isRepeated || !isFiltered);
    if (!handle) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${sourceCollection}`);
    const isPrivate = query.isPrivate || (handle.readAccess === 'private' && !query.showsPrivate);
    if (isPrivate && !request.mayReadPrivate) throw needsKey('query');

    const given = parametersByName(request.parameters);
    const limit = parseLimit(numberOfText(take(given, 'limit')), 'limit', query.limit);
    if (query.limit !== undefined && limit > query.limit)
      throw overLimit('limit', `may be at most ${query.limit} for this query`);
    const offset = parseOffset(numberOfText(take(given, 'offset')));
    const cursor = parseCursor(take(given, 'cursor'), offset);
    const count = parseCount(take(given, 'count'));
    const find = and(query.find, ...conditionsOf(handle, parameters, given));
    const source = documentsOf(handle, { includeHistory: false, includeDeleted: false });
    const databases = new AppDatabases(db, request, call.signal);
    return readDocuments(databases, source, { find, projection, sort, limit, offset, cursor, count });
  });
}

function conditionsOf(
  handle: CollectionRef,
  declared: ReadonlyMap<string, QueryParameter>,
  given: ReadonlyMap<string, string>,
): Condition[] {
  for (const name of given.keys()) if (!declared.has(name)) throw refused(name, 'is not known to this query');
  const conditions: Condition[] = [];
  for (const { name, target, fallback, isRequired } of declared.values()) {
    const { path, operator = 'is' } = target;
    const text = given.get(name) ?? (typeof fallback === 'string' ? fallback : undefined);
    if (text !== undefined) conditions.push(conditionOfText(path, operator, text, typeOf(handle, path), name));
    else if (fallback !== undefined) conditions.push(parseOperator(operator, path, fallback, name));
    else if (isRequired) throw refused(name, 'is required');
  }
  return conditions;
}
