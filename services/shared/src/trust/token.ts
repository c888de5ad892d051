import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto';
import { isServiceName, type ServiceName } from './services';

/** The metadata key of the token of a call or a stream. */
export const tokenHeader = 'x-granary-token';

export const tokenLifetimeMs = 60_000;
/** How far the clocks of two machines may differ. A token is renewed that long before it expires. */
export const clockSkewMs = 30_000;

/** The claims of a token. Its signature also covers the method, which is not in its text. */
export interface Claims {
  caller: ServiceName;
  audience: ServiceName;
  /** The app of the request; empty for a request without an app, and for a stream. */
  app: string;
  expiresAtMs: number;
}

/**
 * `v1.<caller>.<audience>.<seconds since the epoch>.<app in base64url>.<signature in base64url>`. The unused bits
 * in the last character of a signature must be 0, so that each token has one encoding.
 */
const shape = /^(v1\.([a-z]{1,20})\.([a-z]{1,20})\.(\d{10})\.([\w-]*))\.([\w-]{42}[AEIMQUYcgkosw048])$/;

/**
 * The key with which one service signs its calls to another one. It is derived from the caller's secret, one for each
 * callee: a service that can verify calls cannot forge calls to others.
 */
export function callKey(callerSecret: string, caller: ServiceName, callee: ServiceName): KeyObject {
  return createSecretKey(
    createHmac('sha256', callerSecret).update(`granary call key v1\n${caller}\n${callee}`).digest(),
  );
}

/** The secret of one service, derived from the one that all services share. */
export function secretOf(internalSecret: string, service: ServiceName): string {
  return createHmac('sha256', internalSecret).update(`granary service secret v1\n${service}`).digest('hex');
}

function signature(key: KeyObject, claims: string, method: string): Buffer {
  return createHmac('sha256', key).update(`granary call\n${claims}\n${method}`).digest();
}

/** A token for one method (`/package.Service/Method`) and one app, valid for a minute. */
export function signToken(
  key: KeyObject,
  { caller, audience, app, method }: { caller: ServiceName; audience: ServiceName; app: string; method: string },
  nowMs = Date.now(),
): string {
  const expiresAt = Math.floor((nowMs + tokenLifetimeMs) / 1000);
  const claims = `v1.${caller}.${audience}.${expiresAt}.${Buffer.from(app).toString('base64url')}`;
  return `${claims}.${signature(key, claims, method).toString('base64url')}`;
}

export interface UncheckedToken {
  claims: Claims;
  /** Whether one of these keys has signed it, for this method. */
  isSignedBy(keys: readonly KeyObject[], method: string): boolean;
}

/** Parses a token; undefined if it is malformed. Do not trust its claims before its signature is checked. */
export function readToken(text: string): UncheckedToken | undefined {
  const [, signed = '', caller = '', audience = '', expiresAt, app = '', signatureText = ''] = shape.exec(text) ?? [];
  if (!isServiceName(caller) || !isServiceName(audience)) return undefined;
  const bytes = Buffer.from(signatureText, 'base64url');
  return {
    claims: {
      caller,
      audience,
      expiresAtMs: Number(expiresAt) * 1000,
      app: Buffer.from(app, 'base64url').toString(),
    },
    isSignedBy: (keys, method) => keys.some((key) => timingSafeEqual(bytes, signature(key, signed, method))),
  };
}

/** The app of a request; empty if it has none. */
export function appOf(request: unknown): string {
  const { appId } = request as { appId?: unknown };
  return typeof appId === 'string' ? appId : '';
}
