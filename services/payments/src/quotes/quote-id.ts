import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** What a quote is an offer for. Another value of any of these is another offer. */
export interface QuoteBinding {
  appId: string;
  operation: string;
  path: string;
  query: string;
  bodyHash: Buffer;
  network: string;
  asset: string;
  payTo: string;
  /** The revision of the rate at which the asset is taken; 0 for utia, which is taken as it is. */
  rateRevision: number;
}

/** What a quote says itself. */
export interface QuoteTerms {
  expiresAtSeconds: number;
  amountUtia: bigint;
}

const version = 1;
const lengths = { version: 1, expiry: 5, amount: 7, random: 6, mac: 16 };
const macAt = lengths.version + lengths.expiry + lengths.amount + lengths.random;
const length = macAt + lengths.mac;

/**
 * The id of a quote, 47 characters of base64url: its terms, a random part, and a MAC over both and the binding. So a quote
 * that nobody pays needs no memory of it.
 */
export function makeQuoteId(key: Buffer, binding: QuoteBinding, { expiresAtSeconds, amountUtia }: QuoteTerms): string {
  const bytes = Buffer.alloc(length);
  bytes[0] = version;
  bytes.writeUIntBE(expiresAtSeconds, lengths.version, lengths.expiry);
  bytes.set(Buffer.from(amountUtia.toString(16).padStart(2 * lengths.amount, '0'), 'hex'), 6);
  randomBytes(lengths.random).copy(bytes, macAt - lengths.random);
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
    amountUtia: BigInt(`0x${bytes.toString('hex', 6, 6 + lengths.amount)}`),
  };
}

function macOf(key: Buffer, binding: QuoteBinding, terms: Buffer): Buffer {
  const { appId, operation, path, query, bodyHash, network, asset, payTo, rateRevision } = binding;
  // JSON keeps the parts apart, whatever they contain.
  const text = JSON.stringify([
    ...[appId, operation, path, query, bodyHash.toString('hex'), network, asset, payTo, rateRevision],
  ]);
  return createHmac('sha256', key).update(terms).update(text).digest().subarray(0, lengths.mac);
}
