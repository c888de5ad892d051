import type { Condition } from './condition';

/** The operator of a condition that may become true or false while no document changes; undefined where none may. */
export function unstableOperator(condition: Condition): string | undefined {
  switch (condition.kind) {
    case 'and':
    case 'or':
    case 'none':
      return condition.conditions.map(unstableOperator).find((operator) => operator !== undefined);
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
