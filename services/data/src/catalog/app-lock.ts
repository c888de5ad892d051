import { notFound } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/idempotency/v1/Idempotency';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, trusted } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { APP_NOT_FOUND, findApp, type App } from './app';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';

/**
 * How long a transaction that has locked an app waits for any other lock: those of a table, when it adds or drops
 * columns that a long reader (the refresh of a view, an export) still sees. All writers of the app wait meanwhile, and
 * all new readers of the table, so it fails soon and is retried from the beginning.
 */
const lockTimeoutMs = 200;
/** Attempts at a transaction; with the delays between them they take about as long as a request may. */
const attempts = 12;

/**
 * Locks an app until the transaction ends: commits and changes of the catalog are serial within an app. The lock is
 * that of the row of its head, which commits lock too. It is a statement of its own, because a statement that waits for
 * a lock goes on with an old snapshot. A deleted app has no head any more. Throws APP_NOT_FOUND. Every later statement
 * of the transaction waits for locks at most 200 ms and then fails with a retryable error.
 */
export async function lockApp(tx: Connection, appNumber: bigint): Promise<void> {
  const head = await row(tx, sql`select from head where app_number = ${appNumber} for update`);
  if (!head) throw notFound(APP_NOT_FOUND, 'There is no such app');
  await execute(tx, sql`set local lock_timeout = ${trusted(String(lockTimeoutMs))}`);
}

/** Invalidates cached collections of an app, here and in other replicas. The app must be locked. */
export async function bumpCatalogRevision(tx: Queryable, appNumber: bigint): Promise<void> {
  await execute(tx, sql`update head set catalog_revision = catalog_revision + 1 where app_number = ${appNumber}`);
}

/** The revision of the catalog of an app; undefined where the app has been deleted. */
export async function readCatalogRevision(db: Queryable, appNumber: bigint): Promise<bigint | undefined> {
  const statement = sql`select catalog_revision as revision from head where app_number = ${appNumber}`;
  return (await row<{ revision: bigint }>(db, statement))?.revision;
}

/**
 * Changes the catalog of an app under its lock, once for the Idempotency-Key of the request; a repeated request gets
 * the answer as `kept` makes it. Throws APP_NOT_FOUND.
 */
export function withAppLockOnce<T extends { replayed?: boolean }>(
  pool: Pool,
  request: { appId: string; idempotency?: Idempotency | null },
  change: (tx: Connection, app: App) => Promise<T>,
  kept?: (answer: T) => T,
): Promise<T> {
  const key = toIdempotencyKey(request.idempotency);
  const work = (tx: Connection) => once(tx, key, () => changeLocked(tx, request.appId, change), kept);
  return retriedTransaction(pool, work, { attempts });
}

async function changeLocked<T>(
  tx: Connection,
  appId: string,
  change: (tx: Connection, app: App) => Promise<T>,
): Promise<T> {
  const app = await findApp(tx, appId);
  await lockApp(tx, app.number);
  return change(tx, app);
}
