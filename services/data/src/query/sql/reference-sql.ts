import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { keyStringMaxBytes, keyType } from '../../values/ordered-key';
import type { Comparison, ConditionOf, Path } from '../language/condition';
import { keysFrom } from './key-sql';
import type { ParentRow } from './parent-row';
import { comparisonSql } from './range-sql';
import type { RowFields } from './row-fields';

type Reference = ConditionOf<'reference'>;

/** A comparison with the record one level up. A missing value there and null meet nothing. */
export function referenceSql(fields: RowFields, parent: ParentRow, condition: Reference): Sql {
  const { path, comparison, to } = condition;
  if (fields.isId(path)) return idReference(fields, parent, condition);
  const column = fields.keyOf(path);
  const isDate = fields.isDate(path);
  if (comparison === 'is') {
    if (!column) return isSame(fields.value(path), parent, to, isDate);
    const key = parent.key(to, isDate);
    return sql`(${column} = ${key} and (${isExactKey(key)} or ${fields.rareValue(path)} = ${parent.operand(to)}))`;
  }
  if (comparison === 'in') {
    if (!column) return isAmong(fields.value(path), parent, to, isDate);
    const keys = elementKeys(parent, to, isDate);
    return sql`(${column} = any(${keys}) and (${isExactKey(column)} or ${fields.rareValue(path)} = any(${parent.elements(to)})))`;
  }
  if (!column) return compared(fields.value(path), comparison, parent, to, isDate);
  return rangeOfKeys(fields, column, comparison, parent, condition);
}

/**
 * The comparison `is` by a key column, as two bounds. It is for the last column of an index in whose order the rows are
 * read: from an equality, Postgres would conclude that all rows have one key, and might find them by walking the ids.
 */
export function boundedReferenceSql(fields: RowFields, parent: ParentRow, { path, to }: Reference): Sql {
  const column = fields.keyOf(path)!;
  const key = parent.key(to, fields.isDate(path));
  const recheck = sql`(${isExactKey(key)} or ${fields.rareValue(path)} = ${parent.operand(to)})`;
  return sql`(${column} >= ${key} and ${column} <= ${key} and ${recheck})`;
}

/**
 * The value that the rows of a scan are hashed by. Equal values of the field have equal ones here; in a date field, so
 * may a number and the instant of a text.
 */
export function hashedValue(fields: RowFields, { path }: Reference): Sql {
  const value = fields.isId(path) ? sql`to_jsonb(${fields.id})` : fields.value(path);
  return fields.isDate(path) ? sql`coalesce(to_jsonb(instant_of(${value} #>> '{}')), ${value})` : value;
}

/** The operand that hashedValue() is compared with where the condition is an equality. */
export function hashedOperand(fields: RowFields, parent: ParentRow, { path, to }: Reference): Sql {
  return fields.isDate(path)
    ? sql`coalesce(to_jsonb(${parent.instantIn(to)}), ${parent.operand(to)})`
    : parent.operand(to);
}

/** The operands that hashedValue() is compared with for all rows above, which are in a table: a query of one column. */
export function hashedOperands(fields: RowFields, parent: ParentRow, table: Sql, condition: Reference): Sql {
  if (condition.comparison === 'is') {
    const operand = hashedOperand(fields, parent, condition);
    return sql`select ${operand} from ${parent.from(table)}`;
  }
  const instant = sql`case when jsonb_typeof(u.element) = 'string' then to_jsonb(instant_of(u.element #>> '{}')) end`;
  const element = fields.isDate(condition.path) ? sql`coalesce(${instant}, u.element)` : sql`u.element`;
  const elements = parent.elements(condition.to);
  return sql`select ${element} from ${parent.from(table)} cross join lateral unnest(${elements}) u(element)`;
}

function idReference(fields: RowFields, parent: ParentRow, { comparison, to }: Reference): Sql {
  if (comparison === 'in') {
    const strings = sql`array(select u.element #>> '{}' from unnest(${parent.elements(to)}) u(element)
      where jsonb_typeof(u.element) = 'string')`;
    return sql`${fields.id} = any(${strings})`;
  }
  return sql`${fields.id} ${comparison === 'is' ? trusted('=') : comparisonSql[comparison]} ${parent.string(to)}`;
}

const keyMaxBytes = trusted(String(1 + keyStringMaxBytes));
/** Whether only one value has a key, none of which is that of missing and null. */
const isExactKey = (key: Sql): Sql =>
  sql`(octet_length(${key}) <= ${keyMaxBytes} and ${key} < ${keysFrom(keyType.array)})`;

function elementKeys(parent: ParentRow, to: Path, isDate: boolean): Sql {
  const key = isDate ? trusted('date_sort_key') : trusted('sort_key');
  return sql`array(select ${key}(u.element) from unnest(${parent.elements(to)}) u(element))`;
}

function isSame(value: Sql, parent: ParentRow, to: Path, isDate: boolean): Sql {
  const same = sql`${value} = ${parent.operand(to)}`;
  if (!isDate) return same;
  const instant = parent.instantIn(to);
  return sql`case when ${instant} is null then ${same} else instant_of(${value} #>> '{}') = ${instant} end`;
}

function isAmong(value: Sql, parent: ParentRow, to: Path, isDate: boolean): Sql {
  if (!isDate) return sql`${value} = any(${parent.elements(to)})`;
  const instant = sql`case when jsonb_typeof(u.element) = 'string' then instant_of(u.element #>> '{}') end`;
  return sql`exists (select from unnest(${parent.elements(to)}) u(element)
    where case when ${instant} is null then ${value} = u.element else instant_of(${value} #>> '{}') = ${instant} end)`;
}

/** A range: of values of the operand's type, instants of a date field among themselves. */
function compared(value: Sql, comparison: Comparison, parent: ParentRow, to: Path, isDate: boolean): Sql {
  const [operator, operand] = [comparisonSql[comparison], parent.operand(to)];
  const plain = sql`(jsonb_typeof(${value}) = jsonb_typeof(${operand})
    and jsonb_typeof(${operand}) in ('string', 'number', 'boolean') and ${value} ${operator} ${operand})`;
  if (!isDate) return plain;
  const instant = parent.instantIn(to);
  return sql`case when ${instant} is null then ${plain} else instant_of(${value} #>> '{}') ${operator} ${instant} end`;
}

/** A range by keys; where a key does not decide, and for text in a field of instants, the values are compared too. */
function rangeOfKeys(
  fields: RowFields,
  column: Sql,
  comparison: Comparison,
  parent: ParentRow,
  { path, to }: Reference,
): Sql {
  const isDate = fields.isDate(path);
  const isLower = comparison === '>' || comparison === '>=';
  const first = parent.ofKey(isLower ? 'own' : 'first', to, isDate, (key) => firstKey(key, isLower, isDate));
  const end = parent.ofKey(isLower ? 'end' : 'next', to, isDate, (key) => endKey(key, isLower, isDate));
  const key = parent.key(to, isDate);
  const decides = isDate ? sql`${isExactKey(key)} and get_byte(${key}, 0) <> 32` : isExactKey(key);
  const exact = compared(fields.rareValue(path), comparison, parent, to, isDate);
  return sql`(${column} >= ${first} and ${column} < ${end}
    and case when ${decides} then ${column} ${comparisonSql[comparison]} ${key} else ${exact} end)`;
}

const typeOf = (key: Sql): Sql => sql`get_byte(${key}, 0)`;

/** The lower bound of the keys in a range; null for a type without ranges. */
function firstKey(key: Sql, isLower: boolean, isDate: boolean): Sql {
  const strings = isDate ? keysFrom(keyType.instant) : isLower ? key : keysFrom(keyType.string);
  if (isLower) return sql`case when ${typeOf(key)} = 32 then ${strings} when ${typeOf(key)} < 80 then ${key} end`;
  return sql`case when ${typeOf(key)} = 16 then ${keysFrom(keyType.instant)} when ${typeOf(key)} = 32 then ${strings}
    when ${typeOf(key)} < 64 then ${keysFrom(keyType.negative)} when ${typeOf(key)} < 80 then ${keysFrom(keyType.false)} end`;
}

/** The first key after a range. */
function endKey(key: Sql, isLower: boolean, isDate: boolean): Sql {
  const afterStrings = keysFrom(keyType.string + 1);
  if (isLower) {
    return sql`case when ${typeOf(key)} = 16 then ${keysFrom(keyType.instant + 1)} when ${typeOf(key)} = 32 then ${afterStrings}
      when ${typeOf(key)} < 64 then ${keysFrom(keyType.positive + 1)} when ${typeOf(key)} < 80 then ${keysFrom(keyType.true + 1)} end`;
  }
  // The least key after one is that key and a zero.
  const next = sql`${key} || '\\x00'::bytea`;
  if (!isDate) return next;
  return sql`case when ${typeOf(key)} = 32 then ${afterStrings} else ${next} end`;
}
