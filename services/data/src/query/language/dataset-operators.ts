import { nameRule } from '@granary/shared/names';
import { isName } from '../../catalog/names';
import { textOf, type Operator } from './operator';
import { invalidQuery } from './query-error';

/**
 * The operator for values that are in a data set. Whether the data set exists is looked up once the query has been
 * parsed.
 */
export const datasetOperators: readonly Operator[] = [
  {
    spellings: ['inDataset'],
    operand: 'text',
    parse(path, operand, location) {
      const name = textOf(operand, location);
      if (!isName(name)) throw invalidQuery(location, `must be the name of a data set, which ${nameRule}`);
      return { kind: 'dataset', path, name, table: undefined };
    },
  },
];
