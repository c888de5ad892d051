import { hash as digest, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { setBounded } from '@granary/shared/concurrency/bounded-map';
import type { FairLimiter } from '@granary/shared/concurrency/fair-limiter';
import { forbidden } from '@granary/shared/errors';
import { neverAborted } from '@granary/shared/concurrency/cancellation';
import type { Call, Client } from '@granary/shared/rpc/types';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { unauthenticated } from '../errors/problem';

export const permissions = ['Read', 'Write', 'Admin', 'Pay'] as const;
export type Permission = (typeof permissions)[number];

/** Who may use a route. */
export type Access =
  /** Anyone; keys are not looked at. */
  | { kind: 'public' }
  /** Anyone; a valid key of the path's app, with Read, sees what is private too. */
  | { kind: 'reader' }
  /** A key with this permission, of the app in the path or, where the path names none, of any. */
  | { kind: 'app'; permission: Permission; operator?: true }
  | { kind: 'operator' }
  /** The wallet of the address in the path, by signature, or the operator. */
  | { kind: 'wallet' };

export interface AppCaller {
  kind: 'app';
  keyId: string;
  /** A key that is made anew keeps its name. */
  keyName: string;
  appId: string;
  appNumber: string;
  permissions: ReadonlySet<string>;
}
export interface Operator {
  kind: 'operator';
}
export interface Anonymous {
  kind: 'anonymous';
}
export interface Wallet {
  kind: 'wallet';
  address: string;
}
/** Who a route with the access `reader` sees. */
export type AnyReader = AppCaller | Operator | Anonymous;
export type Caller = AppCaller | Operator | Anonymous | Wallet;

/** The callers that a route with this access can see. */
export type CallerOf<A extends Access> = A extends { kind: 'app'; operator: true }
  ? AppCaller | Operator
  : A extends { kind: 'app' }
    ? AppCaller
    : A extends { kind: 'reader' }
      ? AnyReader
      : A extends { kind: 'operator' }
        ? Operator
        : A extends { kind: 'wallet' }
          ? Wallet | Operator
          : Anonymous;

export interface KeyLookup {
  /**
   * The caller of a key, undefined for one that does not exist (any more). Rejects with OVERLOADED when too many keys
   * are looked up that this process has not seen before.
   */
  find(key: string, call: Call, address: string): Promise<AppCaller | undefined>;
}

/** Longest use of an answer, from the sending of its question: a revoked key is dead everywhere within a second. */
const freshMs = 800;
/** Entries of each of the two caches, for keys that exist and for keys that do not. */
const cacheSize = 10_000;
const keyLengthMax = 200;

interface Entry {
  sentAtMs: number;
  caller: Promise<AppCaller | undefined>;
}

/**
 * Looks up keys in the data service. Answers are kept for a moment; parallel questions about one key are one. Keys that
 * were not seen before are looked up by way of `strangers`, so that a flood of invented keys holds up nobody whose key
 * exists. Only hashes of keys are held and sent.
 */
export function keyLookup(
  data: Pick<Client<DataDefinition>, 'verifyKey'>,
  strangers: FairLimiter,
  now: () => number = () => performance.now(),
): KeyLookup {
  /** Keys that exist, or did at their last look-up. */
  const known = new Map<string, Entry>();
  // Apart from the others, so that a flood of invented keys cannot push real ones out.
  const unknown = new Map<string, Entry>();
  /** Keys that were not seen before and are looked up; as many as the limiter has room for. */
  const pending = new Map<string, Promise<AppCaller | undefined>>();

  const keep = (id: string, entry: Entry, caller: AppCaller | undefined) => {
    if (!caller && known.get(id) === entry) known.delete(id);
    setBounded(caller ? known : unknown, id, entry, cacheSize);
  };
  const refresh = (id: string, hash: Buffer, call: Call): Promise<AppCaller | undefined> => {
    const entry: Entry = { sentAtMs: now(), caller: verify(data, hash, call) };
    setBounded(known, id, entry, cacheSize);
    entry.caller.then(
      (caller) => void (!caller && keep(id, entry, caller)),
      // The next one asks again.
      () => (entry.sentAtMs = -Infinity),
    );
    return entry.caller;
  };
  const find = async (id: string, hash: Buffer, call: Call, address: string) => {
    try {
      let sentAtMs = 0;
      const caller = await strangers.run(address, () => {
        sentAtMs = now();
        return verify(data, hash, call);
      });
      keep(id, { sentAtMs, caller: Promise.resolve(caller) }, caller);
      return caller;
    } finally {
      pending.delete(id);
    }
  };

  return {
    find(key, call, address) {
      if (!key.startsWith('app_') || key.length > keyLengthMax) return Promise.resolve(undefined);
      const hash = digest('sha256', key, 'buffer');
      const id = hash.toString('latin1');
      const entry = known.get(id) ?? unknown.get(id);
      if (entry && now() - entry.sentAtMs < freshMs) return entry.caller;
      // The question is shared with others, so it does not end when the one who asked first goes away.
      const shared = { ...call, signal: neverAborted };
      if (known.has(id)) return refresh(id, hash, shared);
      let found = pending.get(id);
      if (!found) pending.set(id, (found = find(id, hash, shared, address)));
      return found;
    },
  };
}

async function verify(
  data: Pick<Client<DataDefinition>, 'verifyKey'>,
  hash: Buffer,
  call: Call,
): Promise<AppCaller | undefined> {
  const answer = await data.verifyKey({ hash }, call);
  if (!answer.known) return undefined;
  const { keyId, name: keyName, appId, appNumber } = answer;
  return { kind: 'app', keyId, keyName, appId, appNumber, permissions: new Set(answer.permissions) };
}

/**
 * The app key of a request: X-App-Key, `Authorization: Bearer` or X-API-Key; undefined when there is none. Several
 * that disagree are nobody's.
 */
export function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization } = headers;
  const bearer = authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  let key: string | undefined;
  for (const given of [headers['x-app-key'], bearer, headers['x-api-key']]) {
    if (given === undefined) continue;
    if (typeof given !== 'string' || (key !== undefined && key !== given)) {
      throw unauthenticated('Several different keys were sent');
    }
    key = given;
  }
  return key;
}

/** Whether the request carries the operator's key. Throws UNAUTHENTICATED for a wrong one. */
export function isOperator(headers: IncomingHttpHeaders, operatorKeyHash: Buffer): boolean {
  const key = headers['x-operator-key'];
  if (key === undefined) return false;
  if (typeof key === 'string' && timingSafeEqual(hashKey(key), operatorKeyHash)) return true;
  throw unauthenticated('The operator key is not valid');
}

export function hashKey(key: string): Buffer {
  return digest('sha256', key, 'buffer');
}

/** Admin includes everything but Pay, which is about money and given by name. */
export function hasPermission(caller: AppCaller, permission: Permission): boolean {
  return caller.permissions.has(permission) || (permission !== 'Pay' && caller.permissions.has('Admin'));
}

/** Whether a caller may make public what is private, and show it in public. */
export const mayPublish = (caller: AppCaller): boolean => hasPermission(caller, 'Admin');

const anonymous: Anonymous = { kind: 'anonymous' };

/**
 * The caller of a request on a route with this access, wallets apart. Throws UNAUTHENTICATED for no or an unknown
 * key, FORBIDDEN for a key of another app (whether or not that app exists) or without the permission.
 */
export function authenticate(
  access: Exclude<Access, { kind: 'wallet' }>,
  headers: IncomingHttpHeaders,
  appId: string | undefined,
  operatorKeyHash: Buffer,
  keys: KeyLookup,
  call: Call,
  address: string,
): Caller | Promise<Caller> {
  if (access.kind === 'public') return anonymous;
  const operatorMay = access.kind === 'operator' || access.kind === 'reader' || access.operator === true;
  if (operatorMay && isOperator(headers, operatorKeyHash)) return { kind: 'operator' };
  if (access.kind === 'operator') throw unauthenticated('The operator key is needed, in X-Operator-Key');

  const key = presentedKey(headers);
  if (key === undefined) {
    if (access.kind === 'reader') return anonymous;
    throw unauthenticated('An app key is needed, in X-App-Key or as a bearer token');
  }
  return keys.find(key, call, address).then((caller) => {
    if (!caller) throw unauthenticated('The key is not valid');
    if (access.kind === 'reader') return caller;
    if (appId !== undefined && appId !== caller.appId) throw forbidden('The key belongs to another app');
    if (!hasPermission(caller, access.permission)) {
      throw forbidden(`The key lacks the permission ${access.permission}`);
    }
    return caller;
  });
}
