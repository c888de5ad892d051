import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { emptyKey } from '../../catalog/table-names';
import type { Path } from '../language/condition';
import type { Relation } from '../plan/relation';
import { RowFields } from './row-fields';

const [plainKey, dateKey] = [trusted('sort_key'), trusted('date_sort_key')];

/** A row that was found as its joins see it: with its id, its body, and the key columns that they ask for. */
export class ParentRow extends RowFields {
  readonly #operands = new Map<string, { name: Sql; value: Sql }>();
  readonly #operandAlias: Sql;

  /**
   * `number` is that of the join that found the row, 0 for the page. `columns` are the key columns that it has where it
   * was found, and `carried` those that were asked for: they are there as k and a number.
   */
  constructor(
    private readonly number: number,
    relation: Relation,
    private readonly columns: ReadonlyMap<string, Sql>,
    readonly carried = new Map<string, { column: Sql; name: Sql }>(),
  ) {
    const name = (letter: string) => named(letter, BigInt(number));
    const alias = { row: name('x'), record: name('e'), sort: name('z') };
    super({ ...relation, alias, visible: empty, keys: new Map() });
    this.#operandAlias = name('q');
  }

  /** Returns the row for another part of the statement, where it has separate operands. */
  again(): ParentRow {
    return new ParentRow(this.number, this.source, this.columns, this.carried);
  }

  /** The place of the row, by which its joined records are found. */
  get place(): Sql {
    return sql`${this.source.alias.row}.n`;
  }

  /** The rows of a table or query, with all values that the joins refer to. Call it when the joins are compiled. */
  from(table: Sql): Sql {
    const records = this.records(sql`${table} ${this.source.alias.row}`);
    const operands = [...this.#operands.values()];
    if (operands.length === 0) return records;
    const columns = operands.map(({ name, value }) => sql`${value} as ${name}`);
    return sql`${records} cross join lateral (select ${join(columns, ', ')} offset 0) ${this.#operandAlias}`;
  }

  /** The value of a field: jsonb; null for missing and null. */
  operand(path: Path): Sql {
    return this.#once('value', path, () =>
      this.isId(path) ? sql`to_jsonb(${this.id})` : sql`nullif(${this.value(path)}, 'null'::jsonb)`,
    );
  }

  /** The string in a field; null for any other value. */
  string(path: Path): Sql {
    return this.isId(path) ? this.id : this.#once('string', path, () => this.#stringIn(path));
  }

  /** The key of a field, as a date field has it or another; null for missing and null. */
  key(path: Path, isDate: boolean): Sql {
    return this.#once(isDate ? 'instant key' : 'key', path, () => this.#keyIn(path, isDate));
  }

  /** The value that `make` computes from the key of a field. */
  ofKey(name: string, path: Path, isDate: boolean, make: (key: Sql) => Sql): Sql {
    return this.#once(`${name} ${isDate}`, path, () => make(this.#keyIn(path, isDate)));
  }

  /** The number of the instant in a field; null where it holds none. */
  instantIn(path: Path): Sql {
    return this.#once('instant', path, () => sql`instant_of(${this.#stringIn(path)})`);
  }

  /** The elements of the array in a field but null: jsonb[], empty for any other value. */
  elements(path: Path): Sql {
    return this.#once('elements', path, () => {
      const value = this.isId(path) ? sql`null::jsonb` : this.value(path);
      return sql`array(select e.value from jsonb_array_elements(
        case jsonb_typeof(${value}) when 'array' then ${value} else '[]'::jsonb end) e where e.value <> 'null'::jsonb)`;
    });
  }

  #stringIn(path: Path): Sql {
    if (this.isId(path)) return this.id;
    const value = this.value(path);
    return sql`case when jsonb_typeof(${value}) = 'string' then ${value} #>> '{}' end`;
  }

  #keyIn(path: Path, isDate: boolean): Sql {
    if (this.isId(path) && !isDate) return sql`string_key(${this.id})`;
    const column = this.isDate(path) === isDate ? this.#carry(path) : undefined;
    if (column) return sql`nullif(${column}, ${emptyKey})`;
    const value = this.isId(path) ? sql`to_jsonb(${this.id})` : this.value(path);
    return sql`nullif(${isDate ? dateKey : plainKey}(${value}), ${emptyKey})`;
  }

  #carry(path: Path): Sql | undefined {
    const field = path.join('.');
    const column = this.columns.get(field);
    if (!column) return undefined;
    let carriedKey = this.carried.get(field);
    if (!carriedKey) this.carried.set(field, (carriedKey = { column, name: named('k', BigInt(this.carried.size)) }));
    return sql`${this.source.alias.row}.${carriedKey.name}`;
  }

  #once(kind: string, path: Path, make: () => Sql): Sql {
    const key = JSON.stringify([kind, path]);
    let operand = this.#operands.get(key);
    if (!operand) {
      const value = make();
      this.#operands.set(key, (operand = { name: named('o', BigInt(this.#operands.size)), value }));
    }
    return sql`${this.#operandAlias}.${operand.name}`;
  }
}
