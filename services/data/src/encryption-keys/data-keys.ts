import { randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { forEachConcurrently } from '@granary/shared/concurrency/for-each';
import { ServiceError, unavailable } from '@granary/shared/errors';
import { execute, row, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { rootKeyOf, type RootKey } from './root-key';

export const ENCRYPTION_UNAVAILABLE = 'ENCRYPTION_UNAVAILABLE';

/** A data key of an app; a later version encrypts, and all of them decrypt. */
export interface DataKey {
  version: number;
  key: Buffer;
}

/** A data key as it is stored. */
export interface WrappedKey {
  version: number;
  rootKeyId: string;
  bytes: Buffer;
}

/** A data key that was made and wrapped before its app is locked: a provider may take a while. */
export interface NewDataKey {
  version: number;
  rootKeyId: string;
  wrapped: Buffer;
}

const placeOf = (appNumber: bigint, version: number): string => `app ${appNumber}, version ${version}`;

/** Makes the first data key of an app, if it has none. Throws ENCRYPTION_UNAVAILABLE. */
export async function newFirstKey(db: Queryable, appNumber: bigint, rootKey: RootKey): Promise<NewDataKey | undefined> {
  return (await latestVersion(db, appNumber)) === 0 ? newKey(appNumber, 1, rootKey) : undefined;
}

/** Makes another data key of an app that has one. Throws ENCRYPTION_UNAVAILABLE. */
export async function newLaterKey(db: Queryable, appNumber: bigint, rootKey: RootKey): Promise<NewDataKey | undefined> {
  const latest = await latestVersion(db, appNumber);
  return latest === 0 ? undefined : newKey(appNumber, latest + 1, rootKey);
}

async function newKey(appNumber: bigint, version: number, rootKey: RootKey): Promise<NewDataKey> {
  try {
    const wrapped = await rootKey.wrap(randomBytes(32), placeOf(appNumber, version));
    return { version, rootKeyId: rootKey.id, wrapped };
  } catch (error) {
    throw encryptionUnavailable(error);
  }
}

/** Stores the first data key of an app, where it has none. The app must be locked. */
export async function ensureDataKey(
  db: Queryable,
  appNumber: bigint,
  first: NewDataKey | undefined,
  time: Date,
): Promise<void> {
  if ((await latestVersion(db, appNumber)) === 0) await insertKey(db, appNumber, first, 1, time);
}

/** Stores another data key of an app, which encrypts from now on. The app must be locked. Throws UNAVAILABLE. */
export async function addDataKey(
  db: Queryable,
  appNumber: bigint,
  later: NewDataKey | undefined,
  time: Date,
): Promise<void> {
  await insertKey(db, appNumber, later, (await latestVersion(db, appNumber)) + 1, time);
}

async function latestVersion(db: Queryable, appNumber: bigint): Promise<number> {
  const latest = await row<{ version: number | null }>(
    db,
    sql`select max(version) as version from data_key where app_number = ${appNumber}`,
  );
  return latest?.version ?? 0;
}

async function insertKey(
  db: Queryable,
  appNumber: bigint,
  key: NewDataKey | undefined,
  version: number,
  time: Date,
): Promise<void> {
  // Another call has stored one since it was made.
  if (key?.version !== version) throw unavailable('The data key could not be made, try again');
  await execute(
    db,
    sql`insert into data_key (app_number, version, root_key_id, wrapped, created_at)
        values (${appNumber}, ${version}, ${key.rootKeyId}, ${key.wrapped}, ${time})`,
  );
}

/**
 * Keys that are kept unwrapped for a root key, and for how long a failure is: meanwhile the provider is not asked
 * again.
 */
const keptMax = 100_000;
const failedForMs = 1_000;
const unwrapped = new WeakMap<RootKey, LRUCache<string, Promise<Buffer>>>();

/** Unwraps the data keys of an app, each once. Throws ENCRYPTION_UNAVAILABLE. */
export async function unwrapKeys(appNumber: bigint, wrapped: readonly WrappedKey[]): Promise<DataKey[]> {
  try {
    return await Promise.all(
      wrapped.map(async (one) => ({
        version: one.version,
        key: await unwrapOnce(placeOf(appNumber, one.version), one),
      })),
    );
  } catch (error) {
    throw encryptionUnavailable(error);
  }
}

function unwrapOnce(place: string, { rootKeyId, bytes }: WrappedKey): Promise<Buffer> {
  const rootKey = rootKeyOf(rootKeyId);
  if (!rootKey) throw new Error(`the root key ${rootKeyId} is not open`);
  let kept = unwrapped.get(rootKey);
  if (!kept) unwrapped.set(rootKey, (kept = new LRUCache({ max: keptMax })));
  const name = `${place}/${bytes.toString('base64')}`;
  const existing = kept.get(name);
  if (existing) return existing;
  const key = rootKey.unwrap(bytes, place);
  kept.set(name, key);
  key.catch(() => kept.set(name, key, { ttl: failedForMs }));
  return key;
}

export const encryptionUnavailable = (cause?: unknown): ServiceError =>
  new ServiceError(
    'UNAVAILABLE',
    ENCRYPTION_UNAVAILABLE,
    'Encrypted fields cannot be used: the service has no key for them',
    { cause },
  );

/** Keys that are wrapped anew at a time. */
const rewrapConcurrency = 8;

/**
 * Wraps the data keys that another root key has wrapped anew, or those of an earlier version of the same. Each is
 * stored by itself, so what is interrupted goes on with the next start. Returns how many.
 */
export async function rewrapKeys(pool: Pool, from: RootKey, to: RootKey): Promise<number> {
  const dataKeys = await rows<{ app_number: bigint; version: number; wrapped: Buffer }>(
    pool,
    sql`select app_number, version, wrapped from data_key where root_key_id = ${from.id}`,
  );
  const outdated = dataKeys.filter(({ wrapped }) => from.id !== to.id || to.isOutdated?.(wrapped) === true);
  await forEachConcurrently(rewrapConcurrency, outdated, async ({ app_number: appNumber, version, wrapped }) => {
    const place = placeOf(appNumber, version);
    const again = await to.wrap(await from.unwrap(wrapped, place), place);
    // Another copy may have done the same.
    await execute(
      pool,
      sql`update data_key set root_key_id = ${to.id}, wrapped = ${again}
          where app_number = ${appNumber} and version = ${version} and wrapped = ${wrapped}`,
    );
  });
  return outdated.length;
}

/** The id of a root key that has wrapped data keys of this database and is not the given one, if there is one. */
export async function otherRootKeyId(db: Queryable, rootKey: RootKey | undefined): Promise<string | undefined> {
  const other = await row<{ id: string }>(
    db,
    sql`select root_key_id as id from data_key where root_key_id is distinct from ${rootKey?.id ?? null} limit 1`,
  );
  return other?.id;
}

/** Whether the database has data keys already. */
export const hasDataKeys = async (db: Queryable): Promise<boolean> =>
  (await row(db, sql`select from data_key limit 1`)) !== undefined;
