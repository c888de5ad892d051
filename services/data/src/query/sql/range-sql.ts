import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { toText } from '@granary/shared/json/value';
import { isExact, orderedKey } from '../../values/ordered-key';
import type { Comparison, ConditionOf, Scalar } from '../language/condition';
import { firstKeyAfterStrings, keysOfType, keyValue } from './key-sql';
import { never, type RowFields } from './row-fields';

// jsonb sorts strings, numbers, booleans: these bound each type, so that a range stays within it. No stored number lies
// below the least one.
const leastString = trusted(`'""'::jsonb`);
const leastNumber = trusted(`'-1e400'::jsonb`);
const leastBoolean = trusted(`'false'::jsonb`);

export const comparisonSql: Record<Comparison, Sql> = {
  '<': trusted('<'),
  '<=': trusted('<='),
  '>': trusted('>'),
  '>=': trusted('>='),
};

export function rangeSql(fields: RowFields, { path, comparison, bound }: ConditionOf<'range'>): Sql {
  const operator = comparisonSql[comparison];
  if (fields.isId(path)) return typeof bound === 'string' ? sql`${fields.id} ${operator} ${bound}` : never;
  const instant = fields.instant(path, bound);
  const exact = () =>
    instant === undefined
      ? sql`(${withinType(fields.value(path), comparison, toText(bound), bound)})`
      : sql`${fields.instantValue(path)} ${operator} ${instant}::numeric`;
  const column = fields.keyOf(path);
  if (!column) return exact();
  // Text that is no instant compares with the text of instants too.
  if (typeof bound === 'string' && instant === undefined && fields.isDate(path)) {
    return sql`(${column} < ${firstKeyAfterStrings} and ${exact()})`;
  }
  const key = orderedKey(bound, fields.isDate(path));
  const isLower = comparison === '>' || comparison === '>=';
  // Strings with the same truncated key may lie on either side.
  const loose = isExact(key) ? operator : comparisonSql[isLower ? '>=' : '<='];
  const [first, end] = keysOfType(key[0]!);
  const within = isLower ? sql`${column} < ${end}` : sql`${column} >= ${first}`;
  const keyed = sql`${column} ${loose} ${keyValue(key)} and ${within}`;
  return isExact(key) ? sql`(${keyed})` : sql`(${keyed} and ${exact()})`;
}

/** The comparison of a jsonb, with the other bound of the operand's type. */
function withinType(value: Sql, comparison: Comparison, text: string, bound: Scalar): Sql {
  const bounded = sql`${value} ${comparisonSql[comparison]} ${text}::jsonb`;
  const isUpper = comparison === '<' || comparison === '<=';
  if (typeof bound === 'string') {
    return isUpper ? sql`${value} >= ${leastString} and ${bounded}` : sql`${bounded} and ${value} < ${leastNumber}`;
  }
  if (typeof bound === 'boolean') {
    return isUpper ? sql`${value} >= ${leastBoolean} and ${bounded}` : sql`${bounded} and ${value} <= 'true'::jsonb`;
  }
  return isUpper ? sql`${value} >= ${leastNumber} and ${bounded}` : sql`${bounded} and ${value} < ${leastBoolean}`;
}
