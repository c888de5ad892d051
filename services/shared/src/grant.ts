import { createHmac, timingSafeEqual } from 'node:crypto';
import { ServiceError } from './errors';

/** The header that carries a grant. */
export const grantHeader = 'x-granary-grant';
/** `<code> <reason>` of an error, beside its JSON: an answer to HEAD has no body. */
export const grantErrorHeader = 'x-granary-error';

/** What the gateway has decided about an upload; the blobs service does exactly this and nothing else. */
export interface UploadGrant {
  op: 'upload';
  appId: string;
  /** Decimal text: JSON has no bigint. */
  appNumber: string;
  collection: string;
  ticketId: string;
  blobId: string;
  /** Who uploads, for the idempotency key. */
  caller: string;
  method: string;
  path: string;
  idempotencyKey: string | null;
  maxBytes: number;
}

export interface ReadGrant {
  op: 'read';
  appId: string;
  collection: string;
  blobId: string;
}

export type Grant = (UploadGrant | ReadGrant) & {
  /** Milliseconds since the epoch. A grant is checked when a transfer starts, so it can be short however long that takes. */
  expiresAtMs: number;
};

function sign(secret: string, payload: string): Buffer {
  return createHmac('sha256', secret).update('granary grant\n').update(payload).digest();
}

/** Claims and their HMAC-SHA256 in one line of URL-safe text. */
export function signGrant(secret: string, grant: Grant): string {
  const payload = Buffer.from(JSON.stringify(grant)).toString('base64url');
  return `${payload}.${sign(secret, payload).toString('base64url')}`;
}

/** The claims of a grant. Throws UNAUTHENTICATED when it is not ours, was altered, or has expired. */
export function verifyGrant(secret: string, text: string | undefined, nowMs = Date.now()): Grant {
  const [payload = '', signature = '', ...rest] = (text ?? '').split('.');
  const expected = sign(secret, payload);
  const given = Buffer.from(signature, 'base64url');
  if (rest.length > 0 || given.length !== expected.length || !timingSafeEqual(given, expected)) throw refused();
  // Only what this secret has signed is parsed, so its shape is the one that `signGrant` was given.
  const grant = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Grant;
  if (!(grant.expiresAtMs > nowMs)) throw refused();
  return grant;
}

function refused(): ServiceError {
  return new ServiceError('UNAUTHENTICATED', 'UNAUTHENTICATED', 'A valid grant is needed');
}
