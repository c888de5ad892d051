import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { parseInstant } from '../../values/instant';
import { isTruncated, keyType, orderedKey } from '../../values/ordered-key';
import type { Comparison, Condition, Path, Scalar, TextMatch } from '../language/filter';
import type { Relation } from '../plan/relation';
import { emptyKey } from '../../catalog/table-names';

const never = trusted('false');
const always = trusted('true');
// jsonb sorts strings, numbers, booleans: these bound each type, so that a range stays within it. No stored number lies
// below the least one.
const leastString = trusted(`'""'::jsonb`);
const leastNumber = trusted(`'-1e400'::jsonb`);
const leastBoolean = trusted(`'false'::jsonb`);

/** A key as a parameter: bytea in its text form. */
export const keyText = (key: Buffer): string => `\\x${key.toString('hex')}`;
const keyValue = (key: Buffer): Sql => sql`${keyText(key)}::bytea`;
/** A key of one byte, from which on those of a type are. */
const keysFrom = (type: number): Sql => trusted(`'\\x${type.toString(16)}'::bytea`);
const firstKeyAfterStrings = keysFrom(keyType.string + 1);

/**
 * Compiles conditions and paths on the rows of one source. The text that comes out holds nothing of the caller's:
 * values and the steps of paths are parameters. Where the record itself is needed, it is read as `d.j`, which
 * `records` provides.
 */
export class Compiler {
  private needsRecord = false;

  constructor(private readonly source: Relation) {}

  /** The rows with what the compiled parts need of them, for a FROM clause. Call it when all else is compiled. */
  records(): Sql {
    // Once per row: `offset 0` keeps Postgres from copying the cast to each place that uses it.
    return this.needsRecord
      ? sql`${this.source.table} cross join lateral (select t.body::jsonb as j offset 0) d`
      : this.source.table;
  }

  /** A WHERE clause, empty when every row counts. */
  where(condition: Condition, ...more: Sql[]): Sql {
    const parts = [this.source.visible, ...more, this.condition(condition)].filter(
      (part) => part !== empty && part !== always,
    );
    return parts.length === 0 ? empty : sql`where ${join(parts, ' and ')}`;
  }

  /** The value at a path of the record: jsonb, null where it is missing. */
  value(path: Path): Sql {
    this.needsRecord = true;
    return valueIn(sql`d.j`, path);
  }

  /** The same where it is seldom needed: the text is read each time. */
  rareValue(path: Path): Sql {
    return valueIn(sql`t.body::jsonb`, path);
  }

  /** What a value groups by, and its rank before it where values are compared: jsonb; null for missing and null. */
  sortValue(path: Path): { rank: Sql; value: Sql } {
    const value = sql`nullif(${this.value(path)}, 'null'::jsonb)`;
    if (!this.isDate(path)) return { rank: sql`sort_rank(${value})`, value };
    // The instants of a date come first, and are numbers here.
    const isInstant = sql`instant_of(${value} #>> '{}') is not null and jsonb_typeof(${value}) = 'string'`;
    return { rank: sql`case when ${isInstant} then -1 else sort_rank(${value}) end`, value: sql`date_key(${value})` };
  }

  keyOf(path: Path): Sql | undefined {
    return this.source.keys.get(path.join('.'));
  }

  isId(path: Path): boolean {
    return this.source.hasIdColumn && path.length === 1 && path[0] === 'id';
  }

  /**
   * What the column of a field holds exactly where the field has the value: its key, for the id the id itself. Undefined
   * where that does not decide.
   */
  exactKey(path: Path, value: JsonValue): string | undefined {
    if (this.isId(path)) return typeof value === 'string' ? value : undefined;
    const key = orderedKey(value, this.isDate(path));
    return isExact(key) ? keyText(key) : undefined;
  }

  isDate(path: Path): boolean {
    return this.source.dates.has(path.join('.'));
  }

  /**
   * A condition as SQL. Null stands for false until a `none` turns it round, which then makes it true: so a leaf may
   * leave it to Postgres that a comparison with a missing value is null.
   */
  condition(condition: Condition): Sql {
    switch (condition.kind) {
      case 'and':
        return this.list(condition.conditions, ' and ', always);
      case 'or':
        return this.list(condition.conditions, ' or ', never);
      case 'none':
        return sql`(${this.list(condition.conditions, ' or ', never)}) is not true`;
      case 'is':
        return this.is(condition.path, condition.value);
      case 'in':
        return this.isIn(condition.path, condition.values);
      case 'empty':
        return this.isEmpty(condition.path);
      case 'exists':
        return this.exists(condition.path);
      case 'range':
        return this.range(condition.path, condition.comparison, condition.bound);
      case 'contains':
        return this.contains(condition.path, condition.value);
      case 'text':
        return condition.match === 'startsWith'
          ? this.startsWith(condition.path, condition.value)
          : this.text(condition.path, condition.match, condition.value);
    }
  }

  private list(conditions: readonly Condition[], separator: ' and ' | ' or ', nothing: Sql): Sql {
    const parts = conditions.map((condition) => this.condition(condition)).filter((part) => part !== nothing);
    if (parts.length === 0) return nothing;
    return parts.length === 1 ? parts[0]! : sql`(${join(parts, separator)})`;
  }

  private is(path: Path, value: JsonValue): Sql {
    if (this.isId(path)) return typeof value === 'string' ? sql`t.id = ${value}` : never;
    const column = this.keyOf(path);
    if (!column) {
      const instant = this.instant(path, value);
      return instant === undefined
        ? sql`${this.value(path)} = ${toText(value)}::jsonb`
        : sql`${this.instantValue(path)} = ${instant}::numeric`;
    }
    const key = orderedKey(value, this.isDate(path));
    const same = sql`${column} = ${keyValue(key)}`;
    return isExact(key) ? same : sql`(${same} and ${this.value(path)} = ${toText(value)}::jsonb)`;
  }

  private isIn(path: Path, values: readonly JsonValue[]): Sql {
    if (this.isId(path)) return sql`t.id = any(${values.filter((value) => typeof value === 'string')}::text[])`;
    const parts = this.keyOf(path) ? this.isInKeys(path, values) : this.isInValues(path, values);
    return parts.length === 0 ? never : sql`(${join(parts, ' or ')})`;
  }

  private isInKeys(path: Path, values: readonly JsonValue[]): Sql[] {
    const column = this.keyOf(path)!;
    const keyed = values.map((value) => ({ value, key: orderedKey(value, this.isDate(path)) }));
    const [exact, inexact] = [keyed.filter(({ key }) => isExact(key)), keyed.filter(({ key }) => !isExact(key))];
    const among = (some: typeof keyed) => sql`${column} = any(${some.map(({ key }) => keyText(key))}::bytea[])`;
    const parts = exact.length > 0 ? [among(exact)] : [];
    if (inexact.length === 0) return parts;
    const texts = inexact.map(({ value }) => toText(value));
    return [...parts, sql`(${among(inexact)} and ${this.value(path)} = any(${texts}::jsonb[]))`];
  }

  private isInValues(path: Path, values: readonly JsonValue[]): Sql[] {
    const parts: Sql[] = [];
    const instants = values.flatMap((value) => this.instant(path, value) ?? []);
    const plain = values.filter((value) => this.instant(path, value) === undefined);
    if (instants.length > 0) parts.push(sql`${this.instantValue(path)} = any(${instants}::numeric[])`);
    if (plain.length > 0) parts.push(sql`${this.value(path)} = any(${plain.map(toText)}::jsonb[])`);
    return parts;
  }

  private isEmpty(path: Path): Sql {
    if (this.isId(path)) return never;
    const column = this.keyOf(path);
    return column ? sql`${column} = ${emptyKey}` : sql`coalesce(${this.value(path)}, 'null'::jsonb) = 'null'::jsonb`;
  }

  private exists(path: Path): Sql {
    if (this.isId(path)) return always;
    const column = this.keyOf(path);
    // Missing and null have the same key.
    return column
      ? sql`(${column} <> ${emptyKey} or ${this.rareValue(path)} is not null)`
      : sql`${this.value(path)} is not null`;
  }

  private range(path: Path, comparison: Comparison, bound: Scalar): Sql {
    const operator = operators[comparison];
    if (this.isId(path)) return typeof bound === 'string' ? sql`t.id ${operator} ${bound}` : never;
    const instant = this.instant(path, bound);
    const exact = () =>
      instant === undefined
        ? sql`(${withinType(this.value(path), comparison, toText(bound), bound)})`
        : sql`${this.instantValue(path)} ${operator} ${instant}::numeric`;
    const column = this.keyOf(path);
    if (!column) return exact();
    // Text that is no instant compares with the text of instants too.
    if (typeof bound === 'string' && instant === undefined && this.isDate(path)) {
      return sql`(${column} < ${firstKeyAfterStrings} and ${exact()})`;
    }
    const key = orderedKey(bound, this.isDate(path));
    const isLower = comparison === '>' || comparison === '>=';
    // Strings with the same truncated key may lie on either side.
    const loose = isExact(key) ? operator : operators[isLower ? '>=' : '<='];
    const [first, end] = keysOfType(key[0]!);
    const within = isLower ? sql`${column} < ${end}` : sql`${column} >= ${first}`;
    const keyed = sql`${column} ${loose} ${keyValue(key)} and ${within}`;
    return isExact(key) ? sql`(${keyed})` : sql`(${keyed} and ${exact()})`;
  }

  private contains(path: Path, value: JsonValue): Sql {
    const found = this.value(path);
    const element = sql`exists (select from jsonb_array_elements(
      case jsonb_typeof(${found}) when 'array' then ${found} else '[]'::jsonb end) e where e.value = ${toText(value)}::jsonb)`;
    if (typeof value !== 'string') return element;
    return sql`case jsonb_typeof(${found}) when 'array' then ${element}
      when 'string' then strpos(${found} #>> '{}', ${value}) > 0 end`;
  }

  private text(path: Path, match: TextMatch, value: string): Sql {
    const found = this.value(path);
    const text = sql`${found} #>> '{}'`;
    const lowerText = sql`lower((${text}) collate pg_unicode_fast)`;
    const lowerValue = sql`lower(${value}::text collate pg_unicode_fast)`;
    const matches = (): Sql => {
      switch (match) {
        case 'startsWith':
          return sql`starts_with(${text}, ${value})`;
        case 'endsWith':
          return sql`right(${text}, length(${value})) = ${value}`;
        case 'includesCaseInsensitive':
          return sql`strpos(${lowerText}, ${lowerValue}) > 0`;
        case 'startsWithCaseInsensitive':
          return sql`starts_with(${lowerText}, ${lowerValue})`;
        case 'endsWithCaseInsensitive':
          return sql`right(${lowerText}, length(${lowerValue})) = ${lowerValue}`;
      }
    };
    return sql`(jsonb_typeof(${found}) = 'string' and ${matches()})`;
  }

  /** The strings with a prefix are a range of keys. */
  private startsWith(path: Path, prefix: string): Sql {
    const column = this.keyOf(path);
    const exact = () => this.text(path, 'startsWith', prefix);
    if (!column) return exact();
    if (this.isDate(path)) return sql`(${column} < ${firstKeyAfterStrings} and ${exact()})`;
    const key = orderedKey(prefix, false);
    if (isTruncated(key)) return sql`(${column} = ${keyValue(key)} and ${exact()})`;
    const end = Buffer.from(key);
    end[end.length - 1]! += 1;
    return sql`(${column} >= ${keyValue(key)} and ${column} < ${keyValue(end)})`;
  }

  /** The number of an instant when the field is a date and the value RFC 3339. */
  private instant(path: Path, value: JsonValue): string | undefined {
    return typeof value === 'string' && this.isDate(path) ? parseInstant(value) : undefined;
  }

  private instantValue(path: Path): Sql {
    return sql`instant_of(${this.value(path)} #>> '{}')`;
  }
}

const operators: Record<Comparison, Sql> = {
  '<': trusted('<'),
  '<=': trusted('<='),
  '>': trusted('>'),
  '>=': trusted('>='),
};

/** Whether only one value has this key, so that the record need not be read. */
const isExact = (key: Buffer): boolean => key[0] !== keyType.array && key[0] !== keyType.object && !isTruncated(key);

/** The first key of the values that compare with one whose key begins with `type`, and the first after them. */
function keysOfType(type: number): [Sql, Sql] {
  if (type >= keyType.negative && type <= keyType.positive) {
    return [keysFrom(keyType.negative), keysFrom(keyType.positive + 1)];
  }
  if (type === keyType.false || type === keyType.true) return [keysFrom(keyType.false), keysFrom(keyType.true + 1)];
  return [keysFrom(type), keysFrom(type + 1)];
}

/** The value at a path of a jsonb, null where it is missing. */
function valueIn(record: Sql, path: Path): Sql {
  // Postgres also takes '01', '+1' and ' 1' for the index of an array; those steps are keys of objects only.
  const odd = path.findIndex((step) => /^[\s+\d]/.test(step) && !/^(?:0|[1-9]\d{0,8})$/.test(step));
  if (odd < 0) return sql`(${record} #> ${path}::text[])`;
  let value = record;
  for (const step of path) {
    const isIndex = /^(?:0|[1-9]\d{0,8})$/.test(step);
    value = isIndex ? sql`(${value} #> ${[step]}::text[])` : sql`(${value} -> ${step}::text)`;
  }
  return value;
}

/** The comparison of a jsonb, with the other bound of the operand's type. */
function withinType(value: Sql, comparison: Comparison, text: string, bound: Scalar): Sql {
  const bounded = sql`${value} ${operators[comparison]} ${text}::jsonb`;
  const isUpper = comparison === '<' || comparison === '<=';
  if (typeof bound === 'string') {
    return isUpper ? sql`${value} >= ${leastString} and ${bounded}` : sql`${bounded} and ${value} < ${leastNumber}`;
  }
  if (typeof bound === 'boolean') {
    return isUpper ? sql`${value} >= ${leastBoolean} and ${bounded}` : sql`${bounded} and ${value} <= 'true'::jsonb`;
  }
  return isUpper ? sql`${value} >= ${leastNumber} and ${bounded}` : sql`${bounded} and ${value} < ${leastBoolean}`;
}
