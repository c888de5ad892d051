import type { Condition, ConditionOf, Path } from '../language/condition';
import type { Join } from '../language/joins';
import { isIdPath, type Relation } from './relation';

/** A join with the collection that it reads. */
export interface JoinTarget {
  join: Join;
  /** The number of the join in the query, from 1. The alias of the relation contains it. */
  number: number;
  relation: Relation;
  joins: readonly JoinTarget[];
}

/**
 * How a join finds its records:
 *
 * - `index`: by one look-up for each record of the level above.
 * - `scan`: its collection is scanned once for the page, and hashed by `hashed` where one of its conditions allows
 *   that.
 */
export type JoinAccess =
  | {
      method: 'index';
      index: string;
      /**
       * The condition on the last column of the index, where all others are equalities too: so it has the order of the
       * ids.
       */
      ordered?: ConditionOf<'reference'> | undefined;
      /** Whether few records are expected and they are not in the order of their ids. */
      isUnordered?: boolean;
    }
  | { method: 'scan'; hashed: ConditionOf<'reference'> | undefined };

/** How the records of a join are found. */
export interface JoinPlan extends Omit<JoinTarget, 'joins'> {
  access: JoinAccess;
  /**
   * Whether it or a join in it is a scan: then its records are collected for the whole page before they are grouped.
   */
  isCollected: boolean;
  joins: readonly JoinPlan[];
}

/** A join as `explain` shows it: with the index that serves it, or as a scan. */
export interface JoinDescription {
  alias: string;
  index?: string;
  scan?: true;
  joins?: JoinDescription[];
}

export function planJoins(targets: readonly JoinTarget[]): JoinPlan[] {
  return targets.map((target) => {
    const joins = planJoins(target.joins);
    const access = accessOf(target.relation, conjunctsOf(target.join.find));
    const isCollected = access.method === 'scan' || joins.some((inner) => inner.isCollected);
    return { ...target, joins, access, isCollected };
  });
}

export function describeJoins(plans: readonly JoinPlan[]): JoinDescription[] {
  return plans.map(({ join, access, joins }) => ({
    alias: join.alias,
    ...(access.method === 'index' ? { index: access.index } : { scan: true }),
    ...(joins.length > 0 ? { joins: describeJoins(joins) } : {}),
  }));
}

/**
 * The field with the id of the one document that a join looks up, where its `find` is that reference alone; undefined
 * for any other join. Such a join costs the same for every record.
 */
export function referenceToId({ join, relation }: JoinTarget): Path | undefined {
  const [condition, ...others] = conjunctsOf(join.find);
  if (join.many || others.length > 0 || condition?.kind !== 'reference' || condition.comparison !== 'is')
    return undefined;
  return isIdPath(relation, condition.path) ? condition.to : undefined;
}

/**
 * How many documents joins look up for a record, each by its id; undefined where one of them finds documents otherwise.
 */
export function lookUpCount(joins: readonly JoinTarget[]): number | undefined {
  let count = 0;
  for (const target of joins) {
    const inner = referenceToId(target) && lookUpCount(target.joins);
    if (inner === undefined) return undefined;
    count += 1 + inner;
  }
  return count;
}

/** The conditions that all records of a join meet. */
export const conjunctsOf = (find: Condition): readonly Condition[] =>
  find.kind === 'and' ? find.conditions.flatMap(conjunctsOf) : [find];

function accessOf(relation: Relation, conjuncts: readonly Condition[]): JoinAccess {
  const references = conjuncts.filter((condition) => condition.kind === 'reference');
  const byEqualities = indexOfEqualities(relation, conjuncts, references);
  if (byEqualities) return byEqualities;
  const isSet = ({ comparison }: ConditionOf<'reference'>) => comparison === 'is' || comparison === 'in';
  for (const reference of [...references.filter(isSet), ...references.filter((other) => !isSet(other))]) {
    const index = indexOf(relation, reference);
    if (index !== undefined) return { method: 'index', index, isUnordered: reference.comparison === 'in' };
    if (isSet(reference) && !references.some((other) => isSet(other) && indexOf(relation, other) !== undefined)) {
      return { method: 'scan', hashed: reference };
    }
  }
  if (conjuncts.length === 0) return { method: 'index', index: 'id' };
  for (const condition of conjuncts) {
    const index = indexOf(relation, condition);
    if (index !== undefined) return { method: 'index', index };
  }
  return { method: 'scan', hashed: undefined };
}

/** The index all of whose fields have one value for each record above; of several the one with the most fields. */
function indexOfEqualities(
  relation: Relation,
  conjuncts: readonly Condition[],
  references: ReadonlyArray<ConditionOf<'reference'>>,
): JoinAccess | undefined {
  const equal = new Set<string>();
  const referring = new Map<string, ConditionOf<'reference'>>();
  for (const condition of conjuncts) {
    if (condition.kind === 'is' || condition.kind === 'empty') equal.add(condition.path.join('.'));
  }
  for (const condition of references) {
    const name = condition.path.join('.');
    if (condition.comparison !== 'is') continue;
    if (relation.hasIdColumn && name === 'id') return { method: 'index', index: 'id' };
    if (!equal.has(name)) referring.set(name, condition);
    equal.add(name);
  }
  let best: Relation['indexes'][number] | undefined;
  for (const index of relation.indexes) {
    const serves =
      index.fields.every((field) => equal.has(field)) && index.fields.some((field) => referring.has(field));
    if (serves && (!best || index.fields.length > best.fields.length)) best = index;
  }
  return best && { method: 'index', index: best.name, ordered: referring.get(best.fields.at(-1)!) };
}

/** The name of an index that finds the records that meet a condition. */
function indexOf(relation: Relation, condition: Condition): string | undefined {
  switch (condition.kind) {
    case 'is':
    case 'in':
    case 'empty':
    case 'range':
    case 'reference':
      break;
    case 'text':
      if (condition.match === 'startsWith') break;
      return undefined;
    default:
      return undefined;
  }
  const name = condition.path.join('.');
  if (relation.hasIdColumn && name === 'id') return 'id';
  return relation.indexes.find(({ fields }) => fields[0] === name)?.name;
}
