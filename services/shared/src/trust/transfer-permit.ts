import { createHmac, timingSafeEqual, type KeyObject } from 'node:crypto';

/** The header of a permit. */
export const permitHeader = 'x-granary-grant';
/** `<code> <reason>` of an error, in addition to its JSON: an answer to HEAD has no body. */
export const permitErrorHeader = 'x-granary-error';
/** A gateway sends it with `1` when it can read the bytes of a blob from the object store itself. */
export const directReadHeader = 'x-granary-direct-read';
/**
 * The URL from which the gateway is to read the bytes. The response has the status and the headers of a download and no
 * body; `storeLengthHeader` has the `Content-Length` that the client gets.
 */
export const storeUrlHeader = 'x-granary-store-url';
export const storeLengthHeader = 'x-granary-store-length';

/** An upload that the gateway has authorized. The blobs service accepts exactly this one. */
export interface UploadPermit {
  op: 'upload';
  appId: string;
  /** Decimal text: JSON has no bigint. */
  appNumber: string;
  collection: string;
  ticketId: string;
  blobId: string;
  /** The uploader, for the idempotency key. */
  caller: string;
  method: string;
  path: string;
  idempotencyKey: string | null;
  maxBytes: number;
  /** Whether what the upload costs is paid, or its caller need not pay. */
  isPaid: boolean;
  /** Whether what it costs is held, see CommitUploadRequest. */
  isHeld: boolean;
  /** Whether the client has chosen `blobId`: then the upload only creates. Absent in permits of older gateways. */
  isIdChosen?: boolean;
}

/**
 * The method of an upload on the internal hop. It is one that the release before refuses where the client has chosen
 * the id, because that one would overwrite a document of the same id.
 */
export const uploadMethod = ({ isIdChosen }: Pick<UploadPermit, 'isIdChosen'>): 'POST' | 'PUT' =>
  isIdChosen === true ? 'PUT' : 'POST';

export interface DownloadPermit {
  op: 'read';
  appId: string;
  collection: string;
  blobId: string;
}

export type TransferPermit = (UploadPermit | DownloadPermit) & {
  /** Milliseconds since the epoch. A permit is checked only when a transfer starts, so it can be short-lived. */
  expiresAtMs: number;
};

function sign(key: KeyObject, payload: string): string {
  return createHmac('sha256', key).update('granary grant\n').update(payload).digest('base64url');
}

/** Claims and their HMAC-SHA256, with the key for calls from the gateway to blobs, in one line of URL-safe text. */
export function signPermit(key: KeyObject, permit: TransferPermit): string {
  const payload = Buffer.from(JSON.stringify(permit)).toString('base64url');
  return `${payload}.${sign(key, payload)}`;
}

/** The claims of a permit; undefined when no key has signed it, it was altered, or it has expired. */
export function verifyPermit(
  keys: readonly KeyObject[],
  text: string | undefined,
  nowMs = Date.now(),
): TransferPermit | undefined {
  const [payload = '', signature = '', ...rest] = (text ?? '').split('.');
  const actual = Buffer.from(signature);
  const signed = keys.some((key) => {
    // Compared as text: base64url has several encodings of the same bytes, and a permit has one.
    const expected = Buffer.from(sign(key, payload));
    return actual.length === expected.length && timingSafeEqual(actual, expected);
  });
  if (rest.length > 0 || !signed) return undefined;
  // Only signed text is parsed, so its shape is that of the Permit that was signed.
  const permit = JSON.parse(Buffer.from(payload, 'base64url').toString()) as TransferPermit;
  return permit.expiresAtMs > nowMs ? permit : undefined;
}
