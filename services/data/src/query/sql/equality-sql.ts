import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { emptyKey } from '../../catalog/table-names';
import { isExact, keyText, orderedKey } from '../../values/ordered-key';
import type { ConditionOf, Path } from '../language/condition';
import { keyValue } from './key-sql';
import { always, never, type RowFields } from './row-fields';

export function isSql(fields: RowFields, { path, value }: ConditionOf<'is'>): Sql {
  if (fields.isId(path)) return typeof value === 'string' ? sql`${fields.id} = ${value}` : never;
  const column = fields.keyOf(path);
  if (!column) {
    const instant = fields.instant(path, value);
    return instant === undefined
      ? sql`${fields.value(path)} = ${toText(value)}::jsonb`
      : sql`${fields.instantValue(path)} = ${instant}::numeric`;
  }
  const key = orderedKey(value, fields.isDate(path));
  const same = sql`${column} = ${keyValue(key)}`;
  return isExact(key) ? same : sql`(${same} and ${fields.value(path)} = ${toText(value)}::jsonb)`;
}

export function inSql(fields: RowFields, { path, values }: ConditionOf<'in'>): Sql {
  if (fields.isId(path)) return sql`${fields.id} = any(${values.filter((value) => typeof value === 'string')}::text[])`;
  const column = fields.keyOf(path);
  const parts = column ? amongKeys(fields, column, path, values) : amongValues(fields, path, values);
  return parts.length === 0 ? never : sql`(${join(parts, ' or ')})`;
}

function amongKeys(fields: RowFields, column: Sql, path: Path, values: readonly JsonValue[]): Sql[] {
  const keyed = values.map((value) => ({ value, key: orderedKey(value, fields.isDate(path)) }));
  const [exact, inexact] = [keyed.filter(({ key }) => isExact(key)), keyed.filter(({ key }) => !isExact(key))];
  const among = (some: typeof keyed) => sql`${column} = any(${some.map(({ key }) => keyText(key))}::bytea[])`;
  const parts = exact.length > 0 ? [among(exact)] : [];
  if (inexact.length === 0) return parts;
  const texts = inexact.map(({ value }) => toText(value));
  return [...parts, sql`(${among(inexact)} and ${fields.value(path)} = any(${texts}::jsonb[]))`];
}

function amongValues(fields: RowFields, path: Path, values: readonly JsonValue[]): Sql[] {
  const parts: Sql[] = [];
  const instants = values.flatMap((value) => fields.instant(path, value) ?? []);
  const plain = values.filter((value) => fields.instant(path, value) === undefined);
  if (instants.length > 0) parts.push(sql`${fields.instantValue(path)} = any(${instants}::numeric[])`);
  if (plain.length > 0) parts.push(sql`${fields.value(path)} = any(${plain.map(toText)}::jsonb[])`);
  return parts;
}

/** Missing or null. */
export function emptySql(fields: RowFields, { path }: ConditionOf<'empty'>): Sql {
  if (fields.isId(path)) return never;
  const column = fields.keyOf(path);
  return column ? sql`${column} = ${emptyKey}` : sql`coalesce(${fields.value(path)}, 'null'::jsonb) = 'null'::jsonb`;
}

export function existsSql(fields: RowFields, { path }: ConditionOf<'exists'>): Sql {
  if (fields.isId(path)) return always;
  const column = fields.keyOf(path);
  // Missing and null have the same key.
  return column
    ? sql`(${column} <> ${emptyKey} or ${fields.rareValue(path)} is not null)`
    : sql`${fields.value(path)} is not null`;
}
