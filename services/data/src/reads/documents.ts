import { forbidden, invalid, notFound } from '@granary/shared/errors';
import type { Call } from '@granary/shared/rpc/types';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { readJson } from '@granary/shared/json/value';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import type { ReaderCache } from '../catalog/cache';
import { isName, nameRule } from '../catalog/names';
import { refusing } from '../documents/parser';
import { findView } from '../views/views';
import { and, invalidQuery, isAll, parseFind, parseName, type Condition } from '../query/language/filter';
import { parseSort, type SortTerm } from '../query/plan/order';
import { conditionOfText, parametersByName, take } from '../query/language/url-filter';
import { AppDatabases, type SharedDatabases } from '../query/execute/read-scheduler';
import { FIELD_NOT_INDEXED, readDocuments, withFreshSource, type ReadOptions } from '../query/execute/read-page';
import {
  bodyDepthMax,
  needsKey,
  numberOfText,
  parseCount,
  parseCursor,
  parseLimit,
  parseOffset,
  parseSelect,
  parseSortList,
  refuseUnknown,
} from '../query/language/paging';
import { documentsOf, rowsOfView, typeOf, type Source } from '../query/plan/relation';
import { findApp } from '../catalog/app';

const listFields = new Set(
  'root find select limit offset cursor sortBy sortDirection sort include_history count'.split(' '),
);

/**
 * Answers `POST /list` from the body as it came: `{root: "app::collection or view", find, select, limit, offset, sortBy,
 * sortDirection, sort, include_history, count, cursor}`. Latest versions, soft-deleted ones too. Throws FORBIDDEN for another
 * app's root, COLLECTION_NOT_FOUND, MALFORMED_JSON, INVALID_QUERY, INVALID_CURSOR, LIMIT_EXCEEDED.
 */
export async function listDocuments(
  db: ReadContext,
  request: { appId: string; body: Buffer },
  call: Pick<Call, 'signal'>,
): Promise<Buffer> {
  const body = refusing(() => readJson(request.body, { maxDepth: bodyDepthMax }));
  if (!(body instanceof Map)) throw invalidQuery('body', 'must be an object');
  const root = body.get('root');
  if (typeof root !== 'string') throw invalidQuery('root', 'must be a string, app_id::collection');
  const separator = root.indexOf('::');
  if (separator < 0) throw invalidQuery('root', 'must have the form app_id::collection');
  const name = root.slice(separator + 2);
  if (!isName(name)) throw invalidQuery('root', `the collection or view ${nameRule}`);
  if (root.slice(0, separator) !== request.appId) throw forbidden('The key is for another app');

  refuseUnknown(body.keys(), listFields);
  const includeHistory = body.get('include_history') ?? false;
  if (typeof includeHistory !== 'boolean') throw invalidQuery('include_history', 'must be true or false');
  const offset = parseOffset(body.get('offset'));
  const options = {
    find: parseFind(body.get('find')),
    projection: parseSelect(body.get('select')),
    sort: listSort(body),
    limit: parseLimit(body.get('limit')),
    offset,
    cursor: parseCursor(body.get('cursor'), offset),
    count: parseCount(body.get('count')),
  };
  return withFreshSource(async (isRepeated) => {
    const source = await findRoot(db, request.appId, name, includeHistory, isRepeated || isAll(options.find));
    const reader = { appId: request.appId, mayReadPrivate: true };
    return readDocuments(new AppDatabases(db, reader, call.signal), source, options);
  });
}

function listSort(body: ReadonlyMap<string, unknown>): SortTerm[] {
  const direction = body.get('sortDirection') ?? 'ascending';
  if (direction !== 'ascending' && direction !== 'descending') {
    throw invalidQuery('sortDirection', 'must be ascending or descending');
  }
  const sortBy = body.get('sortBy') ?? null;
  const sort = parseSortList((body.get('sort') ?? null) as Parameters<typeof parseSortList>[0]);
  if (sortBy === null) return sort;
  if (typeof sortBy !== 'string') throw invalidQuery('sortBy', 'must be the name of a field');
  if (sort.length > 0) throw invalidQuery('sortBy', 'cannot stand beside sort');
  return parseSort([sortBy], 'sortBy').map(({ path, descending }) => ({
    path,
    descending: descending !== (direction === 'descending'),
  }));
}

/** What a read needs: the databases, and the handles that were looked up lately. */
export interface ReadContext extends SharedDatabases {
  readers: ReaderCache;
}

/** The handle of a collection: as it is now, where its counters are part of the answer, else as it was lately. */
export function handleOf(
  db: ReadContext,
  appId: string,
  name: string,
  isFresh: boolean,
): Promise<CollectionRef | undefined> {
  return isFresh ? db.readers.getFresh(appId, name) : db.readers.get(appId, name);
}

async function findRoot(
  db: ReadContext,
  appId: string,
  name: string,
  includeHistory: boolean,
  isFresh: boolean,
): Promise<Source> {
  const handle = await handleOf(db, appId, name, isFresh);
  if (handle) return documentsOf(handle, { includeHistory, includeDeleted: true });
  const view = await findView(db.pool, await findApp(db.pool, appId), name);
  if (!view) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  return rowsOfView(view);
}

/**
 * Answers endpoint 3: each parameter beside the reserved ones is a filter on an indexed field. Soft-deleted documents
 * are left out. Throws COLLECTION_NOT_FOUND, UNAUTHENTICATED for a private collection, FIELD_NOT_INDEXED.
 */
export async function readCollection(
  db: ReadContext,
  request: ReadRequest,
  call: Pick<Call, 'signal'>,
): Promise<Buffer> {
  const isFiltered = request.parameters.some(({ name }) => !reservedParameters.has(name));
  return withFreshSource(async (isRepeated) => {
    const handle = await handleOf(db, request.appId, request.name, isRepeated || !isFiltered);
    if (!handle) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${request.name}`);
    if (handle.readAccess === 'private' && !request.mayReadPrivate) throw needsKey('collection');
    const source = documentsOf(handle, { includeHistory: false, includeDeleted: false });
    return readDocuments(new AppDatabases(db, request, call.signal), source, urlQuery(handle, request));
  });
}

function urlQuery(handle: CollectionRef, request: ReadRequest): ReadOptions {
  const parameters = parametersByName(request.parameters);
  const offset = parseOffset(numberOfText(take(parameters, 'offset')));
  const sort = parseSortList(take(parameters, 'sort'));
  for (const { path } of sort) assertIndexed(handle, path.join('.'), 'sort');
  const projection = parseSelect(take(parameters, 'select'));
  const limit = parseLimit(numberOfText(take(parameters, 'limit')));
  const cursor = parseCursor(take(parameters, 'cursor'), offset);
  const count = parseCount(take(parameters, 'count'));
  const conditions: Condition[] = [];
  for (const [name, value] of parameters) {
    const { path, operator = 'is' } = fieldOf(handle, name);
    assertIndexed(handle, path.join('.'), name);
    conditions.push(conditionOfText(path, operator, value, typeOf(handle, path), name));
  }
  return { find: and(...conditions), projection, sort, limit, offset, cursor, count };
}

/** Parameters of endpoint 3 that are no filters. */
const reservedParameters = new Set(['select', 'sort', 'limit', 'offset', 'cursor', 'count']);

/** A name that is no path cannot be an indexed field either, and is refused as such. */
function fieldOf(handle: CollectionRef, name: string): ReturnType<typeof parseName> {
  if (name === '' || name.split('.').includes('')) assertIndexed(handle, name, name);
  return parseName(name, name);
}

const indexedFields = new WeakMap<CollectionRef, ReadonlySet<string>>();

function indexedFieldsOf(handle: CollectionRef): ReadonlySet<string> {
  let fields = indexedFields.get(handle);
  if (!fields) {
    const usable = handle.indexes.filter(({ status }) => status !== 'failed');
    fields = new Set(['id', ...usable.map(({ fieldName }) => fieldName)]);
    indexedFields.set(handle, fields);
  }
  return fields;
}

function assertIndexed(handle: CollectionRef, field: string, at: string): void {
  const indexed = indexedFieldsOf(handle);
  if (indexed.has(field)) return;
  throw invalid(
    `${field} is not an indexed field of ${handle.name}`,
    { [at]: [`names no indexed field: ${field}`], indexed_fields: [...indexed] },
    FIELD_NOT_INDEXED,
  );
}
