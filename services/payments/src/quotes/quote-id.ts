import { createHmac, timingSafeEqual } from 'node:crypto';
import { randomSlice } from '@granary/shared/random';

/** The offer to which a quote is bound. A different value of any member is a different offer. */
export interface QuoteBinding {
  appId: string;
  /** SHA-256 of the request in its one spelling. */
  requestHash: Buffer;
  network: string;
  asset: string;
  payTo: string;
  /** The revision of the rate at which the asset is taken; 0 for utia, which is taken as it is. */
  rateRevision: number;
}

/** The terms that the id of a quote contains. */
export interface QuoteTerms {
  expiresAtSeconds: number;
  amountUtia: bigint;
  /** The part of the application in millionths. */
  appSharePpm: number;
}

const version = 2;
const lengths = { version: 1, expiry: 5, amount: 7, share: 3, random: 6, mac: 16 };
const amountAt = lengths.version + lengths.expiry;
const shareAt = amountAt + lengths.amount;
const macAt = shareAt + lengths.share + lengths.random;
const length = macAt + lengths.mac;

/**
 * The id of a quote, 51 characters of base64url: its terms, a random part, and a MAC over both and the binding. So a
 * quote that nobody pays needs no memory of it.
 */
export function makeQuoteId(
  key: Buffer,
  binding: QuoteBinding,
  { expiresAtSeconds, amountUtia, appSharePpm }: QuoteTerms,
): string {
  const bytes = Buffer.alloc(length);
  // Eight bytes, of which the first is zero and part of the expiry, written next.
  bytes.writeBigUInt64BE(amountUtia, amountAt - 1);
  bytes.writeUIntBE(expiresAtSeconds, lengths.version, lengths.expiry);
  bytes[0] = version;
  bytes.writeUIntBE(appSharePpm, shareAt, lengths.share);
  randomSlice(lengths.random).copy(bytes, macAt - lengths.random);
  macOf(key, binding, bytes.subarray(0, macAt)).copy(bytes, macAt);
  return bytes.toString('base64url');
}

/** The terms of a quote that was made with the key for this binding; undefined for any other text. */
export function readQuoteId(key: Buffer, binding: QuoteBinding, id: string): QuoteTerms | undefined {
  const bytes = Buffer.from(id, 'base64url');
  if (bytes.length !== length || bytes[0] !== version || bytes.toString('base64url') !== id) return undefined;
  const expected = macOf(key, binding, bytes.subarray(0, macAt));
  if (!timingSafeEqual(expected, bytes.subarray(macAt))) return undefined;
  return {
    expiresAtSeconds: bytes.readUIntBE(lengths.version, lengths.expiry),
    amountUtia: BigInt(`0x${bytes.toString('hex', amountAt, shareAt)}`),
    appSharePpm: bytes.readUIntBE(shareAt, lengths.share),
  };
}

function macOf(key: Buffer, binding: QuoteBinding, terms: Buffer): Buffer {
  const { appId, requestHash, network, asset, payTo, rateRevision } = binding;
  // JSON keeps the parts apart, whatever they contain.
  const text = JSON.stringify([appId, requestHash.toString('hex'), network, asset, payTo, rateRevision]);
  return createHmac('sha256', key).update(terms).update(text).digest().subarray(0, lengths.mac);
}
