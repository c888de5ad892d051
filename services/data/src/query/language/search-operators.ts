import { spelled, textOf, type Operator } from './operator';
import { overLimit } from './query-error';

/** Characters of a search. */
const searchLengthMax = 1_000;

/** Words in a field with a full-text index. */
export const searchOperators: readonly Operator[] = [
  {
    spellings: spelled('$search'),
    operand: 'text',
    parse: (path, operand, at) => {
      const search = textOf(operand, at);
      if (search.length > searchLengthMax) throw overLimit(at, `may have at most ${searchLengthMax} characters`);
      return { kind: 'search', path, search };
    },
  },
];
