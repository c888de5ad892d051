import { byteaArray, int8Array, textArray } from '@granary/shared/postgres/wire/binary';
import { execute, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Link } from './hash-chain';

/** A position is beyond the last commit. */
export const CURSOR_AHEAD = 'CURSOR_AHEAD';

export const commitsTable = (appNumber: bigint): Sql => named('a_', appNumber, '.commits');

/** The bytes of each hash in `hashes`. */
export const hashBytes = 32;

/** How many documents a row of the table stored, by the length of its hashes where it has them: that is read alone. */
export const entryCount = (commit: Sql): Sql =>
  sql`coalesce(octet_length(${commit}.hashes) / ${trusted(String(hashBytes))}, cardinality(${commit}.ids))`;

/** Creates the table of an app's commits: each row is a link of the chain; the first link of a write has its ticket. */
export async function createCommitsTable(tx: Connection, appNumber: bigint): Promise<void> {
  await execute(
    tx,
    sql`create table ${commitsTable(appNumber)} (
          height bigint primary key, ordinal bigint not null, hash bytea not null, content_hash bytea not null, ticket_id text collate "C" unique,
          operation text not null, collection text not null, namespace text not null, ids text[] not null,
          user_address text, at timestamptz not null, hashes bytea)`,
  );
  // Hashes cannot be compressed, and their length is read without them.
  await execute(tx, sql`alter table ${commitsTable(appNumber)} alter column hashes set storage external`);
}

export interface CommitRow {
  link: Link;
  /** Null for the second link of an upload. */
  ticketId: string | null;
  operation: 'store' | 'upload';
  collection: string;
  namespace: string;
  userAddress: string | null;
}

/** One statement that writes links. */
export function insertCommits(appNumber: bigint, commits: readonly CommitRow[], time: Date): Sql {
  const texts = (of: (commit: CommitRow) => string | null) => textArray(commits.map(of));
  // An array of arrays must be rectangular in Postgres, so each list of ids travels as the text of an array.
  return sql`insert into ${commitsTable(appNumber)} (height, ordinal, hash, content_hash, ticket_id, operation, collection, namespace, ids, user_address, at, hashes)
        select height, ordinal, hash, content_hash, ticket_id, operation, collection, namespace, ids::text[], user_address, ${time}, hashes
        from unnest(${int8Array(commits.map(({ link }) => Number(link.height)))}::int8[],
            ${int8Array(commits.map(({ link }) => Number(link.ordinal)))}::int8[],
            ${byteaArray(commits.map(({ link }) => link.hash))}::bytea[],
            ${byteaArray(commits.map(({ link }) => link.content))}::bytea[], ${texts(({ ticketId }) => ticketId)}::text[],
            ${texts(({ operation }) => operation)}::text[], ${texts(({ collection }) => collection)}::text[],
            ${texts(({ namespace }) => namespace)}::text[], ${texts(({ link }) => arrayText(link.ids))}::text[],
            ${texts(({ userAddress }) => userAddress)}::text[],
            ${byteaArray(commits.map(({ link }) => link.hashes))}::bytea[])
          as c(height, ordinal, hash, content_hash, ticket_id, operation, collection, namespace, ids, user_address, hashes)`;
}

/**
 * The ids of a link, of which there is one at least, as the text of a Postgres array: each in quotes, with a backslash
 * before quotes and backslashes. The quotes are part of the separator, so that most ids are not copied first.
 */
const arrayText = (ids: readonly string[]): string =>
  `{"${ids.map((id) => (/["\\]/.test(id) ? id.replace(/["\\]/g, '\\$&') : id)).join('","')}"}`;

/** A commit, by the first of its links. */
export interface Commit {
  ticketId: string;
  operation: 'store' | 'upload';
  collection: string;
  namespace: string;
  height: bigint;
  hash: Buffer;
  ids: readonly string[];
  /** 0 when the catalog no longer says. */
  collectionNumber: bigint;
}

/** A commit as it is logged. */
export interface LoggedCommit extends Commit {
  userAddress: string | null;
  at: Date;
}

interface StoredCommit {
  ticket_id: string;
  operation: 'store' | 'upload';
  collection: string;
  namespace: string;
  height: bigint;
  hash: Buffer;
  ids: string[];
  user_address: string | null;
  at: Date;
  collection_number: bigint | null;
}

/**
 * The collection that had the name at the time of a commit: the live one unless it was created later, else the first
 * one that was not dropped by then. The clocks by which collections and commits are dated may differ by milliseconds,
 * so a commit may seem to be older than its collection, or younger than the drop of it.
 */
export const collectionAt = (appNumber: bigint): Sql => {
  const candidate = sql`app_number = ${appNumber} and name = c.collection`;
  return sql`coalesce((select number from collection where ${candidate} and deleted_at is null and created_at <= c.at),
    (select min(number) from collection where ${candidate} and (deleted_at is null or deleted_at >= c.at)),
    (select max(number) from collection where ${candidate}))`;
};

/** A link of the chain as it is logged. */
export interface LoggedLink {
  height: bigint;
  ordinal: bigint;
  hash: Buffer;
  collection: string;
  ids: string[];
}

/** Returns `count` links from a height on, in order. */
export const findLinks = (db: Queryable, appNumber: bigint, height: bigint, count: number): Promise<LoggedLink[]> =>
  rows<LoggedLink>(
    db,
    sql`select height, ordinal, hash, collection, ids from ${commitsTable(appNumber)}
        where height >= ${height} and height < ${height + BigInt(count)} order by height`,
  );

/**
 * Finds the commits of tickets, and leaves out tickets that have not committed. The answer is definite only while the
 * app's head is locked.
 */
export async function findCommits(
  db: Queryable,
  appNumber: bigint,
  ticketIds: readonly string[],
): Promise<LoggedCommit[]> {
  const commits = await rows<StoredCommit>(
    db,
    sql`select ticket_id, operation, collection, namespace, height, hash, ids, user_address, at,
          ${collectionAt(appNumber)} as collection_number
        from ${commitsTable(appNumber)} c where ticket_id = any(${ticketIds})`,
  );
  return commits.map(({ operation, collection, namespace, height, hash, ids, at, ...stored }) => ({
    ticketId: stored.ticket_id,
    operation,
    collection,
    collectionNumber: stored.collection_number ?? 0n,
    namespace,
    height,
    hash,
    ids,
    userAddress: stored.user_address,
    at,
  }));
}

/** The heights of the commits with these ordinals, which grow with the heights but are in no index. */
export async function heightsOf(
  db: Queryable,
  appNumber: bigint,
  ordinals: readonly number[],
  lastHeight: bigint,
): Promise<ReadonlyMap<number, number>> {
  const heights = await rows<{ ordinal: bigint; height: bigint }>(
    db,
    sql`with recursive search(ordinal, low, high) as (
          select o, 1::int8, ${lastHeight}::int8 from unnest(${int8Array(ordinals)}::int8[]) o
          union all
          select s.ordinal, case when m.is_before then m.height + 1 else s.low end,
            case when m.is_before then s.high else m.height end
          from search s cross join lateral (
            select c.height, coalesce(c.ordinal, c.height) < s.ordinal as is_before
            from ${commitsTable(appNumber)} c where c.height = (s.low + s.high) / 2) m
          where s.low < s.high
        )
        select ordinal, low as height from search where low = high`,
  );
  return new Map(heights.map(({ ordinal, height }) => [Number(ordinal), Number(height)]));
}
