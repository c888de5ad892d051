import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Condition, Path } from '../language/condition';
import type { Relation } from '../plan/relation';
import { Compiler } from './filter-sql';
import { valueIn } from './row-fields';
import { textPrefilter, type DocumentTexts } from './text-prefilter';

/** Which rows of a table a scan reads. */
export interface ScannedRows {
  /** Conditions beside those of the filter that need no document. */
  conditions?: readonly Sql[];
  /** The order in which rows are read; undefined for any. */
  order?: Sql | undefined;
  /** Rows that are read in that order, at most. */
  limit?: number | undefined;
}

// Keeps Postgres from merging a subquery with the one around it, so that an expression is computed once for a row. With
// an offset that is not a constant of type int8 when it is parsed, or with a lateral subquery, no parallel plan is
// possible.
const fence = trusted(`offset int8 '0'`);

/**
 * Compiles a filter on the documents of a collection for a statement that reads them all. A text is parsed only where
 * the prefilter leaves it possible that the document matches, and once. Of one path the value is read from json, which
 * takes half the time of a jsonb of the whole document.
 */
export class ScanCompiler extends Compiler implements DocumentTexts {
  readonly #values = new Map<string, Path>();
  readonly #keys: string[] = [];
  readonly #rows: ScannedRows;
  readonly #prefilter: Sql | undefined;

  constructor(source: Relation, filter: Condition, rows: ScannedRows = {}) {
    super(source);
    this.#rows = rows;
    this.#prefilter = textPrefilter(this, filter);
  }

  get body(): Sql {
    return sql`${this.source.alias.row}.body`;
  }

  /** The text behind the first mention of a key, up to the next one. */
  behindKey(quotedKey: string): Sql {
    let index = this.#keys.indexOf(quotedKey);
    if (index < 0) index = this.#keys.push(quotedKey) - 1;
    return sql`${this.source.alias.row}.${keyName(index)}`;
  }

  override value(path: Path): Sql {
    const name = path.join('\0');
    if (!this.#values.has(name)) this.#values.set(name, path);
    return sql`${this.source.alias.row}.${valueName([...this.#values.keys()].indexOf(name))}`;
  }

  /** Returns no conditions, because the innermost subquery already selects the rows that count. */
  override visible(): readonly Sql[] {
    return [];
  }

  override records(table = this.source.table): Sql {
    const { row } = this.source.alias;
    const { conditions = [], order, limit } = this.#rows;
    const inOrder = order ? sql`order by ${order}` : empty;
    const keys = this.#keys.map((key, index) => sql`, split_part(${this.body}, ${key}, 2) as ${keyName(index)}`);
    const read = sql`select ${row}.*${join(keys, '')} from ${table} ${whereAll([...super.visible(), ...conditions])}
      ${inOrder} ${limit === undefined ? fence : trusted(`limit ${BigInt(limit)}`)}`;
    const where = whereAll(this.#prefilter ? [this.#prefilter] : []);
    const paths = [...this.#values.values()];
    const possible = (columns: Sql) =>
      sql`select ${row}.*${columns} from (${read}) ${row} ${where} ${inOrder} ${fence}`;
    if (paths.length < 2) {
      const value = paths.map((path) => sql`, (${valueIn(sql`${this.body}::json`, path)})::jsonb as ${valueName(0)}`);
      return sql`(${possible(join(value, ''))}) ${row}`;
    }
    const values = paths.map((path, index) => sql`, ${valueIn(sql`${row}.j`, path)} as ${valueName(index)}`);
    const parsed = possible(sql`, ${this.body}::jsonb as j`);
    return sql`(select ${row}.*${join(values, '')} from (${parsed}) ${row} ${inOrder} ${fence}) ${row}`;
  }
}

const keyName = (at: number): Sql => named('k', BigInt(at));
const valueName = (at: number): Sql => named('v', BigInt(at));

const whereAll = (conditions: readonly Sql[]): Sql =>
  conditions.length === 0 ? empty : sql`where ${join(conditions, ' and ')}`;
