import type { JsonValue } from '@granary/shared/json/value';
import type { Condition, Path } from './condition';
import { invalidQuery, overLimit } from './query-error';

/** How operands refer to another record. */
export interface References {
  /**
   * The path in the record one level up that an operand refers to (`$data.f` or `$parent.f`), undefined where it is a
   * value. Throws INVALID_QUERY for a reference to anything else.
   */
  pathOf(operand: JsonValue, location: string): Path | undefined;
}

/** An operator of the query language. A family of operators is a list of these in a file of its own. */
export interface Operator {
  /** All its spellings, the first of them its name. */
  readonly spellings: readonly string[];
  /**
   * How its operand is read from the text of a URL: a `flag` is true or false, `text` is taken as it is, a `value` is
   * read as the type of the field says, and so are the members of a `list` and the two of a `pair`, which commas
   * separate. `texts` are a list of which each is taken as it is.
   */
  readonly operand: 'flag' | 'text' | 'texts' | 'value' | 'list' | 'pair';
  /** Whether null is no operand of it, so that it is not among the readings of the text `null`. */
  readonly refusesNull?: boolean;
  /** The operator that is true where this one is false, and the reverse; its operand is read instead. */
  readonly opposite?: Operator;
  /** Whether its operand may refer to the record one level up. */
  readonly takesReferences?: boolean;
  /**
   * A condition on one path; the messages call the operand `location`. Without `references` every operand is a
   * value. Throws INVALID_QUERY, LIMIT_EXCEEDED.
   */
  parse(path: Path, operand: JsonValue, location: string, references?: References): Condition;
}

export const spelled = (spellings: string): readonly string[] => spellings.split(' ');

export function flagOf(operand: JsonValue, location: string): boolean {
  if (typeof operand !== 'boolean') throw invalidQuery(location, 'must be true or false');
  return operand;
}

export const listValuesMax = 1000;

export function listOf(operand: JsonValue, location: string): JsonValue[] {
  if (!Array.isArray(operand)) throw invalidQuery(location, 'must be an array');
  if (operand.length > listValuesMax) throw overLimit(location, `may hold at most ${listValuesMax} values`);
  return operand;
}

export function textOf(operand: JsonValue, location: string): string {
  if (typeof operand !== 'string') throw invalidQuery(location, 'must be a string');
  return operand;
}
