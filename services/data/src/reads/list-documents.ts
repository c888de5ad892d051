import type { Call } from '@granary/shared/rpc/types';
import { forbidden, notFound } from '@granary/shared/errors';
import { readJson, type JsonObject } from '@granary/shared/json/value';
import { nameRule } from '@granary/shared/names';
import { documentsRelation, type Relation } from '../query/plan/relation';
import { readableView } from './view-source';
import { findView } from '../views/view';
import { lookUpCollection, type ReadContext } from './read-context';
import { resolveJoins } from './resolve-joins';
import { parseFindAndSelect, type FindAndSelect } from '../query/language/joined-query';
import { translateRequestErrors } from '../json/request-errors';
import { isName } from '../catalog/names';
import {
  bodyDepthMax,
  parseCount,
  parseCursor,
  parseLimit,
  parseOffset,
  parseSortList,
  refuseUnknown,
} from '../query/language/paging';
import { findApp } from '../catalog/app';
import { isAll } from '../query/language/condition';
import { invalidQuery } from '../query/language/query-error';
import { COLLECTION_NOT_FOUND } from '../catalog/collection';
import { AppDatabases } from '../query/execute/read-scheduler';
import { readDocuments, withFreshSource, type ReadOptions } from '../query/execute/read-page';
import { parseSort, type SortTerm } from '../query/language/sort';

const listFields = new Set(
  'root find select limit offset cursor sortBy sortDirection sort include_history count'.split(' '),
);

/**
 * Answers `POST /list` from the body as it came:
 * `{root: "app::collection or view", find, select, limit, offset, sortBy, sortDirection, sort, include_history, count,
 * cursor}`.
 * Latest versions, soft-deleted ones too. Throws FORBIDDEN for another app's root, COLLECTION_NOT_FOUND,
 * MALFORMED_JSON, INVALID_QUERY, INVALID_CURSOR, LIMIT_EXCEEDED.
 */
export async function listDocuments(
  db: ReadContext,
  request: { appId: string; body: Buffer },
  call: Pick<Call, 'signal'>,
): Promise<Buffer> {
  const body = translateRequestErrors(() => readJson(request.body, { maxDepth: bodyDepthMax }));
  if (!(body instanceof Map)) throw invalidQuery('body', 'must be an object');
  const root = body.get('root');
  if (typeof root !== 'string') throw invalidQuery('root', 'must be a string, app_id::collection');
  const separator = root.indexOf('::');
  if (separator < 0) throw invalidQuery('root', 'must have the form app_id::collection');
  const name = root.slice(separator + 2);
  if (!isName(name)) throw invalidQuery('root', `the collection or view ${nameRule}`);
  if (root.slice(0, separator) !== request.appId) throw forbidden('The key is for another app');

  const { includeHistory, ...options } = parseListQuery(body);
  return await withFreshSource(async (isRepeated) => {
    const { relation, sort } = await findRoot(
      db,
      request.appId,
      name,
      includeHistory,
      isRepeated || isAll(options.find),
    );
    const reader = { appId: request.appId, mayReadPrivate: true };
    const joined = await resolveJoins(db, reader, options, {
      includeDeleted: true,
      isFresh: isRepeated,
      parent: relation,
    });
    const page = { ...options, ...(options.sort.length === 0 && { sort }), joined };
    return await readDocuments(new AppDatabases(db, reader, call.signal), relation, page);
  });
}

/** Parses the body of a request for a page. Throws INVALID_QUERY, INVALID_CURSOR, LIMIT_EXCEEDED. */
export function parseListQuery(body: JsonObject): ReadOptions & FindAndSelect & { includeHistory: boolean } {
  refuseUnknown(body.keys(), listFields);
  const includeHistory = body.get('include_history') ?? false;
  if (typeof includeHistory !== 'boolean') throw invalidQuery('include_history', 'must be true or false');
  const offset = parseOffset(body.get('offset'));
  return {
    includeHistory,
    ...parseFindAndSelect(body.get('find'), body.get('select')),
    sort: listSort(body),
    limit: parseLimit(body.get('limit')),
    offset,
    cursor: parseCursor(body.get('cursor'), offset),
    count: parseCount(body.get('count')),
  };
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

/** The relation of a page, and its order where the request names none. */
export interface Root {
  relation: Relation;
  sort: readonly SortTerm[];
}

/** The documents of a collection, or the rows of a view, by name. Throws COLLECTION_NOT_FOUND. */
export async function findRoot(
  db: ReadContext,
  appId: string,
  name: string,
  includeHistory: boolean,
  isFresh: boolean,
): Promise<Root> {
  const collection = await lookUpCollection(db, appId, name, isFresh);
  if (collection)
    return { relation: documentsRelation(collection, { includeHistory, includeDeleted: true }), sort: [] };
  const view = await findView(db.pool, await findApp(db.pool, appId), name);
  if (!view) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  return readableView(db, view);
}
