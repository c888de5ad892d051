import { addressPrefixes } from '../../values/network';
import type { Condition } from '../language/condition';
import { isIdPath, type Relation } from './relation';

/** Tells how an index narrows a field by a condition: to one key, to a range of keys, or (undefined) not at all. */
export function keyedAs(condition: Condition): 'equal' | 'range' | undefined {
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
    case 'regexp':
      return condition.regexp.prefix === '' ? undefined : 'range';
    case 'network':
      return condition.isWithin && addressPrefixes(condition.networks) ? 'range' : undefined;
    default:
      return undefined;
  }
}

/** Conditions of which the primary key does not find the rows. */
const byPrefix: ReadonlyArray<Condition['kind']> = ['text', 'regexp', 'network'];

/** Whether an index finds the rows that a condition may hold for. */
export function isNarrowedBy(relation: Relation, condition: Condition): boolean {
  switch (condition.kind) {
    case 'and':
      return condition.conditions.some((part) => isNarrowedBy(relation, part));
    case 'or':
      return condition.conditions.every((part) => isNarrowedBy(relation, part));
    case 'search':
      // A search without its full-text index would have been refused.
      return true;
    default:
      if (keyedAs(condition) === undefined || !('path' in condition)) return false;
      if (isIdPath(relation, condition.path)) return !byPrefix.includes(condition.kind);
      return relation.indexes.some(({ fields }) => fields[0] === condition.path.join('.'));
  }
}
