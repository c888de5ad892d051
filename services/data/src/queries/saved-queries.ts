import { conflict, forbidden, invalid, notFound, type ServiceError } from '@granary/shared/errors';
import type { CreateQueryRequest } from '@granary/shared/gen/granary/data/v1/CreateQueryRequest';
import type { DeleteQueryResponse } from '@granary/shared/gen/granary/data/v1/DeleteQueryResponse';
import type { QueryRequest } from '@granary/shared/gen/granary/data/v1/QueryRequest';
import type { ListQueriesResponse } from '@granary/shared/gen/granary/data/v1/ListQueriesResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { Query } from '@granary/shared/gen/granary/data/v1/Query';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { nameRule } from '@granary/shared/names';
import { COLLECTION_NOT_FOUND, findCollection } from '../catalog/collection';
import { LookupCache } from '../catalog/cache';
import { listPage } from '../listings/listing';
import { ALREADY_EXISTS, isName } from '../catalog/names';
import { invalidQuery, overLimit } from '../query/language/query-error';
import { readJsonText } from '../query/language/paging';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findApp } from '../catalog/app';
import { parseBaseQuery, parseParameters, type PredefinedQuery } from './definition';

export const QUERY_NOT_FOUND = 'QUERY_NOT_FOUND';

/** Predefined queries of one app, at most. */
export const queriesMax = 1_000;
const textLengthMax = 10_000;

/**
 * Creates a predefined query. Throws ALREADY_EXISTS, COLLECTION_NOT_FOUND, INVALID_QUERY, LIMIT_EXCEEDED,
 * VALIDATION_FAILED; FORBIDDEN when it would make a private source public and the caller may not publish.
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
  /** Whether it is private itself, or because its source is private now. */
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

export const queryNotFound = (name: string): ServiceError => notFound(QUERY_NOT_FOUND, `There is no query ${name}`);

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
