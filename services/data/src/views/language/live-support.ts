import { invalidQuery } from '../../query/language/query-error';
import { unstableOperator } from '../../query/language/unstable-operator';
import { isByPlace } from './aggregates';
import type { ViewQuery } from './view-query';

/** Live views that one collection may have. */
export const liveViewsMax = 16;

const advice = 'make it lazy';

/** Throws INVALID_QUERY with the place and the reason where a view cannot follow each write. */
export function assertLiveQuery(query: ViewQuery): void {
  assertLiveJoin(query);
  const { find } = query;
  const rarely = unstableOperator(find);
  if (rarely !== undefined) {
    throw invalidQuery(
      'query.find',
      `of a live view cannot use ${rarely}, whose meaning changes without a write: ${advice}`,
    );
  }
}

function assertLiveJoin({ base, joins, groups }: ViewQuery): void {
  const [only, second] = joins;
  if (!only) return;
  if (second) {
    throw invalidQuery(`query.join.${second.alias}`, `cannot be kept up by a live view, which has one join: ${advice}`);
  }
  if (only.collection === base) {
    throw invalidQuery(
      `query.join.${only.alias}.collection`,
      `cannot be the base of a live view, which does not join a collection with itself: ${advice}`,
    );
  }
  const placed = groups?.aggregates.find(isByPlace);
  if (placed) {
    throw invalidQuery(
      `query.aggregate.${placed.alias}`,
      `cannot be $${placed.operator} over the join of a live view: ${advice}`,
    );
  }
}
