import { join, named, sql, type Sql } from '@granary/shared/postgres/sql';
import { orderOf } from '../../query/plan/order';
import { directionOf, sortedOrder } from '../../query/sql/keyset-sql';
import type { ViewPlan } from '../plan/view-plan';
import { groupedRows } from './grouped-sql';
import { ViewFields } from './joined-fields';

/**
 * A statement that gives the rows of a view in its order, before its select, as the text `body`. Where rows are
 * documents the partners of joins are beside it as p0, p1, …, null where there is none.
 */
export function viewRows(plan: ViewPlan): Sql {
  const { groups, limit } = plan.query;
  const bound = limit === undefined ? sql`` : sql`limit ${limit}`;
  return sql`${groups ? groupedRows(plan, groups) : documentRows(plan)} ${bound}`;
}

function documentRows(plan: ViewPlan): Sql {
  const { rows, query } = plan;
  const fields = new ViewFields(plan);
  const order = orderOf(rows, query.sort, () => false);
  const { lateral, orderBy } = sortedOrder(rows, fields, order, undefined);
  const direction = directionOf(order.descending);
  const ties = fields.partnerIds.map((id) => sql`, ${id} ${direction}`);
  const where = fields.where(query.find);
  const texts = fields.partnerTexts.map((text, index) => sql`, ${text} as ${named('p', BigInt(index))}`);
  return sql`select ${rows.alias.row}.body${join(texts, '')} from ${fields.records()}${lateral} ${where}
    order by ${orderBy}${join(ties, '')}`;
}
