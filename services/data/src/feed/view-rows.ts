import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { viewLogTable, viewTable } from '../catalog/table-names';
import { commitsTable } from '../chain/commit-log';
import { genesisHash } from '../chain/hash-chain';
import { comparePositions, type Position } from './cursor';

/** A view whose rows are followed: its table, and where its log begins. */
export interface RowSource {
  number: bigint;
  name: string;
  tableNumber: bigint;
  floor: Pick<Position, 'height' | 'place'>;
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

export interface RowLimits {
  changesMax: number;
  bytesMax: number;
}

interface LoggedRow {
  height: bigint;
  place: number;
  row: bigint;
  view_number: bigint;
  id: string;
  is_present: boolean;
  /** Null also where the texts before it are as many bytes as are wanted. */
  body: string | null;
  hash: Buffer | null;
  logged: bigint;
}

/** The rows that have changed behind `from` and before the place of `to`. `db` reads from the snapshot of `to`. */
export async function readViewRows(
  db: Queryable,
  app: App,
  views: readonly RowSource[],
  { from, to }: { from: Position; to: Position },
  { changesMax, bytesMax }: RowLimits,
): Promise<RowPage> {
  if (views.length === 0 || comparePositions(from, to) >= 0) return { entries: [], isCut: false, bytes: 0 };
  const logged = join(
    views.map((view) => loggedOf(app, view, from, to, changesMax)),
    ' union all ',
  );
  const texts = join(
    views.map(({ number, tableNumber }) => textsOf(app, number, tableNumber)),
    ' union all ',
  );
  const changed = await rows<LoggedRow>(
    db,
    sql`with logged as materialized (
          select * from (${logged}) l order by height, place, seq limit ${changesMax}
        ), latest as materialized (
          select * from (select l.*, row_number() over (partition by view_number, row_id order by height desc, place desc, seq desc) as age from logged l) a
          where age = 1
        ), measured as (
          select t.*, sum(coalesce(octet_length(body), 0)) over (order by height, place, seq) - coalesce(octet_length(body), 0) as before
          from (${texts}) t
        )
        select m.height, m.place, m.seq as row, m.view_number, m.row_id as id, m.is_present, c.hash,
          case when m.before < ${bytesMax} then m.body end as body, (select count(*) from logged) as logged
        from measured m left join ${commitsTable(app.number)} c on c.height = m.height
        order by m.height, m.place, m.seq`,
  );
  return pageOf(changed, new Map(views.map((view) => [view.number, view])), changesMax);
}

/** The first entries of the log of one view. */
const loggedOf = (app: App, { number, floor }: RowSource, from: Position, to: Position, max: number): Sql => sql`
  (select view_number, height, place, seq, row_id from ${viewLogTable(app.number)}
   where view_number = ${number} and (height, place, seq) > (${from.height}, ${from.place}, ${from.row})
     and (height, place) < (${to.height}, ${to.place}) and (height, place) >= (${floor.height}, ${floor.place})
   order by height, place, seq limit ${max})`;

const textsOf = (app: App, number: bigint, tableNumber: bigint): Sql => sql`
  select l.height, l.place, l.seq, l.view_number, l.row_id, v.id is not null as is_present, v.body
  from latest l left join ${viewTable(app.number, tableNumber)} v on v.id = l.row_id where l.view_number = ${number}`;

function pageOf(changed: readonly LoggedRow[], views: ReadonlyMap<bigint, RowSource>, changesMax: number): RowPage {
  const cut = changed.findIndex((row) => row.is_present && row.body === null);
  const whole = cut < 0 ? changed : changed.slice(0, cut);
  const entries = whole.map(({ height, place, row, view_number: number, id, body, hash }): ViewEntry => {
    const text = body === null ? undefined : Buffer.from(body);
    return { kind: 'row', height, place, row, view: views.get(number)!, id, text, hash: hash ?? genesisHash };
  });
  return {
    entries,
    isCut: cut >= 0 || changed.at(-1)?.logged === BigInt(changesMax),
    bytes: entries.reduce((sum, { text }) => sum + (text?.length ?? 0), 0),
  };
}
