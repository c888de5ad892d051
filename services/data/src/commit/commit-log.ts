import { notFound } from '@granary/shared/errors';
import type { Commit } from '@granary/shared/gen/granary/data/v1/Commit';
import { parseTicket } from '@granary/shared/ids';
import { byteaArray, int8Array, textArray } from '@granary/shared/postgres/wire/binary';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { named, sql, type Sql } from '@granary/shared/postgres/sql';
import type { ReadAccess } from '../catalog/collection';
import { contentHash, linkHash, type Entry, type Head } from './head';
import { TASK_NOT_FOUND } from '../jobs/queue';

/** One link of an app's hash chain: what was stored, at which height, under which hash. */
export interface Link extends Head {
  content: Buffer;
  /** Of what was stored, in order. */
  ids: readonly string[];
}

/** A commit as it was or will be answered for: of an upload's two links this is the first, its document is the second. */
export interface Committed {
  ticketId: string;
  operation: 'store' | 'upload';
  collection: string;
  namespace: string;
  height: bigint;
  hash: Buffer;
  ids: readonly string[];
  /** 0 when the catalog no longer says. */
  collectionNumber: bigint;
  /** Of a collection that this write made. */
  createdWithAccess?: ReadAccess;
}

const commitsTable = (appNumber: bigint): Sql => named('a_', appNumber, '.commits');

/** The table of an app's commits: each row is a link of the chain; the ticket is on the one that answers for a write. */
export async function createCommitsTable(tx: Connection, appNumber: bigint): Promise<void> {
  await execute(
    tx,
    sql`create table ${commitsTable(appNumber)} (
          height bigint primary key, ordinal bigint not null, hash bytea not null, content_hash bytea not null, ticket_id text collate "C" unique,
          operation text not null, collection text not null, namespace text not null, ids text[] not null,
          user_address text, at timestamptz not null)`,
  );
}

/** What a link is made of, wherever it comes to stand. */
export type LinkContent = Pick<Link, 'content' | 'ids'>;

export const linkContent = (collection: string, entries: readonly Entry[]): LinkContent => ({
  content: contentHash(collection, entries),
  ids: entries.map(({ id }) => id),
});

/** The next link after a head. */
export function nextLink(head: Head, { content, ids }: LinkContent): Link {
  const height = head.height + 1n;
  return { height, ordinal: head.ordinal + 1n, hash: linkHash(head.hash, height, content), content, ids };
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
export function insertCommits(appNumber: bigint, commits: readonly CommitRow[], at: Date): Sql {
  const texts = (of: (commit: CommitRow) => string | null) => textArray(commits.map(of));
  // An array of arrays must be rectangular in Postgres, so each list of ids travels as the text of an array.
  return sql`insert into ${commitsTable(appNumber)} (height, ordinal, hash, content_hash, ticket_id, operation, collection, namespace, ids, user_address, at)
        select height, ordinal, hash, content_hash, ticket_id, operation, collection, namespace, ids::text[], user_address, ${at}
        from unnest(${int8Array(commits.map(({ link }) => Number(link.height)))}::int8[],
            ${int8Array(commits.map(({ link }) => Number(link.ordinal)))}::int8[],
            ${byteaArray(commits.map(({ link }) => link.hash))}::bytea[],
            ${byteaArray(commits.map(({ link }) => link.content))}::bytea[], ${texts(({ ticketId }) => ticketId)}::text[],
            ${texts(({ operation }) => operation)}::text[], ${texts(({ collection }) => collection)}::text[],
            ${texts(({ namespace }) => namespace)}::text[], ${texts(({ link }) => arrayText(link.ids))}::text[],
            ${texts(({ userAddress }) => userAddress)}::text[])
          as c(height, ordinal, hash, content_hash, ticket_id, operation, collection, namespace, ids, user_address)`;
}

/**
 * The ids of a link, of which there is one at least, as the text of a Postgres array: each in quotes, with a backslash
 * before quotes and backslashes. The quotes stand in what they are joined by, so that most ids are not copied before.
 */
const arrayText = (ids: readonly string[]): string =>
  `{"${ids.map((id) => (/["\\]/.test(id) ? id.replace(/["\\]/g, '\\$&') : id)).join('","')}"}`;

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
 * The collection that a name stood for at the time of a commit: the live one unless it was made later, else the last
 * one before.
 */
const collectionAt = (appNumber: bigint): Sql => {
  const candidate = sql`app_number = ${appNumber} and name = c.collection and created_at <= c.at`;
  return sql`coalesce((select number from collection where ${candidate} and deleted_at is null),
    (select max(number) from collection where ${candidate}))`;
};

async function findStored(db: Queryable, appNumber: bigint, ticketIds: readonly string[]): Promise<StoredCommit[]> {
  return rows<StoredCommit>(
    db,
    sql`select ticket_id, operation, collection, namespace, height, hash, ids, user_address, at,
          ${collectionAt(appNumber)} as collection_number
        from ${commitsTable(appNumber)} c where ticket_id = any(${ticketIds})`,
  );
}

const toCommitted = ({ ticket_id: ticketId, collection_number: number, ...rest }: StoredCommit): Committed => ({
  ...{ ticketId, ...rest },
  collectionNumber: number ?? 0n,
});

/** Those of the tickets that have committed, by ticket. Definite only under the lock of the app's head. */
export async function findCommitted(
  db: Queryable,
  appNumber: bigint,
  ticketIds: readonly string[],
): Promise<Map<string, Committed>> {
  const found = await findStored(db, appNumber, ticketIds);
  return new Map(found.map((stored) => [stored.ticket_id, toCommitted(stored)]));
}

/**
 * The results of a commit as JSON text: for each document, of which there is one at least, its id, and the height and
 * hash of the commit.
 */
export function resultsJson({ ids, height, hash, namespace }: Committed): Buffer {
  const tail = `,"celestia_height":${height},"blob_id":"${hash.toString('hex')}","namespace":${JSON.stringify(namespace)}}`;
  return Buffer.from(`[{"id":${ids.map((id) => JSON.stringify(id)).join(`${tail},{"id":`)}${tail}]`);
}

/** The commit of a ticket. Throws TASK_NOT_FOUND for any other text. */
export async function getCommit(pool: Pool, ticketId: string): Promise<Commit> {
  const unknown = notFound(TASK_NOT_FOUND, 'There is no such task');
  const ticket = parseTicket(ticketId);
  if (ticket?.kind !== 'c' || ticket.appNumber > 2n ** 63n - 1n) throw unknown;
  const app = await row<{ app_id: string }>(
    pool,
    sql`select app_id from application where number = ${ticket.appNumber} and deleted_at is null`,
  );
  if (!app) throw unknown;
  const [stored] = await findStored(pool, ticket.appNumber, [ticketId]);
  if (!stored) throw unknown;
  return {
    ticketId,
    appId: app.app_id,
    operationType: stored.operation,
    collection: stored.collection,
    transactionHash: stored.hash.toString('hex'),
    height: stored.height.toString(),
    collectionNumber: (stored.collection_number ?? 0n).toString(),
    committedAt: stored.at.toISOString(),
    userAddress: stored.user_address ?? '',
    resultJson: Buffer.concat([Buffer.from('{"results":'), resultsJson(toCommitted(stored)), Buffer.from('}')]),
  };
}
