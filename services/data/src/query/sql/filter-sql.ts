import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { JsonNumber, toText, type JsonValue } from '@granary/shared/json/value';
import { parseInstant } from '../../values/instant';
import { cutForKey, keyBytesMax } from '../../values/key';
import type { Comparison, Condition, Path, Scalar, TextMatch } from '../language/filter';
import type { Source } from '../plan/relation';

/** A key may have lost the end of its string when it has so many bytes: a character takes up to four. */
const uncutBytesMax = keyBytesMax - 4;

export const never = trusted('false');
export const always = trusted('true');
// Keys sort strings, numbers, booleans: these bound each type, so that a range stays within it. No stored number
// lies below the least one.
const leastString = trusted(`'""'::jsonb`);
const leastNumber = trusted(`'-1e400'::jsonb`);
const leastBoolean = trusted(`'false'::jsonb`);

/**
 * Compiles conditions and paths on the rows of one source. The text that comes out holds nothing of the caller's:
 * values and the steps of paths are parameters. Where the record itself is needed, it is read as `d.j`, which
 * `records` provides.
 */
export class Compiler {
  private needsRecord = false;

  constructor(private readonly source: Source) {}

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
    // Postgres also takes '01', '+1' and ' 1' for the index of an array; those steps are keys of objects only.
    const odd = path.findIndex((step) => /^[\s+\d]/.test(step) && !/^(?:0|[1-9]\d{0,8})$/.test(step));
    if (odd < 0) return sql`(d.j #> ${path}::text[])`;
    let value = sql`d.j`;
    for (const step of path) {
      const isIndex = /^(?:0|[1-9]\d{0,8})$/.test(step);
      value = isIndex ? sql`(${value} #> ${[step]}::text[])` : sql`(${value} -> ${step}::text)`;
    }
    return value;
  }

  /** What a value sorts and groups by: jsonb; null for missing and null. */
  sortValue(path: Path): Sql {
    const value = sql`nullif(${this.value(path)}, 'null'::jsonb)`;
    return this.isDate(path) ? sql`date_key(${value})` : value;
  }

  keyOf(path: Path): Sql | undefined {
    return this.source.keys.get(path.join('.'));
  }

  isId(path: Path): boolean {
    return this.source.hasIdColumn && path.length === 1 && path[0] === 'id';
  }

  /** Whether equality with a value leaves a field only one key. */
  fixesKey(path: Path, value: JsonValue): boolean {
    return !this.isId(path) && isScalar(value) && !this.mustScan(path, value, this.instant(path, value));
  }

  /**
   * What the column of a field holds exactly where the field has the value: the JSON text of its key, for the id the id
   * itself. Undefined where that does not decide.
   */
  exactKey(path: Path, value: JsonValue): string | undefined {
    if (this.isId(path)) return typeof value === 'string' ? value : undefined;
    return isScalar(value) && this.isKeyExact(path, value) ? keyText(value, undefined) : undefined;
  }

  private isDate(path: Path): boolean {
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
        return this.isId(condition.path) ? always : sql`${this.value(condition.path)} is not null`;
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
    const instant = this.instant(path, value);
    const exact = () =>
      instant === undefined
        ? sql`${this.value(path)} = ${toText(value)}::jsonb`
        : sql`${this.instantValue(path)} = ${instant}::numeric`;
    const key = this.keyOf(path);
    // An array and an object have no key, and other text of a date may stand for an instant.
    if (!key || !isScalar(value) || this.mustScan(path, value, instant)) return exact();
    const same = sql`${key} = ${keyText(value, instant)}::jsonb`;
    if (this.isKeyExact(path, value)) return same;
    return sql`(${same} and ${this.isDate(path) ? this.hasTypeOf(path, value) : exact()})`;
  }

  private isIn(path: Path, values: readonly JsonValue[]): Sql {
    if (this.isId(path)) return sql`t.id = any(${values.filter((value) => typeof value === 'string')}::text[])`;
    const key = this.keyOf(path);
    const byKey: JsonValue[] = [];
    const others: JsonValue[] = [];
    for (const value of values) {
      if (key && isScalar(value) && this.isKeyExact(path, value)) byKey.push(value);
      else others.push(value);
    }
    const parts: Sql[] = [];
    if (byKey.length > 0) parts.push(sql`${key} = any(${byKey.map((value) => toText(value))}::jsonb[])`);
    const instants = others.flatMap((value) => this.instant(path, value) ?? []);
    const plain = others.filter((value) => this.instant(path, value) === undefined);
    if (instants.length > 0) {
      const exact = sql`${this.instantValue(path)} = any(${instants}::numeric[])`;
      parts.push(key ? sql`(${key} = any(${instants}::jsonb[]) and ${exact})` : exact);
    }
    if (plain.length > 0) {
      const exact = sql`${this.value(path)} = any(${plain.map(toText)}::jsonb[])`;
      const isKeyed = key && plain.every((value) => isScalar(value) && !this.mustScan(path, value, undefined));
      const keys = () => plain.map((value) => keyText(value as Scalar, undefined));
      parts.push(isKeyed ? sql`(${key} = any(${keys()}::jsonb[]) and ${exact})` : exact);
    }
    return parts.length === 0 ? never : sql`(${join(parts, ' or ')})`;
  }

  private isEmpty(path: Path): Sql {
    if (this.isId(path)) return never;
    const key = this.keyOf(path);
    const value = sql`coalesce(${this.value(path)}, 'null'::jsonb) = 'null'::jsonb`;
    return key ? sql`(${key} is null and ${value})` : value;
  }

  private range(path: Path, comparison: Comparison, bound: Scalar): Sql {
    const operator = operators[comparison];
    if (this.isId(path)) return typeof bound === 'string' ? sql`t.id ${operator} ${bound}` : never;
    const instant = this.instant(path, bound);
    const exact = () =>
      instant === undefined
        ? sql`(${withinType(this.value(path), comparison, toText(bound), bound)})`
        : sql`${this.instantValue(path)} ${operator} ${instant}::numeric`;
    const key = this.keyOf(path);
    if (!key || this.mustScan(path, bound, instant)) return exact();
    if (instant !== undefined) {
      return sql`(${withinType(key, comparison, instant, new JsonNumber(instant))} and ${this.hasTypeOf(path, bound)})`;
    }
    if (this.isKeyExact(path, bound)) return sql`(${withinType(key, comparison, toText(bound), bound)})`;
    if (this.isDate(path))
      return sql`(${withinType(key, comparison, toText(bound), bound)} and ${this.hasTypeOf(path, bound)})`;
    // A cut key never lies above its string, and not below the head of a bound that is shorter than any cut key.
    const isLower = comparison === '>' || comparison === '>=';
    const loose = isLower && typeof bound === 'string' ? headOf(bound) : bound;
    return sql`(${withinType(key, isLower ? '>=' : '<=', toText(loose), loose)} and ${exact()})`;
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
    const key = this.keyOf(path);
    const exact = () => this.text(path, 'startsWith', prefix);
    if (!key || this.isDate(path)) return exact();
    const head = headOf(prefix);
    const next = successorOf(head);
    const upper = next === undefined ? leastNumber : sql`${toText(next)}::jsonb`;
    const range = sql`${key} >= ${toText(head)}::jsonb and ${key} < ${upper}`;
    return head === prefix ? sql`(${range})` : sql`(${range} and ${exact()})`;
  }

  /** The number of an instant when the field is a date and the value RFC 3339. */
  private instant(path: Path, value: JsonValue): string | undefined {
    return typeof value === 'string' && this.isDate(path) ? parseInstant(value) : undefined;
  }

  /** Tells the key of a date from that of a number: both are numbers. */
  private hasTypeOf(path: Path, value: Scalar): Sql {
    return sql`jsonb_typeof(${this.value(path)}) = ${trusted(typeof value === 'string' ? `'string'` : `'number'`)}`;
  }

  private instantValue(path: Path): Sql {
    return sql`instant_of(${this.value(path)} #>> '{}')`;
  }

  /** Text that is no instant compares with the text of dates, which their keys do not have. */
  private mustScan(path: Path, value: JsonValue, instant: string | undefined): boolean {
    return typeof value === 'string' && instant === undefined && this.isDate(path);
  }

  /** Whether a comparison of keys decides, so that the record need not be read. */
  private isKeyExact(path: Path, value: Scalar): boolean {
    // The key of a date is a number, and so is that of a number.
    if (this.isDate(path)) return typeof value === 'boolean';
    return typeof value !== 'string' || Buffer.byteLength(value) <= uncutBytesMax;
  }
}

const operators: Record<Comparison, Sql> = {
  '<': trusted('<'),
  '<=': trusted('<='),
  '>': trusted('>'),
  '>=': trusted('>='),
};

function isScalar(value: JsonValue): value is Scalar {
  return value !== null && !Array.isArray(value) && !(value instanceof Map);
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

/** The key that a scalar has where it is stored; strings that may have been cut, cut. */
function keyText(value: Scalar, instant: string | undefined): string {
  return instant ?? toText(typeof value === 'string' ? cutForKey(value) : value);
}

/** The head of a string that is shorter than any cut key. */
function headOf(text: string): string {
  const bytes = Buffer.from(text);
  let end = Math.min(uncutBytesMax, bytes.length);
  while (end < bytes.length && (bytes[end]! & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}

/** The least string above all that begin with `prefix`, undefined when there is none. */
function successorOf(prefix: string): string | undefined {
  const points = Array.from(prefix, (character) => character.codePointAt(0)!);
  while (points.length > 0) {
    const last = points.pop()!;
    // Surrogates are no characters.
    if (last < 0x10ffff) return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1);
  }
  return undefined;
}
