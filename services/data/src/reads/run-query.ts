import type { Call } from '@granary/shared/rpc/types';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { notFound } from '@granary/shared/errors';
import { documentsRelation, typeOf } from '../query/plan/relation';
import { and, isAll, type Condition } from '../query/language/condition';
import { overLimit } from '../query/language/query-error';
import { isOperator } from '../query/language/value-operators';
import { queryNotFound } from '../queries/saved-queries';
import type { PredefinedQuery, QueryParameter } from '../queries/definition';
import { lookUpCollection, type ReadContext } from './read-context';
import { LookupCache } from '../catalog/cache';
import { conditionOfText, parametersByName, refused, take } from '../query/language/url-filter';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { needsKey, numberOfText, parseCount, parseCursor, parseLimit, parseOffset } from '../query/language/paging';
import { AppDatabases } from '../query/execute/read-scheduler';
import { readDocuments, withFreshSource } from '../query/execute/read-page';

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
    // Without a condition the counters of the collection are part of the response.
    const isFiltered = !isAll(query.find) || request.parameters.some((given) => parameters.has(given.name));
    const collection = await lookUpCollection(db, request.appId, sourceCollection, isRepeated || !isFiltered);
    if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${sourceCollection}`);
    const isPrivate = query.isPrivate || (collection.readAccess === 'private' && !query.showsPrivate);
    if (isPrivate && !request.mayReadPrivate) throw needsKey('query');

    const given = parametersByName(request.parameters);
    const limit = parseLimit(numberOfText(take(given, 'limit')), 'limit', query.limit);
    if (query.limit !== undefined && limit > query.limit)
      throw overLimit('limit', `may be at most ${query.limit} for this query`);
    const offset = parseOffset(numberOfText(take(given, 'offset')));
    const cursor = parseCursor(take(given, 'cursor'), offset);
    const count = parseCount(take(given, 'count'));
    const find = and(query.find, ...conditionsOf(collection, parameters, given));
    const source = documentsRelation(collection, { includeHistory: false, includeDeleted: false });
    const databases = new AppDatabases(db, request, call.signal);
    return readDocuments(databases, source, { find, projection, sort, limit, offset, cursor, count });
  });
}

function conditionsOf(
  collection: CollectionRef,
  declared: ReadonlyMap<string, QueryParameter>,
  given: ReadonlyMap<string, string>,
): Condition[] {
  for (const name of given.keys()) if (!declared.has(name)) throw refused(name, 'is not known to this query');
  const conditions: Condition[] = [];
  for (const { name, target, fallback, isRequired } of declared.values()) {
    const { path, operator = isOperator } = target;
    const text = given.get(name) ?? (typeof fallback === 'string' ? fallback : undefined);
    if (text !== undefined) conditions.push(conditionOfText(path, operator, text, typeOf(collection, path), name));
    else if (fallback !== undefined) conditions.push(operator.parse(path, fallback, name));
    else if (isRequired) throw refused(name, 'is required');
  }
  return conditions;
}
