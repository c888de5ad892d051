import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { ConditionOf } from '../language/condition';
import { toPostgresExpression } from './postgres-expression';
import { never, type RowFields } from './row-fields';
import { textSql } from './text-sql';

/** The prefix that an expression forces narrows the keys of an index; the expression decides. */
export function regexpSql(fields: RowFields, { path, regexp }: ConditionOf<'regexp'>): Sql {
  if (regexp.tree.kind === 'never') return never;
  const expression = sql`${toPostgresExpression(regexp.tree)}::text collate "C"`;
  if (fields.isId(path)) return sql`${fields.id} ~ ${expression}`;
  const field = fields.value(path);
  const matches = sql`jsonb_typeof(${field}) = 'string' and (${field} #>> '{}') ~ ${expression}`;
  if (regexp.prefix === '' || fields.keyOf(path) === undefined) return sql`(${matches})`;
  return sql`(${textSql(fields, { kind: 'text', path, match: 'startsWith', value: regexp.prefix })} and ${matches})`;
}
