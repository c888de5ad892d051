import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Logger } from '@granary/shared/logger';
import { viewKeyColumn, viewTable } from '../catalog/table-names';
import type { ViewColumn } from '../query/plan/relation';
import { valueIn } from '../query/sql/row-fields';
import { dropAbandoned, type ReplacedTables } from '../tables/abandoned';
import { isDateType } from '../values/field-type';

/** The table of the rows of a view. */
export interface ViewTable {
  appNumber: bigint;
  number: bigint;
}

const nameOf = ({ appNumber, number }: ViewTable): Sql => viewTable(appNumber, number);

type KeyColumn = ViewColumn & { key: number };
const keysOf = (columns: readonly ViewColumn[]): KeyColumn[] =>
  columns.filter((column): column is KeyColumn => column.key !== undefined);

export async function nextTableNumber(tx: Connection): Promise<bigint> {
  const sequence = await row<{ number: bigint }>(tx, sql`select nextval('view_table_number') as number`);
  return sequence!.number;
}

/** `columns` stand behind those that every view has, each with a comma before it. Room is left where rows change. */
export const createViewTable = (tx: Connection, table: ViewTable, columns?: Sql): Promise<unknown> =>
  execute(
    tx,
    sql`create table ${nameOf(table)} (id text collate "C" primary key, body text not null${columns ?? sql``}) with (fillfactor = ${trusted(columns ? '70' : '100')})`,
  );

/** Adds the columns of keys, while the table is empty. */
export async function addKeyColumns(db: Queryable, table: ViewTable, columns: readonly ViewColumn[]): Promise<void> {
  const added = keysOf(columns).map(({ key }) => sql`add column ${viewKeyColumn(key)} bytea not null`);
  if (added.length > 0) await execute(db, sql`alter table ${nameOf(table)} ${join(added, ', ')}`);
}

/** Inserts rows with their keys; their ids are their places, the first of them behind `before`. */
export function insertRows(
  db: Queryable,
  table: ViewTable,
  columns: readonly ViewColumn[],
  before: number,
  texts: readonly string[],
): Promise<unknown> {
  const keys = keysOf(columns);
  const names = keys.map(({ key }) => sql`, ${viewKeyColumn(key)}`);
  const values = keys.map(({ name, type }) => {
    const makeKey = trusted(isDateType(type) ? 'date_sort_key' : 'sort_key');
    return sql`, coalesce(${makeKey}(${valueIn(sql`d.j`, name.split('.'))}), '\\xf0')`;
  });
  const record = keys.length === 0 ? sql`` : sql`cross join lateral (select b.body::jsonb as j offset 0) d`;
  return execute(
    db,
    sql`insert into ${nameOf(table)} (id, body${join(names, '')})
        select lpad((${before}::bigint + b.n)::text, 19, '0'), b.body${join(values, '')}
        from unnest(${texts}::text[]) with ordinality as b (body, n) ${record}`,
  );
}

/** Creates the indexes of the keys, and the statistics that plans are made by. */
export async function indexRows(
  db: Queryable,
  table: ViewTable,
  columns: readonly ViewColumn[],
  concurrently: boolean,
): Promise<void> {
  const how = concurrently ? trusted('concurrently') : sql``;
  for (const { key } of keysOf(columns)) {
    const name = named('v_', table.number, '_f_', BigInt(key));
    await execute(db, sql`create index ${how} ${name} on ${nameOf(table)} (${viewKeyColumn(key)}, id)`);
  }
  await execute(db, sql`analyze ${nameOf(table)}`);
}

const viewTables = (prefix: 'v_' | 'w_' | 'j_'): ReplacedTables => ({
  prefix,
  inUse: (
    appNumber,
  ) => sql`select used.number from view, unnest(array[table_number, building_table_number]) used(number)
    where app_number = ${appNumber} and used.number is not null`,
});

/** Drops the tables that a refresh or a deletion has left and no view uses. */
export async function dropAbandonedViews(context: { pool: Pool; log: Logger }, appNumber: bigint): Promise<void> {
  await dropAbandoned(context, appNumber, viewTables('v_'));
  await dropAbandoned(context, appNumber, viewTables('w_'));
  await dropAbandoned(context, appNumber, viewTables('j_'));
}
