import type { TextMatch } from './condition';
import { spelled, textOf, type Operator } from './operator';

const matches: readonly TextMatch[] = [
  'startsWith',
  'endsWith',
  'includesCaseInsensitive',
  'startsWithCaseInsensitive',
  'endsWithCaseInsensitive',
];

/** Operators on the content of a string or of an array. */
export const textOperators: readonly Operator[] = [
  {
    spellings: spelled('includes contains $contains'),
    operand: 'value',
    parse: (path, value) => ({ kind: 'contains', path, value }),
  },
  ...matches.map((match): Operator => ({
    spellings: [match],
    operand: 'text',
    parse: (path, operand, index) => ({ kind: 'text', path, match, value: textOf(operand, index) }),
  })),
];
