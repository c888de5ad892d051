import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import { documentCtes, documentRows } from './document-rows';
import { deltasJson, deltasOf, groupCtes, groupDeltas, groupRows } from './group-rows';
import { cteOf, rowDelta, type LivePlan } from './live-plan';

export interface ChangeOptions {
  /** The table is new: a view without groups gets its row. */
  isFirst?: boolean;
}

/** CTEs that apply `change` to the rows of a view; `rowDelta` is what they make of their number. */
export function viewCtes(plan: LivePlan, { isFirst = false }: ChangeOptions = {}): Sql {
  const { groups } = plan.query;
  return join(groups ? [...groupDeltas(plan, groups, isFirst), ...groupCtes(plan, groups)] : documentCtes(plan), ', ');
}

/** The CTE that keeps the number of rows in the catalog. */
const countedCte = (plan: LivePlan, delta: Sql): Sql => sql`${cteOf('counted_', plan)} as (
  update view set row_count = row_count + s.delta from (select ${delta} as delta) s
  where number = ${plan.number} and s.delta <> 0)`;

/** The same CTEs with it. */
export const countedViewCtes = (plan: LivePlan): Sql => sql`${viewCtes(plan)}, ${countedCte(plan, rowDelta(plan))}`;

/** What new documents do to a view before the lock of the head is held: rows of documents are written, groups only summed. */
export interface AheadCtes {
  ctes: Sql;
  /** What the statement of the turn needs: a number of rows, or the JSON of deltas. */
  result: Sql;
}

export function aheadCtes(plan: LivePlan): AheadCtes {
  const { groups } = plan.query;
  if (!groups) return { ctes: join(documentCtes(plan), ', '), result: sql`(${rowDelta(plan)})::text` };
  return { ctes: join(groupDeltas(plan, groups, false), ', '), result: deltasJson(plan, groups) };
}

/** The CTEs of the turn, given what came of that. */
export function turnCtes(plan: LivePlan, result: string): Sql {
  const { groups } = plan.query;
  if (!groups) return countedCte(plan, sql`${result}::int8`);
  const ctes = [...deltasOf(plan, groups, result), ...groupCtes(plan, groups), countedCte(plan, rowDelta(plan))];
  return join(ctes, ', ');
}

/** A view over all that is in `change`: CTEs, and its rows with the columns that its table has. */
export const viewRowsOf = (plan: LivePlan): { ctes: Sql[]; rows: Sql } =>
  plan.query.groups ? groupRows(plan, plan.query.groups) : { ctes: [], rows: documentRows(plan) };
