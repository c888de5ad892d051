import { isExact, orderedKey } from '../../values/ordered-key';
import type { JsonValue } from '@granary/shared/json/value';
import type { Condition, Path } from '../language/condition';
import { isIdPath, type Relation } from './relation';

/** A condition that a field has one value; null stands for missing and null. */
export interface Equality {
  path: Path;
  value: JsonValue;
}

/** The conditions of a filter that is made of equalities only; none where it has none. Undefined for other filters. */
export function onlyEqualities(filter: Condition): readonly Equality[] | undefined {
  const equalities: Equality[] = [];
  for (const condition of filter.kind === 'and' ? filter.conditions : [filter]) {
    if (condition.kind === 'is') equalities.push(condition);
    else if (condition.kind === 'empty') equalities.push({ path: condition.path, value: null });
    else return undefined;
  }
  return equalities;
}

/** The conditions that every match fulfils. */
export function* conjuncts(filter: Condition): Generator<Condition> {
  if (filter.kind === 'and') for (const condition of filter.conditions) yield* conjuncts(condition);
  else yield filter;
}

/** The keys of the fields that have the same value in all matches. */
export function equalityKeys(relation: Relation, filter: Condition): ReadonlyMap<string, Buffer> {
  const fixed = new Map<string, Buffer>();
  for (const condition of conjuncts(filter)) {
    if (condition.kind !== 'is' && condition.kind !== 'empty') continue;
    if (isIdPath(relation, condition.path)) continue;
    const name = condition.path.join('.');
    fixed.set(name, orderedKey(condition.kind === 'is' ? condition.value : null, relation.dates.has(name)));
  }
  return fixed;
}

/** The key of an equality where it alone decides whether a field has the value. */
export function exactKey(relation: Relation, { path, value }: Equality): Buffer | undefined {
  const isDate = relation.dates.size > 0 && relation.dates.has(path.join('.'));
  const key = orderedKey(value, isDate);
  return isExact(key) ? key : undefined;
}
