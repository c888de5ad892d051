import { empty, join, named, sql, type Sql } from '@granary/shared/postgres/sql';
import type { Path } from '../../query/language/condition';
import { Compiler } from '../../query/sql/filter-sql';
import { RowFields, valueIn } from '../../query/sql/row-fields';
import type { JoinField } from '../language/view-joins';
import type { PlannedJoin, ViewPlan } from '../plan/view-plan';

/**
 * The fields of the rows of a view as SQL: those of a document of the base, and under the aliases of joins those of its
 * partners, which are x1, x2, … with their id, text and parsed record.
 */
export class ViewFields extends Compiler {
  readonly #partners: ReadonlyArray<{ planned: PlannedJoin; fields: RowFields }>;

  constructor({ rows, joins }: Pick<ViewPlan, 'rows' | 'joins'>) {
    super(rows);
    this.#partners = joins.map((planned) => {
      const alias = named('x', BigInt(planned.number));
      const relation = { ...planned.relation, alias: { row: alias, record: alias, sort: alias } };
      return { planned, fields: new RowFields(relation) };
    });
  }

  override value(path: Path): Sql {
    const partner = this.#partnerOf(path);
    if (!partner) return super.value(path);
    // A row without a partner has null there.
    return path.length > 1 ? partner.value(path.slice(1)) : sql`coalesce(${partner.value([])}, 'null'::jsonb)`;
  }

  override rareValue(path: Path): Sql {
    return this.#partnerOf(path) ? this.value(path) : super.rareValue(path);
  }

  /** The JSON text at a path as it was written; null where it is missing. */
  textValue(path: Path): Sql {
    const partner = this.#partnerOf(path);
    const [row, steps] = partner ? [partner.source.alias.row, path.slice(1)] : [this.source.alias.row, path];
    return steps.length === 0 ? sql`${row}.body` : sql`(${valueIn(sql`${row}.body::json`, steps)})::text`;
  }

  /** The ids of the partners, which tell the rows of one document of the base apart. */
  get partnerIds(): Sql[] {
    return this.#partners.map(({ fields }) => fields.id);
  }

  /** The texts of the partners, null where a row has none. */
  get partnerTexts(): Sql[] {
    return this.#partners.map(({ fields }) => sql`${fields.source.alias.row}.body`);
  }

  override records(table = this.source.table): Sql {
    const joined = this.#partners.map(({ planned }) => this.#join(planned));
    // The joins are compiled first: only then is it known which values of the records they use.
    return join([super.records(table), ...joined], ' ');
  }

  /** A join by the compared values, so that Postgres can hash them, whatever indexes there are. */
  #join({ number, join: { isInner, on }, relation }: PlannedJoin): Sql {
    const alias = named('x', BigInt(number));
    const fields = new RowFields(relation);
    const values = on.map(({ path }, index) => sql`, ${hashed(fields, path)} as ${named('v', BigInt(index))}`);
    const visible = fields.visible();
    const where = visible.length === 0 ? empty : sql`where ${join(visible, ' and ')}`;
    const { row, record } = relation.alias;
    // The record is needed for the values at least.
    fields.value([]);
    const documents = sql`select ${row}.id, ${row}.body, ${record}.j${join(values, '')} from ${fields.records()} ${where}`;
    const conditions = on.map((field, index) =>
      this.#meets(field, fields, sql`${alias}.${named('v', BigInt(index))}`, sql`${alias}.j`),
    );
    const how = isInner ? sql`join` : sql`left join`;
    return sql`${how} (${documents}) ${alias} on ${join(conditions, ' and ')}`;
  }

  #meets({ path, from, to }: JoinField, fields: RowFields, value: Sql, record: Sql): Sql {
    // A field of the base is that, also where the join takes its name.
    const referred = from === undefined ? super.value(to) : this.value([from, ...to]);
    const operand = sql`nullif(${referred}, 'null'::jsonb)`;
    if (!fields.isDate(path)) return sql`${value} = ${operand}`;
    const instant = sql`case when jsonb_typeof(${operand}) = 'string' then instant_of(${operand} #>> '{}') end`;
    const stored = valueIn(record, path);
    // A number may be that of an instant, which it does not equal.
    return sql`${value} = coalesce(to_jsonb(${instant}), ${operand}) and
      case when ${instant} is null then ${stored} = ${operand} else instant_of(${stored} #>> '{}') = ${instant} end`;
  }

  #partnerOf(path: Path): RowFields | undefined {
    return this.#partners.find(({ planned }) => planned.join.alias === path[0])?.fields;
  }
}

/**
 * The value that a field is hashed by. Equal values of the field have equal ones here; in a date field, so may a number
 * and the instant of a text.
 */
function hashed(fields: RowFields, path: Path): Sql {
  const value = fields.value(path);
  return fields.isDate(path) ? sql`coalesce(to_jsonb(instant_of(${value} #>> '{}')), ${value})` : value;
}
