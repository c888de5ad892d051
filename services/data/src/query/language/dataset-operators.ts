import { nameRule } from '@granary/shared/names';
import { isName } from '../../catalog/names';
import { textOf, type Operator } from './operator';
import { invalidQuery } from './query-error';

/** The operator for values that are in a data set. Whether a data set has the name is known once the query is read. */
export const datasetOperators: readonly Operator[] = [
  {
    spellings: ['inDataset'],
    operand: 'text',
    parse(path, operand, at) {
      const name = textOf(operand, at);
      if (!isName(name)) throw invalidQuery(at, `must be the name of a data set, which ${nameRule}`);
      return { kind: 'dataset', path, name, table: undefined };
    },
  },
];
