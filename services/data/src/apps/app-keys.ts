import { createHash } from 'node:crypto';
import { conflict, invalid, notFound } from '@granary/shared/errors';
import type { CreateKeyRequest } from '@granary/shared/gen/granary/data/v1/CreateKeyRequest';
import type { IssuedKey } from '@granary/shared/gen/granary/data/v1/IssuedKey';
import type { Key } from '@granary/shared/gen/granary/data/v1/Key';
import type { ListKeysResponse } from '@granary/shared/gen/granary/data/v1/ListKeysResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { PayLimits } from '@granary/shared/gen/granary/data/v1/PayLimits';
import type { RegenerateKeyRequest } from '@granary/shared/gen/granary/data/v1/RegenerateKeyRequest';
import type { RevokeKeyRequest } from '@granary/shared/gen/granary/data/v1/RevokeKeyRequest';
import type { RevokeKeyResponse } from '@granary/shared/gen/granary/data/v1/RevokeKeyResponse';
import type { FindValidKeysRequest } from '@granary/shared/gen/granary/data/v1/FindValidKeysRequest';
import type { FindValidKeysResponse } from '@granary/shared/gen/granary/data/v1/FindValidKeysResponse';
import type { VerifyKeyResponse } from '@granary/shared/gen/granary/data/v1/VerifyKeyResponse';
import { message } from '@granary/shared/rpc/types';
import { newId, newSecret } from '@granary/shared/ids';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { listPage } from '@granary/shared/postgres/listing';
import { findApp, type App } from '../catalog/app';
import { withAppLockOnce } from '../catalog/app-lock';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { ALREADY_EXISTS } from '../catalog/names';
import type { FastContext, PoolContext } from '../postgres/databases';
import type { VerifyKeyRequest } from '@granary/shared/gen/granary/data/v1/VerifyKeyRequest';

export const KEY_NOT_FOUND = 'KEY_NOT_FOUND';
export const LAST_ADMIN_KEY = 'LAST_ADMIN_KEY';

/** The name of the first key, which is created with the application. */
export const firstKeyName = 'default';
/** Keys of one app that are not revoked, at most. */
const keysMax = 1_000;
const permissions = ['Read', 'Write', 'Admin', 'Pay'];

export interface KeyDefinition {
  name: string;
  permissions: string[];
  payLimits: PayLimits | undefined;
}

/** Keys are 256 random bits, which cannot be guessed: a plain hash is enough. */
const hashKey = (secret: string): Buffer => createHash('sha256').update(secret).digest();

/** Creates a key and revokes the one of the same name. Only the response contains its secret. */
export async function issueKey(
  tx: Connection,
  app: App,
  definition: KeyDefinition,
): Promise<{ key: Key; secret: string }> {
  const time = await databaseTime(tx);
  const secret = newSecret('app_');
  await execute(
    tx,
    sql`update app_key set revoked_at = ${time} where app_number = ${app.number} and name = ${definition.name} and revoked_at is null`,
  );
  await execute(
    tx,
    sql`insert into app_key (key_id, app_number, name, hash, last_four, permissions, pay_limits, created_at)
        values (${newId('key_')}, ${app.number}, ${definition.name}, ${hashKey(secret)}, ${secret.slice(-4)},
                ${definition.permissions}, ${definition.payLimits === undefined ? null : JSON.stringify(definition.payLimits)}, ${time})`,
  );
  return { key: (await findKey(tx, app, ofName(definition.name)))!, secret };
}

interface KeyRow {
  listed_as: string;
  key_id: string;
  app_id: string;
  app_number: bigint;
  name: string;
  permissions: string[];
  pay_limits: string | null;
  last_four: string;
  created_at: Date;
}

/** Keys in the order in which they were made. */
const keyOrder = sql`(to_char(k.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || ' ' || k.key_id)`;
const columns = sql`${keyOrder} as listed_as, k.key_id, a.app_id, a.number as app_number, k.name, k.permissions, k.pay_limits, k.last_four, k.created_at`;

const payLimits = (found: KeyRow): PayLimits | undefined =>
  found.pay_limits === null ? undefined : (JSON.parse(found.pay_limits) as PayLimits);

function toKey(key: KeyRow): Key {
  return message<Key>({
    keyId: key.key_id,
    appId: key.app_id,
    name: key.name,
    permissions: key.permissions,
    payLimits: payLimits(key),
    lastFour: key.last_four,
    createdAt: key.created_at.toISOString(),
  });
}

/** Finds a key of an app that is not revoked; `which` is a condition on app_key k. Undefined where there is none. */
async function findKey(db: Queryable, app: Pick<App, 'number'>, which: Sql): Promise<Key | undefined> {
  const key = await row<KeyRow>(
    db,
    sql`select ${columns} from app_key k join application a on a.number = k.app_number
        where k.app_number = ${app.number} and k.revoked_at is null and ${which}`,
  );
  return key && toKey(key);
}

const ofName = (name: string): Sql => sql`k.name = ${name}`;

/**
 * Creates a key with a name that no key of the app has. Throws ALREADY_EXISTS, LIMIT_EXCEEDED and VALIDATION_FAILED.
 */
export async function createKey({ pool }: PoolContext, request: CreateKeyRequest): Promise<IssuedKey> {
  requirePermissions(request.permissions);
  const change = async (tx: Connection, app: App): Promise<IssuedKey> => {
    const present = await findKey(tx, app, ofName(request.name));
    if (present) throw conflict(ALREADY_EXISTS, `A key with the name ${request.name} already exists`);
    await requireKeyPlace(tx, app, request.name);
    return issueKey(tx, app, {
      name: request.name,
      permissions: [...new Set(request.permissions)],
      payLimits: request.payLimits ?? undefined,
    });
  };
  return withAppLockOnce(pool, request, change, withoutSecret);
}

/**
 * Replaces the key of a name, or creates the first one: the commit of the new one revokes the old one. Throws
 * LAST_ADMIN_KEY, LIMIT_EXCEEDED and VALIDATION_FAILED.
 */
export async function regenerateKey({ pool }: PoolContext, request: RegenerateKeyRequest): Promise<IssuedKey> {
  if (!request.keepOmitted || request.permissions.length > 0) requirePermissions(request.permissions);
  const change = async (tx: Connection, app: App): Promise<IssuedKey> => {
    const present = await findKey(tx, app, ofName(request.name));
    await requireKeyPlace(tx, app, request.name);
    const definition = definitionOf(request, present);
    if (request.keepAdmin && present && !definition.permissions.includes('Admin')) {
      await requireOtherAdmin(tx, app, present);
    }
    return issueKey(tx, app, definition);
  };
  return withAppLockOnce(pool, request, change, withoutSecret);
}

/** Completes a request by the key that it replaces. Throws VALIDATION_FAILED for a new key without permissions. */
function definitionOf(request: RegenerateKeyRequest, present: Key | undefined): KeyDefinition {
  const replaced = request.keepOmitted ? present : undefined;
  const chosen = request.permissions.length > 0 ? request.permissions : replaced?.permissions;
  if (!chosen) throw invalid('A new key needs permissions', { permissions: ['is required'] });
  const payLimits = request.payLimits ?? replaced?.payLimits ?? undefined;
  return { name: request.name, permissions: [...new Set(chosen)], payLimits };
}

function requirePermissions(chosen: readonly string[]): void {
  if (chosen.length > 0 && chosen.every((permission) => permissions.includes(permission))) return;
  throw invalid('The permissions are not valid', {
    permissions: [`must be a non-empty list of ${permissions.join(', ')}`],
  });
}

/** Throws LIMIT_EXCEEDED where an app has as many keys of other names as it may have. */
async function requireKeyPlace(tx: Connection, app: App, name: string): Promise<void> {
  const { count } = (await row<{ count: bigint }>(
    tx,
    sql`select count(*) from app_key where app_number = ${app.number} and revoked_at is null and name <> ${name}`,
  ))!;
  if (count >= keysMax) throw invalid(`An app may have at most ${keysMax} keys`, {}, LIMIT_EXCEEDED);
}

/** Throws LAST_ADMIN_KEY where a key has Admin and no other key of the app does. The app must be locked. */
async function requireOtherAdmin(tx: Connection, app: App, key: Key): Promise<void> {
  if (!key.permissions.includes('Admin')) return;
  const other = await row(
    tx,
    sql`select from app_key where app_number = ${app.number} and revoked_at is null
        and 'Admin' = any(permissions) and key_id <> ${key.keyId} limit 1`,
  );
  if (other) return;
  const remedy = 'give Admin to another key first, or ask the operator';
  throw conflict(LAST_ADMIN_KEY, `The key ${key.name} is the only one of the app with Admin: ${remedy}`);
}

/** A secret is returned once. */
const withoutSecret = (issued: IssuedKey): IssuedKey => ({ ...issued, secret: '' });

/** A page of the keys of an app that are not revoked, the oldest first. Throws INVALID_CURSOR. */
export async function listKeys({ pool }: PoolContext, request: ListRequest): Promise<ListKeysResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns,
    from: sql`app_key k join application a on a.number = k.app_number
      where k.app_number = ${app.number} and k.revoked_at is null`,
    key: [{ column: keyOrder, type: 'text' as const }],
    bytes: sql`6 * octet_length(k.name) + coalesce(octet_length(k.pay_limits), 0)`,
    keyOf: (key: KeyRow) => [key.listed_as],
  };
  const { entries, nextCursor } = await listPage<KeyRow>(pool, source, request);
  return { keys: entries.map(toKey), nextCursor };
}

/** Throws KEY_NOT_FOUND and LAST_ADMIN_KEY. */
export function revokeKey({ pool }: PoolContext, request: RevokeKeyRequest): Promise<RevokeKeyResponse> {
  return withAppLockOnce<RevokeKeyResponse>(pool, request, async (tx, app) => {
    const present = await findKey(tx, app, sql`k.key_id = ${request.keyId}`);
    if (!present) throw notFound(KEY_NOT_FOUND, 'There is no such key');
    if (request.keepAdmin) await requireOtherAdmin(tx, app, present);
    await execute(tx, sql`update app_key set revoked_at = now() where key_id = ${present.keyId}`);
    return {};
  });
}

const unknownKey: VerifyKeyResponse = { known: false, name: '', keyId: '', appId: '', appNumber: '0', permissions: [] };

/** Returns the rights of a key. An index finds it by the SHA-256 of its text, so that timing reveals nothing. */
export async function verifyKey({ fast }: FastContext, { hash }: VerifyKeyRequest): Promise<VerifyKeyResponse> {
  const key = await row<KeyRow>(
    fast,
    sql`select ${columns} from app_key k join application a on a.number = k.app_number
        where k.hash = ${Buffer.from(hash)} and k.revoked_at is null and a.deleted_at is null`,
  );
  if (!key) return unknownKey;
  return message<VerifyKeyResponse>({
    known: true,
    name: key.name,
    keyId: key.key_id,
    appId: key.app_id,
    appNumber: key.app_number.toString(),
    permissions: key.permissions,
    payLimits: payLimits(key),
  });
}

/** Those of some keys that are not revoked, of apps that are not deleted. */
export async function findValidKeys(
  { fast }: FastContext,
  { keyIds }: FindValidKeysRequest,
): Promise<FindValidKeysResponse> {
  const keys = await rows<{ key_id: string }>(
    fast,
    sql`select k.key_id from app_key k join application a on a.number = k.app_number
        where k.key_id = any(${keyIds}) and k.revoked_at is null and a.deleted_at is null`,
  );
  return { keyIds: keys.map(({ key_id: keyId }) => keyId) };
}
