import { sql, type Sql } from '@granary/shared/postgres/sql';
import { viewKeyColumn } from '../../catalog/table-names';
import { assertTouched, changedFields, cteOf, excluded, keyColumns, selectedText, type LivePlan } from './live-plan';
import { changedRow } from './row-changes';

/** The rows of its source that a view without groups has, as `id, body` and its keys. */
export function documentRows(plan: LivePlan): Sql {
  const { query, source } = plan;
  const where = changedFields(plan).where(query.find, sql`c.w = 1`);
  if (query.projection === 'all') {
    return sql`select c.id, c.body${keyColumns(plan, sql`c.j`).values} from ${source} c ${where}`;
  }
  // The keys are those of what is left.
  return sql`select x.id, x.body${keyColumns(plan, sql`x.j`).values} from (
    select y.id, y.body, y.body::jsonb as j from (
      select c.id, ${selectedText(plan, sql`c.body`)} as body from ${source} c ${where} offset 0) y offset 0) x`;
}

/** CTEs that change the rows of such a view, of which a bounded change touches at most so many. */
export function documentCtes(plan: LivePlan, isBounded: boolean): Sql[] {
  const { source } = plan;
  const [row, put, dropped] = [cteOf('row_', plan), cteOf('put_', plan), cteOf('dropped_', plan)];
  const { names } = keyColumns(plan, sql`c.j`);
  const columns = [sql`body`, ...plan.columns.map(({ key }) => viewKeyColumn(key))];
  const bound = isBounded ? sql`where ${assertTouched(source)}` : sql`where true`;
  return [
    sql`${row} as materialized (${documentRows(plan)})`,
    sql`${put} as (insert into ${plan.table} as v (id, body${names}) select * from ${row} ${bound}
          on conflict (id) do update set ${excluded(columns)} returning old.id is null as added${changedRow(plan, sql`v.id`)})`,
    sql`${dropped} as (delete from ${plan.table} where id in (select id from ${source} where w = -1)
          and id not in (select id from ${row}) returning id)`,
  ];
}
