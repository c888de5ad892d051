import type { FoundReferences } from '../../catalog/references';
import type { Condition } from './condition';
import { invalidQuery } from './query-error';

/** Whether a condition names something beside fields, which is looked up before it is compiled. */
export function hasReferences(condition: Condition): boolean {
  switch (condition.kind) {
    case 'and':
    case 'or':
    case 'none':
      return condition.conditions.some(hasReferences);
    default:
      return condition.kind === 'dataset' || condition.kind === 'country';
  }
}

/** The names of the data sets in a condition. */
export function datasetsOf(condition: Condition): string[] {
  switch (condition.kind) {
    case 'and':
    case 'or':
    case 'none':
      return condition.conditions.flatMap(datasetsOf);
    default:
      return condition.kind === 'dataset' ? [condition.name] : [];
  }
}

/** The condition with the tables of its data sets. Throws INVALID_QUERY for a data set or networks that are missing. */
export function withReferences(condition: Condition, references: FoundReferences): Condition {
  switch (condition.kind) {
    case 'and':
    case 'or':
    case 'none':
      return { kind: condition.kind, conditions: condition.conditions.map((one) => withReferences(one, references)) };
    case 'dataset': {
      const table = references.tables.get(condition.name);
      if (!table)
        throw invalidQuery(placeOf(condition, 'inDataset'), `names no data set of the app: ${condition.name}`);
      return { ...condition, table };
    }
    case 'country':
      if (references.hasCountries) return condition;
      throw invalidQuery(
        placeOf(condition, 'inCountry'),
        'needs networks by country, which the operator of the service supplies: a CSV file, set as COUNTRY_NETWORKS_FILE',
      );
    default:
      return condition;
  }
}

const placeOf = ({ path }: { path: readonly string[] }, operator: string): string => `${path.join('.')}.${operator}`;
