import type { Condition, FieldCondition } from './condition';
import { spelled, textOf, type Operator } from './operator';
import { invalidQuery, overLimit } from './query-error';
import { RegexpSyntaxError } from './regexp/reader';
import { parseRegexp, RegexpLimitError, type Regexp } from './regexp/regexp';

/** Regular expressions of one query; Postgres keeps 32 compiled ones. */
export const expressionsMax = 16;
/** The largest `complexity` that the regular expressions of one query may have together. */
const queryComplexityMax = 20_000;

export const regexpOperators: readonly Operator[] = [
  {
    spellings: spelled('regExpMatches $regex'),
    operand: 'text',
    parse: (path, operand, at): FieldCondition => ({ kind: 'regexp', path, regexp: regexpOf(textOf(operand, at), at) }),
  },
];

function regexpOf(text: string, location: string): Regexp {
  try {
    return parseRegexp(text);
  } catch (error) {
    if (error instanceof RegexpSyntaxError) {
      throw invalidQuery(
        location,
        `is not a regular expression (RE2 syntax): at character ${error.position}, ${error.reason}`,
      );
    }
    if (error instanceof RegexpLimitError) throw overLimit(location, error.message);
    throw error;
  }
}

/** Bounds what the regular expressions of a query need together, wherever they come from. Throws LIMIT_EXCEEDED. */
export function assertExpressions(condition: Condition, location = 'find'): void {
  const expressions = [...expressionsIn(condition)];
  if (expressions.length > expressionsMax) {
    throw overLimit(location, `may have at most ${expressionsMax} regular expressions`);
  }
  const complexity = expressions.reduce((sum, one) => sum + one.complexity, 0);
  if (complexity > queryComplexityMax) {
    throw overLimit(
      location,
      `has regular expressions too complex together, ${complexity} of at most ${queryComplexityMax}`,
    );
  }
}

function* expressionsIn(condition: Condition): Generator<Regexp> {
  if (condition.kind === 'regexp') yield condition.regexp;
  else if ('conditions' in condition) for (const one of condition.conditions) yield* expressionsIn(one);
}
