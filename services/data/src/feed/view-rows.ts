import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { viewLogTable, viewTable } from '../catalog/table-names';
import { commitsTable } from '../chain/commit-log';
import { genesisHash } from '../chain/hash-chain';
import { comparePositions, type Position } from './cursor';

/** A view whose rows are followed, with its table. */
export interface RowSource {
  number: bigint;
  name: string;
  tableNumber: bigint;
  rowSecret: string;
}

/** A row of a view that has changed, as it is now. */
export interface ViewEntry {
  kind: 'row';
  height: bigint;
  place: number;
  /** Its number in the log of rows. */
  row: bigint;
  view: RowSource;
  id: string;
  /** Undefined where it is gone. */
  text: Buffer | undefined;
  /** The hash of the commit at its height. */
  hash: Buffer;
}

/** Changed rows in order, each at its last change among those that were read. */
export interface RowPage {
  entries: readonly ViewEntry[];
  /** Whether there may be more behind them. */
  isCut: boolean;
  /** Bytes of their texts. */
  bytes: number;
}

interface LoggedRow {
  table_number: bigint;
  height: bigint;
  place: number;
  row: bigint;
  id: string;
  hash: Buffer | null;
}

interface RowText {
  n: bigint;
  /** Null where the texts before it are as many bytes as are wanted. */
  body: string | null;
}

/** The rows that have changed behind `from` and before the place of `to`. `db` reads from the snapshot of `to`. */
export async function readViewRows(
  db: Queryable,
  app: App,
  views: readonly RowSource[],
  { from, to }: { from: Position; to: Position },
  { changesMax, bytesMax }: { changesMax: number; bytesMax: number },
): Promise<RowPage> {
  const none: RowPage = { entries: [], isCut: false, bytes: 0 };
  if (views.length === 0 || comparePositions(from, to) >= 0) return none;
  const changes = await readLogged(db, app, views, from, to, changesMax);
  if (changes.length === 0) return none;
  const latest = latestOf(changes);
  const byTable = new Map(views.map((view) => [view.tableNumber, view]));
  const tables = [...new Set(latest.map(({ table_number: table }) => table))];
  const texts = await readTexts(db, app, tables, latest, bytesMax);
  const cut = latest.findIndex((_, index) => texts.get(index) === null);
  const entries = (cut < 0 ? latest : latest.slice(0, cut)).map((change, index): ViewEntry => {
    const { table_number: table, height, place, row, id, hash } = change;
    const body = texts.get(index) ?? undefined;
    const text = body === undefined ? undefined : Buffer.from(body);
    return { kind: 'row', height, place, row, view: byTable.get(table)!, id, text, hash: hash ?? genesisHash };
  });
  const bytes = entries.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
  return { entries, isCut: cut >= 0 || changes.length === changesMax, bytes };
}

/** The first changes of all views, in order. */
const readLogged = (
  db: Queryable,
  app: App,
  views: readonly RowSource[],
  from: Position,
  to: Position,
  max: number,
): Promise<LoggedRow[]> =>
  rows<LoggedRow>(
    db,
    sql`select l.*, c.hash from (
          select o.* from unnest(${views.map(({ tableNumber }) => tableNumber.toString())}::int8[]) t(number)
          cross join lateral (
            select table_number, height, place, seq as row, row_id as id from ${viewLogTable(app.number)}
            where table_number = t.number and (height, place, seq) > (${from.height}, ${from.place}, ${from.row})
              and (height, place) < (${to.height}, ${to.place})
            order by height, place, seq limit ${max}) o
          order by o.height, o.place, o.row limit ${max}) l
        left join ${commitsTable(app.number)} c on c.height = l.height
        order by l.height, l.place, l.row`,
  );

/** The last change of each row. */
function latestOf(changes: readonly LoggedRow[]): LoggedRow[] {
  const latest = new Map<string, LoggedRow>();
  for (const change of changes) {
    const key = `${change.table_number} ${change.id}`;
    latest.delete(key);
    latest.set(key, change);
  }
  return [...latest.values()];
}

/** The texts of the rows that are there, by the places of their changes. */
async function readTexts(
  db: Queryable,
  app: App,
  tables: readonly bigint[],
  changes: readonly LoggedRow[],
  bytesMax: number,
): Promise<Map<number, string | null>> {
  const ofTable = (table: bigint): Sql => sql`
    select w.n, v.body from wanted w join ${viewTable(app.number, table)} v on v.id = w.id where w.table_number = ${table}`;
  const texts = await rows<RowText>(
    db,
    sql`with wanted as materialized (
          select * from unnest(${changes.map((change) => change.table_number.toString())}::int8[], ${changes.map(({ id }) => id)}::text[])
            with ordinality as w(table_number, id, n)
        )
        select n, case when sum(octet_length(body)) over (order by n) - octet_length(body) < ${bytesMax} then body end as body
        from (${join(tables.map(ofTable), ' union all ')}) t`,
  );
  return new Map(texts.map(({ n, body }) => [Number(n) - 1, body]));
}
