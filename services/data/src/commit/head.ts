import { notFound } from '@granary/shared/errors';
import { sqlState } from '@granary/shared/postgres/errors';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { StepAnswer } from '@granary/shared/postgres/pipeline';
import { APP_NOT_FOUND } from '../catalog/app';
import type { Head } from '../chain/hash-chain';

/** A head with the revision of the app's catalog, which is in the same row. */
export interface LockedHead extends Head {
  catalogRevision: bigint;
}

/**
 * Locks and reads a head. A statement of its own: one that waits for a lock continues with the snapshot that it began
 * with, and after the wait Postgres reads no other row again.
 */
export const headToLock = (appNumber: bigint): Sql =>
  sql`select height, ordinal, hash, catalog_revision from head where app_number = ${appNumber} for update`;

/** The head in the answer to `headToLock`. Throws APP_NOT_FOUND. */
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

/** Moves a locked head. */
export const moveHead = (appNumber: bigint, to: Head): Sql =>
  sql`update head set height = ${to.height}, ordinal = ${to.ordinal}, hash = ${to.hash} where app_number = ${appNumber}`;

/**
 * Locks a head and moves it if it is still at `from`; else fails with an error that `isHeadConflict` recognizes. That
 * error is a division by zero: it ends the statements sent behind this one without a function in the database.
 */
export const compareAndSetHead = (appNumber: bigint, from: LockedHead, to: Head): Sql =>
  sql`with moved as (
        update head set height = ${to.height}, ordinal = ${to.ordinal}, hash = ${to.hash}
        where app_number = ${appNumber} and height = ${from.height} and hash = ${from.hash}
          and catalog_revision = ${from.catalogRevision}
        returning 1)
      select 1 / count(*) from moved`;

export const isHeadConflict = (error: unknown): boolean => sqlState(error) === '22012';

const noSuchApp = () => notFound(APP_NOT_FOUND, 'There is no such app');
