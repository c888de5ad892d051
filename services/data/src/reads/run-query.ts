import type { Call } from '@granary/shared/rpc/types';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { notFound } from '@granary/shared/errors';
import { documentsRelation, presentDocuments, typeOf } from '../query/plan/relation';
import { isAll, type Condition } from '../query/language/condition';
import { withConditions } from '../query/language/filter';
import { allJoins } from '../query/language/joins';
import { hasReferences } from '../query/language/references';
import { isOperator } from '../query/language/value-operators';
import { queryNotFound, type QueryLookup } from '../queries/saved-queries';
import { parsePageLimit, type PredefinedQuery, type QueryParameter } from '../queries/definition';
import { lookUpCollection, type ReadContext } from './read-context';
import type { ReadPrice } from '../catalog/read-price';
import { readPriced } from './priced-read';
import { touchedPrices } from './touched-prices';
import { noView, readCounted, readTagged, statedDocuments } from './page-tag';
import { lookUpJoined, resolveJoins } from './resolve-joins';
import { conditionOfText, parametersByName, refused, take } from '../query/language/url-filter';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { needsKey, numberOfText, parseCount, parseCursor, parseOffset } from '../query/language/paging';
import { AppDatabases } from '../query/execute/read-scheduler';
import { readPage, withFreshSource } from '../query/execute/read-page';

/**
 * Executes a predefined query, its newest version or that of `version`, with the parameters of a URL: those of the
 * query, `limit` (no more than the query's own), `offset`, `cursor` and `count`. Throws QUERY_NOT_FOUND,
 * UNAUTHENTICATED where the query or its collection is private, VALIDATION_FAILED for a parameter that is required and
 * missing, or unknown.
 */
export async function runQuery(
  db: ReadContext & { queries: QueryLookup },
  request: ReadRequest,
  call: Pick<Call, 'signal'>,
): Promise<PageResponse> {
  return await withFreshSource(async (isRepeated) => {
    if (isRepeated) db.queries.forget(request.appId);
    const version = request.parameters.find(({ name }) => name === 'version')?.value;
    const query = await db.queries.get(request.appId, request.name, version);
    if (!query) throw queryNotFound(request.name, version);
    const { projection, sort, parameters } = query;
    // Without a condition the counters of the collection are part of the response.
    const isFiltered = !isAll(query.find) || request.parameters.some((given) => parameters.filters.has(given.name));
    const isStateFirst = request.ifNoneMatch !== undefined || query.joins.length > 0;
    const collection = await sourceOf(db, request, query, isRepeated || (!isFiltered && !isStateFirst));

    const valuesByName = parametersByName(request.parameters);
    valuesByName.delete('version');
    const limit = limitOf(query, valuesByName);
    const offset = parseOffset(numberOfText(take(valuesByName, 'offset')));
    const cursor = parseCursor(take(valuesByName, 'cursor'), offset);
    const count = parseCount(take(valuesByName, 'count'));
    const find = withConditions(query, conditionsOf(collection, parameters.filters, valuesByName), 'parameters');
    const options = { find, projection, sort, limit, offset, cursor, count };
    const joining = { includeDeleted: false, isFresh: isRepeated, shown: query.shownCollections };
    const joins = query.joins.length === 0 ? noJoins : await lookUpJoined(db, request, query.joins, joining);
    const sources = {
      ...noView,
      appNumber: collection.appNumber,
      collections: joins.size === 0 ? [collection] : [collection, ...joins.values()],
      hasReferences: hasReferences(find) || allJoins(query.joins).some((join) => hasReferences(join.find)),
      definitionRevision: query.revision,
    };
    const readAs = (reader: ReadRequest) =>
      readTagged(db, reader, sources, async (isAfterStates) => {
        const databases = new AppDatabases(db, request, call.signal);
        const joined = await resolveJoins(db, request, query, {
          ...joining,
          collections: joins,
          parent: documentsRelation(collection, presentDocuments),
        });
        const page = { ...options, joined };
        if (isFiltered) {
          const shown = joined ? presentDocuments : statedDocuments;
          return await readPage(databases, documentsRelation(collection, shown), page);
        }
        const counted = isAfterStates ? await sourceOf(db, request, query, true) : collection;
        return await readCounted(databases, counted, page);
      });
    const prices = request.mayReadPrivate ? noPrices : pricesOfQuery(request.appId, query, find, collection, joins);
    return await (prices.length === 0 ? readAs(request) : readPriced(prices, request, readAs));
  });
}

const noPrices: readonly ReadPrice[] = [];

/** A query has its own price, or those of what it reads. */
function pricesOfQuery(
  appId: string,
  query: PredefinedQuery,
  find: Condition,
  collection: CollectionRef,
  joined: ReadonlyMap<string, CollectionRef>,
): readonly ReadPrice[] {
  if (query.readPrices) return query.readPrices;
  if (!collection.readPrices && joined.size === 0) return noPrices;
  return touchedPrices(appId, collection.readPrices, { ...query, find }, joined);
}

async function sourceOf(
  db: ReadContext,
  request: ReadRequest,
  query: PredefinedQuery,
  isFresh: boolean,
): Promise<CollectionRef> {
  const { sourceCollection } = query;
  const collection = await lookUpCollection(db, request.appId, sourceCollection, isFresh);
  if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${sourceCollection}`);
  const isPrivate = query.isPrivate || (collection.readAccess === 'private' && !query.showsPrivate);
  if (isPrivate && !request.mayReadPrivate) throw needsKey('query');
  return collection;
}

const noJoins: ReadonlyMap<string, CollectionRef> = new Map();

/** The limit of the page: from the parameter that stands for it, from `limit`, or the query's own. */
function limitOf({ limit: pageMax, parameters }: PredefinedQuery, valuesByName: Map<string, string>): number {
  const { name = 'limit', fallback, isRequired = false } = parameters.limit ?? {};
  const [ownLimit, usual] = [take(valuesByName, name), take(valuesByName, 'limit')];
  if (ownLimit !== undefined && usual !== undefined) throw refused(name, 'cannot stand beside limit');
  const text = ownLimit ?? usual;
  if (text === undefined && fallback !== undefined) return fallback;
  if (text === undefined && isRequired) throw refused(name, 'is required');
  return parsePageLimit(numberOfText(text), pageMax, text === usual ? 'limit' : name);
}

function conditionsOf(
  collection: CollectionRef,
  declared: ReadonlyMap<string, QueryParameter>,
  valuesByName: ReadonlyMap<string, string>,
): Condition[] {
  for (const name of valuesByName.keys()) if (!declared.has(name)) throw refused(name, 'is not known to this query');
  const conditions: Condition[] = [];
  for (const { name, target, fallback, isRequired } of declared.values()) {
    const { path, operator = isOperator } = target;
    const text = valuesByName.get(name) ?? (typeof fallback === 'string' ? fallback : undefined);
    if (text !== undefined) conditions.push(conditionOfText(path, operator, text, typeOf(collection, path), name));
    else if (fallback !== undefined) conditions.push(operator.parse(path, fallback, name));
    else if (isRequired) throw refused(name, 'is required');
  }
  return conditions;
}
