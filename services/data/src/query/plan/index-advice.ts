import { isTermPath } from '../../catalog/index-definition';
import type { Path } from '../language/condition';
import { conjuncts } from './equalities';
import type { JoinPlan } from './join-plan';
import { isNarrowedBy, keyedAs } from './narrowing';
import type { PagePlan } from './page-plan';
import { isIdPath, type Relation } from './relation';

/** Fields of a composite index, at most. */
const fieldsMax = 4;

/** How far indexes serve a plan, and the fields of an index that would serve it. */
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

/** Ids have their index, and those over encrypted fields are of another kind, which no advice is about. */
const isNotAdvised = (relation: Relation, path: Path): boolean => isIdPath(relation, path) || isTermPath(path);

export function adviseIndex({ relation, access, filter }: PagePlan): IndexAdvice {
  const { order, method } = access;
  const isMixed = order.terms.some(({ descending }) => descending !== order.descending);
  const isSorted = method === 'sort' && order.terms.length > 0;
  const isNarrowed = method !== 'sort' || isNarrowedBy(relation, filter);
  const [equal, ranges] = [new Set<string>(), new Set<string>()];
  for (const condition of conjuncts(filter)) {
    const kind = keyedAs(condition);
    if (kind === undefined || !('path' in condition) || isNotAdvised(relation, condition.path)) continue;
    (kind === 'equal' ? equal : ranges).add(condition.path.join('.'));
  }
  const sorted = isMixed ? [] : order.terms.map(({ path }) => path.join('.'));
  const last = sorted.length > 0 ? sorted : [...ranges].slice(0, 1);
  const advisedFields = [...new Set([...equal, ...last])].slice(0, fieldsMax);
  const isWanted = relation.kind === 'documents' && method === 'sort' && ((isSorted && !isMixed) || !isNarrowed);
  return { isNarrowed, isSorted, isMixed, fields: isWanted ? advisedFields : [] };
}

/** The joins that scan their collections, those in others too. */
export const scannedByJoins = (joins: readonly JoinPlan[]): JoinPlan[] =>
  joins.flatMap((join) => [...(join.access.method === 'scan' ? [join] : []), ...scannedByJoins(join.joins)]);

/** The fields of an index by which a join would find its records, in their order; none where no index would serve. */
export function adviseJoinIndex({ join, relation }: Pick<JoinPlan, 'join' | 'relation'>): string[] {
  const [equal, referring, others] = [new Set<string>(), new Set<string>(), new Set<string>()];
  for (const condition of conjuncts(join.find)) {
    if (!('path' in condition) || isNotAdvised(relation, condition.path)) continue;
    const name = condition.path.join('.');
    if (condition.kind === 'reference') (condition.comparison === 'is' ? referring : others).add(name);
    else if (keyedAs(condition) === 'equal') equal.add(name);
  }
  // The index gives the records of one field in the order of their ids, if the field that refers is the last one.
  if (referring.size > 0) return [...new Set([...equal, ...referring])].slice(-fieldsMax);
  return others.size > 0 ? [...others].slice(0, 1) : [...equal].slice(0, 1);
}
