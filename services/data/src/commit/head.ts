import { hash } from 'node:crypto';
import { notFound } from '@granary/shared/errors';
import { sqlState } from '@granary/shared/postgres/errors';
import { execute, row, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { StepAnswer } from '@granary/shared/postgres/pipeline';
import { APP_NOT_FOUND } from '../catalog/collection';

/** The last link of an app's hash chain. */
export interface Head {
  height: bigint;
  /** Grows with the height, by one or more: the place of the commit among all of the app, which its documents carry. */
  ordinal: bigint;
  hash: Buffer;
}

export interface LockedHead extends Head {
  catalogRevision: bigint;
}

/** The hash before the first commit. */
export const genesisHash = Buffer.alloc(32);

/**
 * Locks the head of an app until the transaction ends: commits and changes of the catalog are serial within an app.
 * A statement of its own, for a statement that waits for a lock inside itself goes on with an old snapshot; of this
 * row alone, for Postgres reads no other again after the wait. An app that is deleted has no head any more.
 * Throws APP_NOT_FOUND.
 */
export async function lockApp(tx: Connection, appNumber: bigint): Promise<LockedHead> {
  const found = await row<{ height: bigint; ordinal: bigint; hash: Buffer; catalog_revision: bigint }>(
    tx,
    headToLock(appNumber),
  );
  if (!found) throw noSuchApp();
  const { height, ordinal, hash, catalog_revision: catalogRevision } = found;
  return { height, ordinal, hash, catalogRevision };
}

/** The statement of lockApp, and its answer where that comes as texts. Throws APP_NOT_FOUND. */
export const headToLock = (appNumber: bigint): Sql =>
  sql`select height, ordinal, hash, catalog_revision from head where app_number = ${appNumber} for update`;

export function toLockedHead({ rows }: StepAnswer): LockedHead {
  const [height, ordinal, hash, revision] = rows[0] ?? [];
  if (!height || !ordinal || !hash || !revision) throw noSuchApp();
  // A bytea comes as \x and its hex digits.
  return {
    height: BigInt(height),
    ordinal: BigInt(ordinal),
    hash: Buffer.from(hash.slice(2), 'hex'),
    catalogRevision: BigInt(revision),
  };
}

/** Moves a head on that is locked. */
export const moveHead = (appNumber: bigint, to: Head): Sql =>
  sql`update head set height = ${to.height}, ordinal = ${to.ordinal}, hash = ${to.hash} where app_number = ${appNumber}`;

/**
 * Locks a head and moves it on from where it is expected to be. Fails with an error that isHeadElsewhere() knows when
 * it is not there, or gone.
 */
export const moveHeadFrom = (appNumber: bigint, from: LockedHead, to: Head): Sql =>
  sql`with moved as (
        update head set height = ${to.height}, ordinal = ${to.ordinal}, hash = ${to.hash}
        where app_number = ${appNumber} and height = ${from.height} and hash = ${from.hash}
          and catalog_revision = ${from.catalogRevision}
        returning 1)
      select 1 / count(*) from moved`;

/** A division by zero, which is how a statement without a function of its own can end those that travel behind it. */
export const isHeadElsewhere = (error: unknown): boolean => sqlState(error) === '22012';

const noSuchApp = () => notFound(APP_NOT_FOUND, 'There is no such app');

/** Tells writers and readers that what they know of the app's catalog is old. Whoever changes it has locked the head. */
export async function bumpCatalogRevision(tx: Queryable, appNumber: bigint): Promise<void> {
  await execute(tx, sql`update head set catalog_revision = catalog_revision + 1 where app_number = ${appNumber}`);
}

/** SHA-256, a byte in each character: Node makes this string in half the time that it takes for a buffer. */
export const sha256Text = (bytes: Buffer): string => hash('sha256', bytes, 'binary');

const sha256 = (bytes: Buffer): Buffer => Buffer.from(sha256Text(bytes), 'latin1');

/** What a commit stored: a document under its id with the SHA-256 of its text. */
export interface Entry {
  id: string;
  sha256: Buffer;
}

const lengthBytes = 4;

/**
 * SHA-256 over collection, id and SHA-256 of the text of each document in order, each part with its length in bytes
 * before it (32 bits, big-endian).
 */
export function contentHash(collection: string, entries: readonly Entry[]): Buffer {
  const name = Buffer.from(collection);
  let size = 0;
  for (const { id, sha256: content } of entries) {
    size += 3 * lengthBytes + name.length + Buffer.byteLength(id) + content.length;
  }
  const parts = Buffer.allocUnsafe(size);
  let at = 0;
  for (const { id, sha256: content } of entries) {
    at = parts.writeUInt32BE(name.length, at);
    at += name.copy(parts, at);
    const idBytes = parts.write(id, at + lengthBytes);
    at = parts.writeUInt32BE(idBytes, at) + idBytes;
    at = parts.writeUInt32BE(content.length, at);
    at += content.copy(parts, at);
  }
  return sha256(parts);
}

/** SHA-256 over the previous link's hash, the height (64 bits, big-endian) and the content hash. */
export function linkHash(previous: Buffer, height: bigint, content: Buffer): Buffer {
  const heightBytes = Buffer.alloc(8);
  heightBytes.writeBigUInt64BE(height);
  return sha256(Buffer.concat([previous, heightBytes, content]));
}
