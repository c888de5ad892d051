import { row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { notFound, ServiceError } from '@granary/shared/errors';
import { findApp } from '../catalog/app';
import { shownViewName } from '../catalog/table-names';
import type { StoredView } from '../query/plan/relation';
import { readLayout } from './layout';

export const VIEW_NOT_FOUND = 'VIEW_NOT_FOUND';

/** A view as it is stored. */
export interface ViewRef {
  appNumber: bigint;
  appId: string;
  number: bigint;
  name: string;
  queryText: string;
  sourceCollections: string[];
  refreshMode: string;
  variablesText: string;
  readAccess: string;
  status: string;
  error: string | null;
  tableNumber: bigint | null;
  layoutText: string | null;
  rowCount: bigint;
  createdAt: Date;
  refreshedAt: Date | null;
  readPriceText: string | null;
  /** Whether the changes of its rows are kept, and from which place of the app on they are all there. */
  keepsChanges: boolean;
  changesHeight: bigint | null;
  changesPlace: number | null;
  /** By which the ids of its rows are hidden. */
  rowSecret: string;
  /** The number of the view whose place it takes once it is filled; null for a view. */
  replaces: bigint | null;
  /** Whether anything of its application has a price. */
  mayHavePrices: boolean;
  /** Changes whenever the row does: with each refresh, and each change of its definition. */
  state: string;
}

export const viewColumns = sql`v.app_number as "appNumber", a.app_id as "appId", v.number, ${shownViewName} as name, v.replaces, v.query_text as "queryText",
  v.source_collections as "sourceCollections", v.refresh_mode as "refreshMode", v.variables_text as "variablesText",
  v.read_access as "readAccess", v.status, v.error, v.table_number as "tableNumber", v.layout_text as "layoutText",
  v.row_count as "rowCount", v.keeps_changes as "keepsChanges", v.changes_height as "changesHeight", v.changes_place as "changesPlace", v.row_secret as "rowSecret",
  v.created_at as "createdAt",
  case when v.refresh_mode = 'lazy' then v.refreshed_at else (
    select max(coalesce(c.last_write_at, v.refreshed_at)) from collection c
    where c.app_number = v.app_number and c.name = any(v.source_collections) and c.deleted_at is null) end as "refreshedAt",
  v.read_price_config_text as "readPriceText",
  v.read_price_config_text is not null
    or exists (select from collection p where p.app_number = v.app_number and p.read_price_config_text is not null)
    or exists (select from document_index p where p.app_number = v.app_number and p.read_price_config_text is not null)
    as "mayHavePrices",
  concat_ws('.', v.number, v.xmin, v.table_number, date_part('epoch', v.refreshed_at)) as state`;
export const viewsWithApp = sql`view v join application a on a.number = v.app_number and a.deleted_at is null`;

/** A view of an app, undefined when there is none of this name. */
export function findView(db: Queryable, app: { number: bigint }, name: string): Promise<ViewRef | undefined> {
  return row<ViewRef>(
    db,
    sql`select ${viewColumns} from ${viewsWithApp} where v.app_number = ${app.number} and v.name = ${name}
        and v.replaces is null`,
  );
}

/** The views of an app that have one of these names. */
export const findViews = (db: Queryable, app: { number: bigint }, names: readonly string[]): Promise<ViewRef[]> =>
  rows<ViewRef>(
    db,
    sql`select ${viewColumns} from ${viewsWithApp} where v.app_number = ${app.number} and v.name = any(${names}::text[])
        and v.replaces is null`,
  );

/** Throws APP_NOT_FOUND, VIEW_NOT_FOUND. */
export async function requireView(db: Queryable, appId: string, name: string): Promise<ViewRef> {
  const view = await findView(db, await findApp(db, appId), name);
  if (!view) throw viewNotFound(name);
  return view;
}

export const viewNotFound = (name: string): ServiceError => notFound(VIEW_NOT_FOUND, `There is no view ${name}`);

/** The rows of a view as they are read. */
export const storedView = ({ appNumber, tableNumber, rowCount, layoutText }: ViewRef): StoredView => ({
  appNumber,
  tableNumber,
  rowCount,
  columns: readLayout(layoutText).columns,
});
