import { empty, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { JsonValue } from '@granary/shared/json/value';
import { parseInstant } from '../../values/instant';
import type { Path } from '../language/condition';
import { isIdPath, type Relation } from '../plan/relation';

export const never = trusted('false');
export const always = trusted('true');

/**
 * The fields of the rows of one relation, as SQL. The text that comes out holds nothing of the caller's: values and the
 * steps of paths are parameters. Where the record itself is needed, it is read as `alias.record`.`j`, which `records`
 * provides.
 */
export class RowFields {
  #needsRecord = false;

  constructor(readonly source: Relation) {}

  /** The rows with what the compiled parts need of them, for a FROM clause. Call it when all else is compiled. */
  records(table = this.source.table): Sql {
    const { alias } = this.source;
    // Once per row: `offset 0` keeps Postgres from copying the cast to each place that uses it.
    return this.#needsRecord
      ? sql`${table} cross join lateral (select ${alias.row}.body::jsonb as j offset 0) ${alias.record}`
      : table;
  }

  /** The id of the row. */
  get id(): Sql {
    return sql`${this.source.alias.row}.id`;
  }

  /** The value at a path of the record: jsonb, null where it is missing. */
  value(path: Path): Sql {
    this.#needsRecord = true;
    return valueIn(sql`${this.source.alias.record}.j`, path);
  }

  /** The value at a path where it is seldom needed, so that the text is parsed each time. */
  rareValue(path: Path): Sql {
    return valueIn(sql`${this.source.alias.row}.body::jsonb`, path);
  }

  /** The column with the key of a field; undefined where no index is over it. */
  keyOf(path: Path): Sql | undefined {
    return this.source.keys.get(path.join('.'));
  }

  isId(path: Path): boolean {
    return isIdPath(this.source, path);
  }

  isDate(path: Path): boolean {
    return this.source.dates.has(path.join('.'));
  }

  /** The number of an instant when the field is a date and the value RFC 3339. */
  instant(path: Path, value: JsonValue): string | undefined {
    return typeof value === 'string' && this.isDate(path) ? parseInstant(value) : undefined;
  }

  /** The number of the instant in a field; null where it holds none. */
  instantValue(path: Path): Sql {
    return sql`instant_of(${this.value(path)} #>> '{}')`;
  }

  /** The conditions under which a row counts at all. */
  visible(): readonly Sql[] {
    return this.source.visible === empty ? [] : [this.source.visible];
  }
}

/** The value at a path of a jsonb, or of a json, null where it is missing. */
export function valueIn(record: Sql, path: Path): Sql {
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
