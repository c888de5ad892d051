import type { Condition } from '../../query/language/condition';
import { invalidQuery } from '../../query/language/query-error';
import type { ViewQuery } from './view-query';

/** Live views that one collection may have. */
export const liveViewsMax = 16;

const advice = 'make it lazy';

/** Throws INVALID_QUERY with the place and the reason where a view cannot follow each write. */
export function assertLiveQuery({ joins, find }: ViewQuery): void {
  if (joins[0]) {
    throw invalidQuery(
      `query.join.${joins[0].alias}`,
      `cannot be kept up by a live view, which has one source: ${advice}`,
    );
  }
  const rarely = changesWithout(find);
  if (rarely !== undefined) {
    throw invalidQuery(
      'query.find',
      `of a live view cannot use ${rarely}, whose meaning changes without a write: ${advice}`,
    );
  }
}

/** The operator of a condition that may become true or false while no document changes. */
function changesWithout(condition: Condition): string | undefined {
  switch (condition.kind) {
    case 'and':
    case 'or':
    case 'none':
      return condition.conditions.map(changesWithout).find((found) => found !== undefined);
    case 'dataset':
      return '$inDataset';
    case 'country':
      return '$inCountry';
    case 'search':
      return '$search';
    default:
      return undefined;
  }
}
