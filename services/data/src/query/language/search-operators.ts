import { spelled, textOf, type Operator } from './operator';
import { overLimit } from './query-error';

/** Characters of a search. */
const searchLengthMax = 1_000;

/** Words in a field with a full-text index. */
export const searchOperators: readonly Operator[] = [
  {
    spellings: spelled('$search'),
    operand: 'text',
    parse: (path, operand, location) => {
      const search = textOf(operand, location);
      if (search.length > searchLengthMax) throw overLimit(location, `may have at most ${searchLengthMax} characters`);
      return { kind: 'search', path, search };
    },
  },
];
