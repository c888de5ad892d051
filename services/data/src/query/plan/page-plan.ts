import { keyText } from '../../values/ordered-key';
import type { Condition } from '../language/condition';
import type { SortTerm } from '../language/sort';
import { pathOfEqualities, pathOfOrder, type AccessPath } from './access-path';
import type { Position } from './cursor';
import { equalityKeys, exactKey, onlyEqualities, type Equality } from './equalities';
import type { JoinPlan } from './join-plan';
import { termPositionsOf, type TermPosition } from './term-position';
import type { Relation } from './relation';
import { firstScanStep, type ScanStep } from './scan';

/** The parameters of a requested page. */
export interface PageRequest {
  find: Condition;
  sort: readonly SortTerm[];
  limit: number;
  offset: number;
  /** The page begins behind this position in its order; `offset` is 0 then. */
  after?: Position | undefined;
}

/** How one page is read: what query/sql makes its statement of. */
export interface PagePlan {
  relation: Relation;
  filter: Condition;
  /** How its rows are found and put in order, and by which index. */
  access: AccessPath;
  /** The values of the fixed columns of the index: texts of keys; for `id` the id. */
  fixed: readonly string[];
  after: Position | undefined;
  /** The position after which the page begins, by each term of the order; none for the first page. */
  positions: readonly TermPosition[];
  limit: number;
  offset: number;
  /** The first statement where no index narrows the filter; undefined for any other page. */
  scan: ScanStep | undefined;
  /** How the records that are joined to the rows are found; undefined where nothing is joined. */
  joins?: readonly JoinPlan[] | undefined;
}

/** Rows before a page that one index may give alone, and rows of the page. */
const offsetMax = 1_000;
const limitMax = 1_001;

const noPositions: readonly TermPosition[] = [];

/** Chooses how a page is read. Every read of pages goes through here. */
export function planPage(relation: Relation, request: PageRequest): PagePlan {
  const { find, after, limit, offset } = request;
  const equalities = onlyEqualities(find);
  let access: AccessPath;
  if (equalities) {
    access = pathOfEqualities(relation, equalities, request);
    if ((offset > offsetMax || limit > limitMax) && isByIndexAlone(access)) access = access.alternative!;
  } else {
    const fixed = equalityKeys(relation, find);
    access = pathOfOrder(relation, (field) => fixed.has(field), request);
  }
  return bind({ relation, filter: find, after, limit, offset }, access, equalities);
}

/** Whether one index gives the page alone, over the connections of index reads. */
export const isByIndexAlone = ({ method }: AccessPath): boolean => method === 'index' || method === 'id';

/** How the same page is read where the rows have shown that the plan cannot give it, or its statement took too long. */
export function alternativePlan(plan: PagePlan): PagePlan | undefined {
  const { alternative } = plan.access;
  return alternative && bind(plan, alternative, undefined);
}

/** A plan by the first of a path and its alternatives that the values of the request allow. */
function bind(
  { relation, filter, after, limit, offset }: Pick<PagePlan, 'relation' | 'filter' | 'after' | 'limit' | 'offset'>,
  path: AccessPath,
  equalities: readonly Equality[] | undefined,
): PagePlan {
  let access = path;
  for (;;) {
    const fixed = fixedOf(relation, access, filter, equalities);
    const positions = after && access.method !== 'sort' ? termPositionsOf(relation, access.order, after) : noPositions;
    const isPositioned = access.method === 'index_order_by_text' || positions.every(({ text }) => text === undefined);
    if (access.alternative === undefined || (fixed && isPositioned)) {
      const scan = access.method === 'sort' ? firstScanStep(relation, filter, access.order) : undefined;
      return { relation, filter, access, fixed: fixed ?? [], after, positions, limit, offset, scan };
    }
    access = access.alternative;
  }
}

/** The values of the fixed columns; undefined where a key does not decide whether a field has the value. */
function fixedOf(
  relation: Relation,
  { method, index, equalities: fixedBy }: AccessPath,
  filter: Condition,
  equalities: readonly Equality[] | undefined,
): string[] | undefined {
  const fixed: string[] = [];
  if (method === 'id') {
    const { value } = equalities![fixedBy[0]!]!;
    return typeof value === 'string' ? [value] : undefined;
  }
  if (method === 'index') {
    for (const equalityIndex of fixedBy) {
      const key = exactKey(relation, equalities![equalityIndex]!);
      if (!key) return undefined;
      fixed.push(keyText(key));
    }
    return fixed;
  }
  if (!index || index.fixed.length === 0) return fixed;
  const keys = equalityKeys(relation, filter);
  return index.fixed.map(({ field }) => keyText(keys.get(field)!));
}
