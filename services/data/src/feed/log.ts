import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { collectionAt, commitsTable, entryCount, hashBytes } from '../chain/commit-log';
import { erasuresTable, type BetweenReason, type ErasureReason } from '../chain/erasure-log';
import { comparePositions, type Position } from './cursor';
import type { FeedHead } from './feed-head';

/** Commits of one window, at most. */
const commitsMax = 500;
/** One change in the log of an app: a version of a document that a commit stored, or an erasure after it. */
export interface LogEntry {
  kind: 'stored' | ErasureReason;
  height: bigint;
  /** The place among the changes of its height. */
  place: number;
  collection: string;
  /** Null where the catalog no longer says. */
  collectionNumber: bigint | null;
  /** Undefined for a collection that was dropped. */
  id: string | undefined;
  at: Date;
  /** Of an erasure: whether anybody could read the collection then. */
  isPublic: boolean;
  /** Of a version: its ordinal, and the SHA-256 of its text in hex, null where it was not kept. */
  ordinal: bigint;
  sha256: string | null;
}

/** A part of a log, in order. */
export interface LogWindow {
  entries: readonly LogEntry[];
  /** Where it ends: positions behind entries, and behind what is no change, such as the bytes of an upload. */
  end: Position;
  /** The hash of each commit that the window has a part of, and of the one at which it begins. */
  hashes: ReadonlyMap<bigint, Buffer>;
  /** The height up to which all changes are in this window or before it. */
  completeHeight: bigint;
  /** Whether it ends at the head. */
  isWhole: boolean;
}

interface CommitSlice {
  height: bigint;
  ordinal: bigint;
  hash: Buffer;
  is_blob: boolean;
  collection: string;
  collection_number: bigint | null;
  /** The documents of the commit, and those of them that are in the slice. */
  documents: number;
  first: number;
  ids: string[];
  hashes: Buffer | null;
  at: Date;
}

interface ErasureRow {
  height: bigint;
  place: number;
  reason: BetweenReason;
  collection: string;
  collection_number: bigint;
  is_public: boolean;
  ids: string[];
  at: Date;
}

/** The log from a position on, up to the head that was read before: so many entries of either kind at most. */
export async function readLog(db: Queryable, app: App, head: FeedHead, entriesMax: number): Promise<LogWindow> {
  const slices = await readCommitSlices(db, app, head, entriesMax);
  const last = slices.at(-1);
  // Erasures follow the documents of their commit, so those of a commit that is read in part come later.
  const completeHeight = !last ? head.position.height : isWholeSlice(last) ? last.height : last.height - 1n;
  const log = { head, slices, completeHeight };
  if (!head.hasErasures) return windowOf({ ...log, erasures: [], isCut: false });
  const erasures = await readErasures(db, app, head.position, completeHeight, entriesMax);
  const count = erasures.reduce((sum, { ids }) => sum + Math.max(ids.length, 1), 0);
  return windowOf({ ...log, erasures, isCut: count >= entriesMax });
}

const isWholeSlice = ({ first, ids, documents }: CommitSlice): boolean => first + ids.length === documents;

const readCommitSlices = (
  db: Queryable,
  { number }: App,
  { position: { height, place }, height: headHeight }: FeedHead,
  entriesMax: number,
): Promise<CommitSlice[]> =>
  rows<CommitSlice>(
    db,
    sql`select height, coalesce(ordinal, height) as ordinal, hash, operation = 'upload' and ticket_id is not null as is_blob,
          collection, ${collectionAt(number)} as collection_number, documents, first, at, ids[first + 1 : first + taken] as ids,
          substring(hashes from first * ${hashBytes}::int4 + 1 for taken * ${hashBytes}::int4) as hashes
        from (
          select m.*, least(documents - first, ${entriesMax}::int8 - before)::int4 as taken from (
            select n.*, coalesce(sum(documents - first) over (order by height rows between unbounded preceding and 1 preceding), 0) as before
            from (
              select k.*, ${entryCount(sql`k`)} as documents, case when k.height = ${height} then ${place}::int4 else 0 end as first
              from ${commitsTable(number)} k where k.height between ${height} and ${headHeight}
              order by k.height limit ${commitsMax}
            ) n where documents > first
          ) m
        ) c where taken > 0 order by height`,
  );

const readErasures = (
  db: Queryable,
  { number }: App,
  { height, place }: Position,
  lastHeight: bigint,
  entriesMax: number,
): Promise<ErasureRow[]> =>
  rows<ErasureRow>(
    db,
    sql`select height, place, reason, collection, collection_number, is_public, ids, at from (
          select e.*, coalesce(sum(greatest(cardinality(ids), 1)) over (
            order by height, place rows between unbounded preceding and 1 preceding), 0) as before
          from (
            select * from ${erasuresTable(number)} where height between ${height} and ${lastHeight}
              and (height > ${height} or place >= coalesce((
                select max(place) from ${erasuresTable(number)} where height = ${height} and place <= ${place}), 0))
            order by height, place limit ${entriesMax}
          ) e
        ) b where before < ${entriesMax} order by height, place`,
  );

interface Logs {
  head: FeedHead;
  slices: readonly CommitSlice[];
  completeHeight: bigint;
  erasures: readonly ErasureRow[];
  /** Whether there may be more erasures behind the last one. */
  isCut: boolean;
}

/** Joins both logs in their order. */
function windowOf({ head, slices, completeHeight, erasures, isCut }: Logs): LogWindow {
  const { position, hash, height: headHeight } = head;
  const hashes = new Map([[position.height, hash], ...slices.map((slice) => [slice.height, slice.hash] as const)]);
  const lastErasure = isCut ? erasures.at(-1)! : undefined;
  const parts = [...slices.map(partOfCommit), ...erasures.map((row) => partOfErasure(row, position))].sort(inOrder);
  const entries: LogEntry[] = [];
  let end = position;
  for (const part of parts) {
    // What follows erasures that were not read comes in another window.
    if (lastErasure && part.end.height > lastErasure.height) break;
    if (part.entries.length === 0 && part.end.height === position.height && part.end.place <= position.place) continue;
    entries.push(...part.entries);
    end = part.end;
  }
  return {
    entries,
    end,
    hashes,
    completeHeight: lastErasure ? lastErasure.height - 1n : completeHeight,
    isWhole: !lastErasure && completeHeight === headHeight,
  };
}

/** Entries that follow each other, and the positions before and behind them. */
interface LogPiece {
  entries: readonly LogEntry[];
  first: Position;
  end: Position;
}

const inOrder = ({ first: one }: LogPiece, { first: other }: LogPiece): number => comparePositions(one, other);

function partOfCommit(slice: CommitSlice): LogPiece {
  const { height, first, ordinal, collection, at, ids, hashes } = slice;
  const entryOf = (id: string, index: number): LogEntry => ({
    kind: 'stored',
    height,
    place: first + index,
    collection,
    collectionNumber: slice.collection_number,
    id,
    at,
    isPublic: false,
    ordinal,
    sha256: hashes?.toString('hex', index * hashBytes, (index + 1) * hashBytes) ?? null,
  });
  return {
    // The bytes of an upload are no document; their metadata has a commit of its own.
    entries: slice.is_blob ? [] : ids.map(entryOf),
    first: { height, place: first, row: 0n },
    end: { height, place: first + ids.length, row: 0n },
  };
}

function partOfErasure({ height, place, reason, collection, ids, at, ...row }: ErasureRow, from: Position): LogPiece {
  const end = { height, place: place + Math.max(ids.length, 1), row: 0n };
  // The beginning of the log of a view takes a place, and is no change.
  if (reason === 'view') return { entries: [], first: { height, place, row: 0n }, end };
  const entryOf = (id: string | undefined, index: number): LogEntry => ({
    kind: reason,
    height,
    place: place + index,
    collection,
    collectionNumber: row.collection_number,
    id,
    at,
    isPublic: row.is_public,
    ordinal: 0n,
    sha256: null,
  });
  const all = reason === 'dropped' ? [entryOf(undefined, 0)] : ids.map(entryOf);
  const entries = all.filter((entry) => height > from.height || entry.place >= from.place);
  return { entries, first: { height, place: entries[0]?.place ?? place, row: 0n }, end };
}
