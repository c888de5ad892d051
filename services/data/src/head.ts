import { createHash } from 'node:crypto';
import { notFound } from '@granary/shared/errors';
import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { APP_NOT_FOUND } from './catalog';

/** The last link of an app's hash chain. */
export interface Head {
  height: bigint;
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
export async function lockHead(tx: Connection, appNumber: bigint): Promise<LockedHead> {
  const found = await row<{ height: bigint; hash: Buffer; catalog_revision: bigint }>(
    tx,
    sql`select height, hash, catalog_revision from head where app_number = ${appNumber} for update`,
  );
  if (!found) throw notFound(APP_NOT_FOUND, 'There is no such app');
  return { height: found.height, hash: found.hash, catalogRevision: found.catalog_revision };
}

/** Tells writers and readers that what they know of the app's catalog is old. The head must be locked. */
export async function growCatalogRevision(tx: Connection, appNumber: bigint): Promise<void> {
  await execute(tx, sql`update head set catalog_revision = catalog_revision + 1 where app_number = ${appNumber}`);
}

/** What a commit stored: a document under its id with the SHA-256 of its text. */
export interface Entry {
  id: string;
  sha256: Buffer;
}

/**
 * SHA-256 over collection, id and SHA-256 of the text of each document in order, each part with its length in bytes
 * before it (32 bits, big-endian).
 */
export function contentHash(collection: string, entries: readonly Entry[]): Buffer {
  const hash = createHash('sha256');
  const length = Buffer.alloc(4);
  const add = (part: Buffer) => {
    length.writeUInt32BE(part.length);
    hash.update(length).update(part);
  };
  const name = Buffer.from(collection);
  for (const { id, sha256 } of entries) {
    add(name);
    add(Buffer.from(id));
    add(sha256);
  }
  return hash.digest();
}

/** SHA-256 over the previous link's hash, the height (64 bits, big-endian) and the content hash. */
export function linkHash(previous: Buffer, height: bigint, content: Buffer): Buffer {
  const heightBytes = Buffer.alloc(8);
  heightBytes.writeBigUInt64BE(height);
  return createHash('sha256').update(previous).update(heightBytes).update(content).digest();
}
