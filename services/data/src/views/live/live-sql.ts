import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import { documentCtes, documentRows } from './document-rows';
import { deltaArrays, deltasOf, groupCtes, groupDeltas, groupRows } from './group-rows';
import { computedPairCtes, pairCtes, type JoinedChange, type JoinedSources } from './join-pairs';
import { cteOf, rowDelta, type LivePlan } from './live-plan';

export interface ChangeOptions {
  /** Of a view with a join: the side whose documents change. */
  joined: JoinedChange | undefined;
  /** The table is new: a view without groups gets its row. */
  isFirst?: boolean;
  /** Whether a change of too many rows fails: nobody waits for a build. */
  isBounded: boolean;
}

/** CTEs that apply `change` to the rows of a view; `rowDelta` is what they make of their number. */
export function viewCtes(plan: LivePlan, { joined, isFirst = false, isBounded }: ChangeOptions): Sql {
  const { groups } = plan.query;
  const pairs = plan.join && joined ? pairCtes(plan, plan.join, joined, isBounded) : [];
  const ctes = groups
    ? [...groupDeltas(plan, groups, isFirst), ...groupCtes(plan, groups, isBounded)]
    : documentCtes(plan, isBounded);
  return join([...pairs, ...ctes], ', ');
}

/** The CTE that keeps the number of rows in the catalog. */
const countedCte = (plan: LivePlan, delta: Sql): Sql => sql`${cteOf('counted_', plan)} as (
  update view set row_count = row_count + s.delta from (select ${delta} as delta) s
  where number = ${plan.number} and s.delta <> 0)`;

/** The CTEs of a write, with that one. */
export const countedViewCtes = (plan: LivePlan, joined: JoinedChange | undefined): Sql =>
  sql`${viewCtes(plan, { joined, isBounded: true })}, ${countedCte(plan, rowDelta(plan))}`;

/** What new documents do to a view before the lock of the head is held: rows of documents are written, groups only summed. */
export interface PreloadCtes {
  ctes: Sql;
  /** What the statement of the turn needs: rows, each with so many texts. */
  results: ReadonlyArray<{ rows: Sql; columns: number }>;
}

/** Not of a view with a join: its pairs depend on what is there at the turn. */
export function preloadCtes(plan: LivePlan): PreloadCtes {
  const { groups } = plan.query;
  if (groups) return { ctes: join(groupDeltas(plan, groups, false), ', '), results: deltaArrays(plan, groups) };
  const count = { rows: sql`(select (${rowDelta(plan)})::text)`, columns: 1 };
  return { ctes: join(documentCtes(plan, true), ', '), results: [count] };
}

/** The CTEs of the turn, given those texts. */
export function turnCtes(plan: LivePlan, texts: ReadonlyArray<string | null>): Sql {
  const { groups } = plan.query;
  if (!groups) return countedCte(plan, sql`${texts[0]!}::int8`);
  const ctes = [...deltasOf(plan, groups, texts), ...groupCtes(plan, groups, true), countedCte(plan, rowDelta(plan))];
  return join(ctes, ', ');
}

/** A view over all documents, of which `change` has those of the base: CTEs, and its rows with the columns that its table has. */
export function viewRowsOf(plan: LivePlan, joined: JoinedSources | undefined): { ctes: Sql[]; rows: Sql } {
  const ctes = plan.join && joined ? computedPairCtes(plan, plan.join, joined) : [];
  const { groups } = plan.query;
  return { ctes, rows: groups ? groupRows(plan, groups) : documentRows(plan) };
}
