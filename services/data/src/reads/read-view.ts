import type { Call } from '@granary/shared/rpc/types';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { and, type Condition } from '../query/language/condition';
import { parseFind } from '../query/language/filter';
import { isOperator } from '../query/language/value-operators';
import { conditionOfText, parametersByName, refused, take } from '../query/language/url-filter';
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
} from '../query/language/paging';
import { parseVariables } from '../views/variables';
import { viewRelation } from '../query/plan/relation';
import { AppDatabases, type SharedDatabases } from '../query/execute/read-scheduler';
import { requireView } from '../views/view';
import { readDocuments, withFreshSource } from '../query/execute/read-page';

/**
 * Answers endpoint 8: `filter`, `select`, `sort`, `limit`, `offset` and the variables of the view. Throws
 * VIEW_NOT_FOUND, UNAUTHENTICATED for a private view, and for a parameter that the view does not know.
 */
export async function readView(db: SharedDatabases, request: ReadRequest, call: Pick<Call, 'signal'>): Promise<Buffer> {
  return await withFreshSource(async () => {
    const view = await requireView(db.pool, request.appId, request.name);
    if (view.readAccess === 'private' && !request.mayReadPrivate) throw needsKey('view');
    const parameters = parametersByName(request.parameters);
    const offset = parseOffset(numberOfText(take(parameters, 'offset')));
    const cursor = parseCursor(take(parameters, 'cursor'), offset);
    const filter = take(parameters, 'filter');
    const conditions: Condition[] = [];
    if (filter !== undefined && filter !== '') {
      conditions.push(parseFind(readJsonText(Buffer.from(filter), 'filter'), 'filter'));
    }
    const options = {
      projection: parseSelect(take(parameters, 'select')),
      sort: parseSortList(take(parameters, 'sort')),
      limit: parseLimit(numberOfText(take(parameters, 'limit'))),
      offset,
      cursor,
      count: parseCount(take(parameters, 'count')),
    };
    const variables = parseVariables(view.variablesText);
    for (const [name, value] of parameters) {
      const variable = variables.get(name);
      if (!variable) throw refused(name, `is no variable of the view ${view.name}`);
      conditions.push(conditionOfText(variable.path, variable.operator ?? isOperator, value, 'any', name));
    }
    const refreshed = JSON.stringify(view.refreshedAt?.toISOString() ?? null);
    const more = `,"refreshed_at":${refreshed},"refresh_mode":${JSON.stringify(view.refreshMode)}`;
    const databases = new AppDatabases(db, request, call.signal);
    return await readDocuments(databases, viewRelation(view), { ...options, find: and(...conditions) }, more);
  });
}
