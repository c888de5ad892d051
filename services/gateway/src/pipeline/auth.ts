import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Request } from 'express';
import { forbidden } from '@granary/shared/errors';
import type { Call } from '@granary/shared/rpc/types';
import { unauthenticated } from '../errors/problem';
import { requirePermission, type Access, type Anonymous, type AppCaller, type Caller, type Wallet } from './access';
import type { GatewayContext } from './gateway-context';
import { pathParameters } from './path-parameters';
import type { Route } from './route';
import { isSignatureOfRequest, isWalletSigned, readWalletSignature, type WalletSignature } from './wallet-signature';

/** The parts of a request that its caller is determined from. */
export interface Credentials {
  route: Pick<Route, 'auth' | 'body'>;
  request: Request;
  /** Values of the path parameters. */
  path: Readonly<Record<string, string>>;
  call: Call;
  /** The key of the client's address. */
  clientAddress: string;
}

const anonymous: Anonymous = { kind: 'anonymous' };

/**
 * The caller of a request on a route with this access. Throws UNAUTHENTICATED for a missing or unknown key or an
 * invalid signature, FORBIDDEN for a key of another app (whether or not that app exists) or without the permission. A
 * caller with a signature is not known before `checkSignature`, where the request may have a body.
 */
export function authenticate(
  gateway: Pick<GatewayContext, 'operatorKeyHash' | 'keys' | 'owners'>,
  credentials: Credentials,
): Caller | Promise<Caller> {
  const { route, request, path, call, clientAddress } = credentials;
  const access = route.auth;
  if (access.kind === 'public') return anonymous;
  const { headers } = request;
  const isOperatorAllowed = access.kind !== 'app' || access.operator === true;
  if (isOperatorAllowed && isOperator(headers, gateway.operatorKeyHash)) return { kind: 'operator' };
  if (access.kind === 'operator') throw unauthenticated('The operator key is needed, in X-Operator-Key');
  if (access.kind === 'wallet') return walletOf(credentials);

  const key = presentedKey(headers);
  if (key === undefined) {
    if (isWalletSigned(headers)) return ownerOf(gateway, credentials);
    if (access.kind === 'reader') return anonymous;
    throw unauthenticated('An app key is needed, in X-App-Key or as a bearer token, or the signature of the owner');
  }
  const appId = path['app_id'];
  return gateway.keys.find(key, call, clientAddress).then((caller) => checkCaller(caller, access, appId));
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

function walletOf({ request, path, route }: Credentials): Wallet {
  const signature = readWalletSignature(request.headers);
  const named = path['user_address'];
  if (named !== undefined && named !== signature.address) {
    throw unauthenticated('The signature is not of the address in the path');
  }
  const wallet: Wallet = { kind: 'wallet', address: signature.address, signature };
  if (!hasBufferedBody(route)) checkSignature(wallet, request, noBytes);
  return wallet;
}

/** The permissions that the signature of an app's owner gives: the same as those of the app's first key. */
const ownerPermissions: ReadonlySet<string> = new Set(['Admin', 'Read', 'Write']);

/**
 * The owner of the app that the path names, or X-App-Id. One who is not the owner learns nothing, not even whether the
 * app exists; where anybody may read, other wallets are anybody.
 */
async function ownerOf(
  { owners }: Pick<GatewayContext, 'owners'>,
  { route, request, path, call, clientAddress }: Credentials,
): Promise<AppCaller | Anonymous> {
  const { method, headers } = request;
  const appId = path['app_id'] ?? headers['x-app-id'];
  const isName = typeof appId === 'string' && pathParameters.app_id.pattern.test(appId);
  const owner = isName ? await owners.find(appId, call, clientAddress) : undefined;
  const isOwner = owner !== undefined && owner.address === headers['x-wallet-address'];
  if (!isOwner && route.auth.kind === 'reader') return anonymous;
  const signature = readWalletSignature(headers);
  if (typeof appId !== 'string') throw unauthenticated('X-App-Id must name the app of the owner, once');
  if (route.body?.kind === 'stream' && method !== 'GET' && method !== 'HEAD') {
    throw unauthenticated('An app key is needed: what is streamed cannot be signed');
  }
  if (!isOwner) throw notSignedByOwner();
  const caller: AppCaller = {
    kind: 'app',
    keyId: '',
    keyName: `wallet ${owner.address}`,
    appId,
    appNumber: owner.appNumber,
    permissions: ownerPermissions,
    signature,
  };
  if (!hasBufferedBody(route)) checkSignature(caller, request, noBytes);
  return caller;
}

const noBytes = Buffer.alloc(0);

/** Whether there may be a body to check the signature over once it has arrived. */
const hasBufferedBody = ({ body }: Credentials['route']): boolean => body !== undefined && body.kind !== 'stream';

/** The signature that a caller has in place of a key. */
export const signatureOf = (caller: Caller): WalletSignature | undefined =>
  caller.kind === 'app' || caller.kind === 'wallet' ? caller.signature : undefined;

/** Checks the signature of a caller, where it has one, over its request with this body. Throws UNAUTHENTICATED. */
export function checkSignature(caller: Caller, { method, originalUrl: target }: Request, body: Buffer): void {
  const signature = signatureOf(caller);
  if (!signature || isSignatureOfRequest(signature, { method, target, body })) return;
  throw caller.kind === 'app' ? notSignedByOwner() : unauthenticated('X-Signature is not valid for this request');
}

const notSignedByOwner = () =>
  unauthenticated(
    'The request is not signed by the owner of the app: X-Wallet-Address is another one, or X-Signature is not valid',
  );

/**
 * The app key of a request: X-App-Key, `Authorization: Bearer` or X-API-Key; undefined when there is none. Throws
 * UNAUTHENTICATED for several different ones.
 */
export function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization } = headers;
  const bearer = authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  let key: string | undefined;
  for (const candidate of [headers['x-app-key'], bearer, headers['x-api-key']]) {
    if (candidate === undefined) continue;
    if (typeof candidate !== 'string' || (key !== undefined && key !== candidate)) {
      throw unauthenticated('Several different keys were sent');
    }
    key = candidate;
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
