import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import { documentCtes, documentRows } from './document-rows';
import { deltaArrays, deltasOf, groupCtes, groupDeltas, groupRows } from './group-rows';
import { computedPairCtes, pairCtes, type JoinedChange, type JoinedSources } from './join-pairs';
import { cteOf, rowDelta, type LivePlan } from './live-plan';
import { changedIdsText, loggedCtes, loggedTextCtes, type LogPlace } from './row-changes';

/**
 * The rows of a live view follow a change of documents in one pipeline of CTEs, which is part of the statement that
 * changes the documents. The name of each CTE ends in the number of its view, so that one statement holds the pipelines
 * of several views, and after that in the number of its slot, if it belongs to one (entries.ts). A CTE reads those
 * above it.
 *
 * All views (changes.ts):
 *   change     versions of documents: weight −1 those that went, weight 1 those that came
 *
 * Views with a join (join-pairs.ts):
 *   keyed_     `change` with the key of the join
 *   turned_    keys that have got their first partner or lost their last one
 *   met_       `keyed_` with the ids of the other collection that have the key
 *   pair_      the pairs with their records: all that follows reads them in the place of `change`
 *   entered_   writes the keys of documents that came
 *   left_      removes the keys of documents that went
 *
 * Views with groups (group-rows.ts, entries.ts):
 *   changed_   the rows that count, with the values of their groups and the arguments of aggregates
 *   delta_     for each group the differences of its sums
 *   entry_     for each group and value of a slot the difference of the number of its rows
 *   merged_    writes `entry_` to the table of entries
 *   kept_      for each group how many values its slot has got or lost
 *   least_     for each group the first value that its slot has got
 *   most_      for each group the last one
 *
 * All views (group-rows.ts or document-rows.ts):
 *   row_       the rows that the view has after the change
 *   put_       writes them to the table of the view
 *   dropped_   removes the rows that the view has no more
 *   logged_    writes to the log which rows have changed, for views with `changes` (row-changes.ts)
 *   counted_   writes the number of rows to the catalog (this file)
 *
 * A bulk derives `delta_` and `entry_` before its turn, from documents that no table has yet. The statement of the turn
 * gets them as parameters and goes on from there.
 */

export interface ChangeOptions {
  /** The side whose documents change, where the view has a join. */
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
  return join([...pairs, ...ctes, ...(isBounded ? [] : loggedCtes(plan, 'build'))], ', ');
}

/** The CTE that keeps the number of rows in the catalog. */
const countedCte = (plan: LivePlan, delta: Sql): Sql => sql`${cteOf('counted_', plan)} as (
  update view set row_count = row_count + s.delta from (select ${delta} as delta) s
  where number = ${plan.number} and s.delta <> 0)`;

/** The CTEs of a write, with those that log and count the rows. */
export const countedViewCtes = (plan: LivePlan, joined: JoinedChange | undefined, during: LogPlace): Sql =>
  join(
    [viewCtes(plan, { joined, isBounded: true }), ...loggedCtes(plan, during), countedCte(plan, rowDelta(plan))],
    ', ',
  );

/** The part that runs before the lock of the head is held: it writes rows of documents, and only sums groups. */
export interface PreloadCtes {
  ctes: Sql;
  /** The results that the statement of the turn needs: rows, each with so many texts. */
  results: ReadonlyArray<{ rows: Sql; columns: number }>;
}

/**
 * Makes the part before the lock for a view without a join. The pairs of a join depend on the documents at the turn, so
 * they cannot be made before it.
 */
export function preloadCtes(plan: LivePlan): PreloadCtes {
  const { groups } = plan.query;
  if (groups) return { ctes: join(groupDeltas(plan, groups, false), ', '), results: deltaArrays(plan, groups) };
  const texts = [sql`(${rowDelta(plan)})::text`, ...changedIdsText(plan)];
  const results = [{ rows: sql`(select ${join(texts, ', ')})`, columns: texts.length }];
  return { ctes: join(documentCtes(plan, true), ', '), results };
}

/** The CTEs of the turn, made from the texts of the results. */
export function turnCtes(plan: LivePlan, texts: ReadonlyArray<string | null>): Sql {
  const { groups } = plan.query;
  if (!groups) {
    const [count, ids] = texts;
    return join([...loggedTextCtes(plan, ids ?? null), countedCte(plan, sql`${count!}::int8`)], ', ');
  }
  const ctes = [...deltasOf(plan, groups, texts), ...groupCtes(plan, groups, true)];
  return join([...ctes, ...loggedCtes(plan, 'commit'), countedCte(plan, rowDelta(plan))], ', ');
}

/**
 * The rows of a view over all documents, with the columns that its table has, and the CTEs that they need. `change`
 * holds the documents of the base.
 */
export function viewRowsOf(plan: LivePlan, joined: JoinedSources | undefined): { ctes: Sql[]; rows: Sql } {
  const ctes = plan.join && joined ? computedPairCtes(plan, plan.join, joined) : [];
  const { groups } = plan.query;
  return { ctes, rows: groups ? groupRows(plan, groups) : documentRows(plan) };
}
