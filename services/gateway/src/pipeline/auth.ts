import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Request } from 'express';
import { forbidden } from '@granary/shared/errors';
import type { Call } from '@granary/shared/rpc/types';
import { unauthenticated } from '../errors/problem';
import { requirePermission, type Access, type Anonymous, type AppCaller, type Caller } from './access';
import type { GatewayContext } from './gateway-context';
import { verifyWalletSignature } from './wallet-signature';

/** What the caller of a request is determined from. */
export interface Credentials {
  access: Access;
  request: Request;
  /** Values of the path parameters. */
  path: Readonly<Record<string, string>>;
  call: Call;
  /** The key of the client's address. */
  clientAddress: string;
}

const anonymous: Anonymous = { kind: 'anonymous' };

/**
 * The caller of a request on a route with this access. Throws UNAUTHENTICATED for a missing or unknown key or an invalid
 * signature, FORBIDDEN for a key of another app (whether or not that app exists) or without the permission.
 */
export function authenticate(
  { operatorKeyHash, keys }: Pick<GatewayContext, 'operatorKeyHash' | 'keys'>,
  { access, request, path, call, clientAddress }: Credentials,
): Caller | Promise<Caller> {
  if (access.kind === 'public') return anonymous;
  const { headers } = request;
  const isOperatorAllowed = access.kind !== 'app' || access.operator === true;
  if (isOperatorAllowed && isOperator(headers, operatorKeyHash)) return { kind: 'operator' };
  if (access.kind === 'operator') throw unauthenticated('The operator key is needed, in X-Operator-Key');
  if (access.kind === 'wallet') return walletOf(request, path);

  const key = presentedKey(headers);
  if (key === undefined) {
    if (access.kind === 'reader') return anonymous;
    throw unauthenticated('An app key is needed, in X-App-Key or as a bearer token');
  }
  const appId = path['app_id'];
  return keys.find(key, call, clientAddress).then((caller) => checkCaller(caller, access, appId));
}

function checkCaller(
  caller: AppCaller | undefined,
  access: Extract<Access, { kind: 'reader' | 'app' }>,
  appId: string | undefined,
): AppCaller {
  if (!caller) throw unauthenticated('The key is not valid');
  if (access.kind === 'reader') return caller;
  if (appId !== undefined && appId !== caller.appId) throw forbidden('The key belongs to another app');
  requirePermission(caller, access.permission);
  return caller;
}

function walletOf(request: Request, path: Readonly<Record<string, string>>): Caller {
  // Routes with this access only read, so there is no body to sign.
  const { method, originalUrl: target, headers } = request;
  const address = verifyWalletSignature({ method, target, headers, body: Buffer.alloc(0) });
  if (address !== path['user_address']) throw unauthenticated('The signature is not of the address in the path');
  return { kind: 'wallet', address };
}

/**
 * The app key of a request: X-App-Key, `Authorization: Bearer` or X-API-Key; undefined when there is none. Throws
 * UNAUTHENTICATED for several different ones.
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
  return hash('sha256', key, 'buffer');
}
