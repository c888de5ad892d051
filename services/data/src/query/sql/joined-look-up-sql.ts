import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { referenceToId, type JoinPlan } from '../plan/join-plan';
import { valueIn } from './row-fields';

/*
 * Joins that look up one document by its id, as scalar subqueries of a page by one index. Their texts have the form
 * that join-sql describes, with one addition: for a document that is too large the number of records is
 * `tooLargeCount`.
 */

/** Bytes of a document in a page by one index, at most; so a page has at most 32 MiB. */
export const indexReadBodyMax = trusted(String(16 * 1024));

/** The number of records that stands for a document that is too large. */
export const tooLargeCount = 2;
const tooLarge = trusted(`'${tooLargeCount}:'`);

/** The rows of a page, which have the column `body`, in their order, with the column `joined`. */
export function lookedUpPage(page: Sql, plans: readonly JoinPlan[]): Sql {
  // Postgres does not flatten a subquery with an offset, so each text is parsed once.
  return sql`select p.body, ${textsOf(trusted('p'), plans)} as joined
    from (select p.body, p.body::jsonb as j from (${page}) p(body) offset 0) p`;
}

/** The texts of joins. `row` has the parsed document that they refer to, as `j`. */
const textsOf = (row: Sql, plans: readonly JoinPlan[]): Sql =>
  join(
    plans.map((plan) => textOf(row, plan)),
    ' || ',
  );

function textOf(parent: Sql, plan: JoinPlan): Sql {
  const { number, relation, joins } = plan;
  const { row } = relation.alias;
  const referred = valueIn(sql`${parent}.j`, referenceToId(plan)!);
  const id = sql`case when jsonb_typeof(${referred}) = 'string' then ${referred} #>> '{}' end`;
  const visible = relation.visible === empty ? empty : sql`and ${relation.visible}`;
  const fromClause = sql`from ${relation.table} where ${row}.id = ${id} ${visible}`;
  const item = (
    record: Sql,
    more: Sql,
  ) => sql`case when octet_length(${record}.body) > ${indexReadBodyMax} then ${tooLarge}
    else '1:' || octet_length(${record}.body)::text || ':' || ${record}.body${more} end`;
  if (joins.length === 0) return sql`coalesce((select ${item(row, empty)} ${fromClause}), '0:')`;
  const result = named('x', BigInt(number));
  const parsed = sql`case when octet_length(${row}.body) <= ${indexReadBodyMax} then ${row}.body::jsonb end as j`;
  return sql`coalesce((select ${item(result, sql` || ${textsOf(result, joins)}`)}
    from (select ${row}.body, ${parsed} ${fromClause} offset 0) ${result}), '0:')`;
}
