import type { Call } from '@granary/shared/rpc/types';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import { and, type Condition } from '../query/language/condition';
import { parseFindAndSelect } from '../query/language/joined-query';
import { isOperator } from '../query/language/value-operators';
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
import { viewRelation } from '../query/plan/relation';
import { AppDatabases } from '../query/execute/read-scheduler';
import type { ReadContext } from './read-context';
import { resolveJoins } from './resolve-joins';
import { requireView } from '../views/view';
import { readDocuments, withFreshSource } from '../query/execute/read-page';

/**
 * Answers endpoint 8: `filter`, `select`, `sort`, `limit`, `offset` and the variables of the view. Throws
 * VIEW_NOT_FOUND, UNAUTHENTICATED for a private view, and for a parameter that the view does not know.
 */
export async function readView(db: ReadContext, request: ReadRequest, call: Pick<Call, 'signal'>): Promise<Buffer> {
  return await withFreshSource(async (isRepeated) => {
    const view = await requireView(db.pool, request.appId, request.name);
    if (view.readAccess === 'private' && !request.mayReadPrivate) throw needsKey('view');
    const parameters = parametersByName(request.parameters);
    const offset = parseOffset(numberOfText(take(parameters, 'offset')));
    const cursor = parseCursor(take(parameters, 'cursor'), offset);
    const filter = take(parameters, 'filter');
    const conditions: Condition[] = [];
    const find = filter === undefined || filter === '' ? null : readJsonText(Buffer.from(filter), 'filter');
    const query = parseFindAndSelect(find, take(parameters, 'select'), { find: 'filter', select: 'select' });
    conditions.push(query.find);
    const options = {
      projection: query.projection,
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
    const joined = await resolveJoins(db, request, query, { includeDeleted: false, isFresh: isRepeated });
    return await readDocuments(databases, viewRelation(view), { ...options, joined, find: and(...conditions) }, more);
  });
}
