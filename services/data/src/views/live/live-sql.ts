import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import { documentCtes, documentRows } from './document-rows';
import { groupCtes, groupRows } from './group-rows';
import { cteOf, rowDelta, type LivePlan } from './live-plan';

export interface ChangeOptions {
  /** The table is new: a view without groups gets its row. */
  isFirst?: boolean;
}

/** CTEs that apply `change` to the rows of a view; `rowDelta` is what they make of their number. */
export function viewCtes(plan: LivePlan, { isFirst = false }: ChangeOptions = {}): Sql {
  const { groups } = plan.query;
  return join(groups ? groupCtes(plan, groups, isFirst) : documentCtes(plan), ', ');
}

/** The same with the number of rows in the catalog. */
export const countedViewCtes = (plan: LivePlan): Sql => sql`${viewCtes(plan)}, ${cteOf('counted_', plan)} as (
  update view set row_count = row_count + s.delta from (select ${rowDelta(plan)} as delta) s
  where number = ${plan.number} and s.delta <> 0)`;

/** The rows of a view over all that is in `change`, with the columns that its table has. */
export const viewRowsOf = (plan: LivePlan): Sql =>
  plan.query.groups ? groupRows(plan, plan.query.groups) : documentRows(plan);
