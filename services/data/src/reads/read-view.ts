import type { Call } from '@granary/shared/rpc/types';
import type { PageResponse } from '@granary/shared/gen/granary/data/v1/PageResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import type { Condition } from '../query/language/condition';
import type { JsonValue } from '@granary/shared/json/value';
import { withConditions } from '../query/language/filter';
import { parseFindAndSelect } from '../query/language/joined-query';
import type { CollectionRef } from '../catalog/collection';
import { allJoins } from '../query/language/joins';
import { hasReferences } from '../query/language/references';
import { isOperator } from '../query/language/value-operators';
import { invalidQuery } from '../query/language/query-error';
import { conditionOfText, parametersByName, refused, take } from '../query/language/url-filter';
import {
  needsKey,
  numberOfText,
  parseCount,
  parseCursor,
  parseLimit,
  parseOffset,
  parseSortList,
  readJsonText,
} from '../query/language/paging';
import { parseVariables } from '../views/variables';
import { AppDatabases } from '../query/execute/read-scheduler';
import { lookUpCollection, type ReadContext } from './read-context';
import { readPriced } from './priced-read';
import { touchedPrices } from './touched-prices';
import { readTagged } from './page-tag';
import { lookUpJoined, resolveJoins } from './resolve-joins';
import { pricesOfView, readableView } from './view-source';
import { requireView, storedView, type ViewRef } from '../views/view';
import { readPage, withFreshSource } from '../query/execute/read-page';

/** The filter in a URL. Throws INVALID_QUERY for one that says nothing, which would show every row. */
function readFilter(text: string): JsonValue {
  const filter = text === '' ? null : readJsonText(Buffer.from(text), 'filter');
  if (filter === null) throw invalidQuery('filter', 'must be an object, as JSON text');
  return filter;
}

/**
 * Answers endpoint 8: `filter`, `select`, `sort`, `limit`, `offset` and the variables of the view. Throws
 * VIEW_NOT_FOUND, UNAUTHENTICATED for a private view, and for a parameter that the view does not know.
 */
export async function readView(
  db: ReadContext,
  request: ReadRequest,
  call: Pick<Call, 'signal'>,
): Promise<PageResponse> {
  return await withFreshSource(async (isRepeated) => {
    const view = await requireView(db.pool, request.appId, request.name);
    if (view.readAccess === 'private' && !request.mayReadPrivate) throw needsKey('view');
    const parameters = parametersByName(request.parameters);
    const offset = parseOffset(numberOfText(take(parameters, 'offset')));
    const cursor = parseCursor(take(parameters, 'cursor'), offset);
    const filter = take(parameters, 'filter');
    const conditions: Condition[] = [];
    const filterValue = filter === undefined ? null : readFilter(filter);
    const query = parseFindAndSelect(filterValue, take(parameters, 'select'), { find: 'filter', select: 'select' });
    const options = {
      projection: query.projection,
      sort: parseSortList(take(parameters, 'sort')),
      limit: parseLimit(numberOfText(take(parameters, 'limit'))),
      offset,
      cursor,
      count: parseCount(take(parameters, 'count')),
    };
    const variables = parseVariables(view.variablesText);
    const stored = storedView(view);
    const types = new Map(stored.columns.map(({ name, type }) => [name, type]));
    for (const [name, value] of parameters) {
      const variable = variables.get(name);
      if (!variable) throw refused(name, `is no variable of the view ${view.name}`);
      const { path, operator = isOperator } = variable;
      conditions.push(conditionOfText(path, operator, value, types.get(path.join('.')) ?? 'any', name));
    }
    const find = withConditions(query, conditions, 'filter');
    const refreshed = JSON.stringify(view.refreshedAt?.toISOString() ?? null);
    const more = `,"refreshed_at":${refreshed},"refresh_mode":${JSON.stringify(view.refreshMode)}`;
    const joining = { includeDeleted: false, isFresh: isRepeated };
    const joins = await lookUpJoined(db, request, query.joins, joining);
    const sources = {
      appNumber: view.appNumber,
      collections: [...joins.values(), ...(await computedFrom(db, view, isRepeated))],
      hasReferences: hasReferences(find) || allJoins(query.joins).some((join) => hasReferences(join.find)),
      viewState: view.state,
    };
    const readAs = (reader: ReadRequest) =>
      readTagged(db, reader, sources, async () => {
        const databases = new AppDatabases(db, request, call.signal);
        const { relation, sort } = await readableView(db, view);
        const joined = await resolveJoins(db, request, query, { ...joining, collections: joins, parent: relation });
        return await readPage(
          databases,
          relation,
          { ...options, ...(options.sort.length === 0 && { sort }), joined, find },
          more,
        );
      });
    if (!view.mayHavePrices || request.mayReadPrivate) return await readAs(request);
    const prices = [
      ...(await pricesOfView(db, view)),
      ...touchedPrices(request.appId, undefined, { ...query, find, sort: options.sort }, joins),
    ];
    return await (prices.length === 0 ? readAs(request) : readPriced(prices, request, readAs));
  });
}

/** The collections whose documents decide the rows of a view: of a lazy one its last refresh does. */
async function computedFrom(db: ReadContext, view: ViewRef, isFresh: boolean): Promise<CollectionRef[]> {
  if (view.refreshMode === 'lazy') return [];
  const { appId, sourceCollections } = view;
  const collections = await Promise.all(sourceCollections.map((name) => lookUpCollection(db, appId, name, isFresh)));
  return collections.filter((collection) => collection !== undefined);
}
