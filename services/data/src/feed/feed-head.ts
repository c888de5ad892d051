import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { appNotFound, type App } from '../catalog/app';
import { commitsTable, entryCount } from '../chain/commit-log';
import { endOfErasures } from '../chain/erasure-log';
import { genesisHash } from '../chain/hash-chain';
import { cursorAhead, cursorGone, shortHash, type Position, type Since } from './cursor';

/** The end of the log of an app, and the beginning of a feed in it, in one snapshot. */
export interface FeedHead {
  height: bigint;
  catalogRevision: bigint;
  /** Whether anything was ever erased in the app. */
  hasErasures: boolean;
  /** Where the feed begins. */
  position: Position;
  /** The end of the log when it began at the start; undefined where it is not known, or does not matter any more. */
  initialEnd: Position | undefined;
  /** The hash of the commit at that height. */
  hash: Buffer;
}

interface HeadRow {
  height: bigint;
  revision: bigint;
  has_erasures: boolean;
  hash: Buffer | null;
  documents: number | null;
}

/** Throws APP_NOT_FOUND, CURSOR_AHEAD, CURSOR_GONE. */
export async function readFeedHead(db: Queryable, app: App, since: Since): Promise<FeedHead> {
  const height = heightOf(since);
  const head = await row<HeadRow>(
    db,
    sql`select h.height, h.catalog_revision as revision, to_regclass(${`a_${app.number}.erasures`}) is not null as has_erasures,
          c.hash, ${entryCount(sql`c`)} as documents
        from head h left join ${commitsTable(app.number)} c on c.height = coalesce(${height ?? null}::int8, h.height)
        where h.app_number = ${app.number}`,
  );
  if (!head) throw appNotFound(app.appId);
  // A cursor was issued by us, so one beyond the head is of commits that a backup did not have.
  if (height !== undefined && height > head.height)
    throw since.kind === 'cursor' ? cursorGone() : cursorAhead(head.height);
  const hash = head.hash ?? genesisHash;
  if (since.kind === 'cursor' && since.hash !== shortHash(hash)) throw cursorGone();
  const documents = head.documents ?? 0;
  const state = {
    height: head.height,
    catalogRevision: head.revision,
    hasErasures: head.has_erasures,
    hash,
    initialEnd: since.kind === 'cursor' ? since.initialEnd : undefined,
  };
  const position =
    since.kind === 'cursor' ? since.position : { height: height ?? head.height, place: documents, row: 0n };
  // Behind the documents of a commit there may be erasures. No feed of this history has given a position behind them.
  const mayBeErasure = head.has_erasures && (since.kind === 'now' || position.place > documents);
  const end = mayBeErasure ? await placeBehindErasures(db, app, position.height, documents) : documents;
  // With the right hash it is behind erasures that a backup did not have.
  if (position.place > end) throw cursorGone();
  return { ...state, position: since.kind === 'now' ? { ...position, place: end } : position };
}

const heightOf = (since: Since): bigint | undefined =>
  since.kind === 'now' ? undefined : since.kind === 'height' ? since.height : since.position.height;

/** The place behind all that happened at a height. */
async function placeBehindErasures(db: Queryable, { number }: App, height: bigint, documents: number): Promise<number> {
  const end = await row<{ place: number }>(db, endOfErasures(number, sql`${height}`));
  return Math.max(documents, end?.place ?? 0);
}
