import type { Sql } from '@granary/shared/postgres/sql';

/** The field that an aggregate takes, as SQL over the rows of which groups are made. */
export interface Argument {
  /** The value as jsonb: null, or the null of JSON, where the field is missing. */
  value: Sql;
  /** The JSON text as it was written: null where the field is missing. */
  text: Sql;
  isDate: boolean;
  /** The place of the row, as an int8 and a jsonb: the first row of a group has the least one. */
  ordinal: Sql;
  place: Sql;
}

/** A number that each group keeps in a column of its row and that changes by differences. */
export interface Sum {
  /** The first letter of the name of its column: the tables of views have it, so it never changes. */
  letter: 'c' | 's';
  type: 'int8' | 'numeric';
  /** An SQL aggregate over the rows `e` of a change, each with its weight `w`. Never null. */
  difference: Sql;
}

/**
 * The values of a field that each group keeps: by `value` or `instant`, equal ones once with the number of their rows;
 * by `place`, that of each row as it was written.
 */
export type SlotKind = 'value' | 'instant' | 'place';

/** The way in which an aggregate follows a change of documents. */
export type Delta =
  | { by: 'sums'; sums: readonly Sum[]; text: (columns: readonly Sql[]) => Sql }
  | { by: 'values'; kind: SlotKind; take: 'least' | 'most' | 'number' };

/** The meaning of an operator as SQL, over all rows of a group and over a difference. Both give the same JSON text. */
export interface AggregateSql {
  /** The JSON text, an SQL aggregate over the rows of a group. Never null. */
  whole(argument: Argument): Sql;
  /** `value` is the argument, a jsonb column of the rows `e` of a change. */
  delta(argument: { value: Sql; isDate: boolean }): Delta;
}
