import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import { viewLogTable } from '../../catalog/table-names';
import { endOfLog } from '../../chain/erasure-log';
import { cteOf, type LivePlan } from './live-plan';

/**
 * What changes rows: a commit, whose height the head has already; an erasure, which is not logged yet; or a build,
 * which logs its rows before all others.
 */
export type LogPlace = 'commit' | 'erasure' | 'build';

/**
 * The columns that the CTE `put_` returns for the log, with a comma before them: the id of a row, and whether its text
 * is another. Empty where rows are not logged.
 */
export const changedRow = ({ log }: LivePlan, id: Sql): Sql =>
  log === undefined ? empty : sql`, ${id} as id, old.body is distinct from new.body as changed`;

/** The ids of the rows that the CTEs of a view have changed. */
function changedIds(plan: LivePlan): Sql {
  const put = sql`select id from ${cteOf('put_', plan)} where changed`;
  // Groups that are gone are among those that were put.
  return plan.query.groups ? put : sql`${put} union all select id from ${cteOf('dropped_', plan)}`;
}

/** The CTE that logs which rows have changed; none where they are not logged. */
export const loggedCtes = (plan: LivePlan, during: LogPlace): Sql[] => logged(plan, changedIds(plan), during);

/** The ids of the changed rows as the text of an array, for the statement of the turn. None where nothing is logged. */
export const changedIdsText = (plan: LivePlan): Sql[] =>
  plan.log === undefined ? [] : [sql`(select array_agg(id)::text from (${changedIds(plan)}) i)`];

/** As `loggedCtes`, from that text, which is null where no row has changed. */
export const loggedTextCtes = (plan: LivePlan, ids: string | null): Sql[] =>
  logged(plan, sql`select * from unnest(${ids}::text[]) as i(id)`, 'commit');

function logged(plan: LivePlan, ids: Sql, during: LogPlace): Sql[] {
  if (!plan.log) return [];
  const { appNumber, tableNumber } = plan.log;
  const places: Record<LogPlace, Sql> = {
    commit: sql`select height, 0 as place from head where app_number = ${appNumber}`,
    erasure: endOfLog(appNumber),
    build: sql`select 0::int8 as height, 0 as place`,
  };
  return [
    sql`${cteOf('logged_', plan)} as (
      insert into ${viewLogTable(appNumber)} (table_number, height, place, row_id)
      select ${tableNumber}, l.height, l.place, i.id from (${ids}) i cross join (${places[during]}) l)`,
  ];
}
