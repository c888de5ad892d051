import type { Condition } from '../language/condition';
import { conjuncts } from './equalities';
import type { PagePlan } from './page-plan';
import { isIdPath } from './relation';

/** Fields of a composite index, at most. */
const fieldsMax = 4;

/** What an index could do for a plan. */
export interface IndexAdvice {
  /** Whether an index narrows the matches; without one all rows are read. */
  isNarrowed: boolean;
  /** Whether the matches are sorted by fields, for no index gives their order. */
  isSorted: boolean;
  /** Whether the sort mixes directions, in which no index gives it. */
  isMixed: boolean;
  /** The fields of an index that would serve, in their order; none where there is one, or none would. */
  fields: readonly string[];
}

/** What an index narrows a field to: one key, or a range of keys. */
function keyedAs(condition: Condition): 'equal' | 'range' | undefined {
  switch (condition.kind) {
    case 'is':
    case 'empty':
      return 'equal';
    case 'in':
    case 'dataset':
    case 'range':
      return 'range';
    case 'text':
      return condition.match === 'startsWith' ? 'range' : undefined;
    default:
      return undefined;
  }
}

export function adviseIndex({ relation, access, filter }: PagePlan): IndexAdvice {
  const { order, method } = access;
  const isMixed = order.terms.some(({ descending }) => descending !== order.descending);
  const isSorted = method === 'sort' && order.terms.length > 0;
  const [equal, ranges] = [new Set<string>(), new Set<string>()];
  let isNarrowed = method !== 'sort';
  for (const condition of conjuncts(filter)) {
    // Without its full-text index it would have been refused.
    if (condition.kind === 'search') isNarrowed = true;
    const kind = keyedAs(condition);
    if (kind === undefined || !('path' in condition)) continue;
    if (isIdPath(relation, condition.path)) isNarrowed = true;
    else (kind === 'equal' ? equal : ranges).add(condition.path.join('.'));
  }
  isNarrowed ||= relation.indexes.some(({ fields }) => equal.has(fields[0]!) || ranges.has(fields[0]!));
  const sorted = isMixed ? [] : order.terms.map(({ path }) => path.join('.'));
  const last = sorted.length > 0 ? sorted : [...ranges].slice(0, 1);
  const wanted = [...new Set([...equal, ...last])].slice(0, fieldsMax);
  const isWanted = relation.kind === 'documents' && method === 'sort' && ((isSorted && !isMixed) || !isNarrowed);
  return { isNarrowed, isSorted, isMixed, fields: isWanted ? wanted : [] };
}
