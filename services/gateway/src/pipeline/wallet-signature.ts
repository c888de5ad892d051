import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { secp256k1 } from '@noble/curves/secp256k1';
import { ripemd160 } from '@noble/hashes/legacy';
import { bech32 } from '@scure/base';
import { unauthenticated } from '../errors/problem';

/** How far the timestamp of a signature may be from our clock, either way. */
const windowSeconds = 300;

export interface SignedRequest {
  method: string;
  /** As the client sent it: path and query string. */
  target: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/**
 * Checks the ADR-036 signature of a request (headers X-Wallet-Address, X-Timestamp, X-Signature, X-Pubkey) and
 * returns the address that signed. Throws UNAUTHENTICATED.
 */
export function verifyWalletSignature(request: SignedRequest, nowMs = Date.now()): string {
  const { headers } = request;
  const address = one(headers['x-wallet-address'], 'X-Wallet-Address');
  const timestamp = one(headers['x-timestamp'], 'X-Timestamp');
  const signature = fromBase64(one(headers['x-signature'], 'X-Signature'), 64, 'X-Signature');
  const publicKey = fromBase64(one(headers['x-pubkey'], 'X-Pubkey'), 33, 'X-Pubkey');

  if (!/^\d{1,12}$/.test(timestamp)) throw unauthenticated('X-Timestamp must be a time in whole seconds');
  if (Math.abs(nowMs / 1000 - Number(timestamp)) > windowSeconds) {
    throw unauthenticated('X-Timestamp is more than five minutes from now');
  }
  if (!belongsTo(publicKey, address)) throw unauthenticated('X-Wallet-Address does not belong to X-Pubkey');
  const hash = createHash('sha256')
    .update(signDoc(address, signedText(request, timestamp)))
    .digest();
  if (!isSignature(signature, hash, publicKey)) throw unauthenticated('X-Signature is not valid for this request');
  return address;
}

/** What the wallet signs: one line each for method, path with query, seconds, and the SHA-256 of the body in hex. */
export function signedText(request: Pick<SignedRequest, 'method' | 'target' | 'body'>, timestamp: string): string {
  const bodyHash = createHash('sha256').update(request.body).digest('hex');
  return `${request.method}\n${request.target}\n${timestamp}\n${bodyHash}`;
}

/** The amino sign document of ADR-036: sorted keys, nothing that could be sent to a chain. */
export function signDoc(signer: string, text: string): string {
  return JSON.stringify({
    account_number: '0',
    chain_id: '',
    fee: { amount: [], gas: '0' },
    memo: '',
    msgs: [{ type: 'sign/MsgSignData', value: { data: Buffer.from(text).toString('base64'), signer } }],
    sequence: '0',
  });
}

/** Whether text is a bech32 address of 20 bytes, whatever chain its prefix names. */
export function isWalletAddress(text: string): boolean {
  return decodeAddress(text) !== undefined;
}

function decodeAddress(text: string): Uint8Array | undefined {
  // bech32 also knows an upper-case form; one spelling for one address is enough.
  if (text !== text.toLowerCase()) return undefined;
  const decoded = bech32.decodeUnsafe(text);
  const bytes = decoded && bech32.fromWordsUnsafe(decoded.words);
  return bytes instanceof Uint8Array && bytes.length === 20 ? bytes : undefined;
}

function belongsTo(publicKey: Buffer, address: string): boolean {
  const bytes = decodeAddress(address);
  const derived = ripemd160(createHash('sha256').update(publicKey).digest());
  return bytes !== undefined && Buffer.from(derived).equals(bytes);
}

function isSignature(signature: Buffer, hash: Buffer, publicKey: Buffer): boolean {
  try {
    // lowS: of the two forms that every signature has, only the canonical one.
    return secp256k1.verify(signature, hash, publicKey, { lowS: true, prehash: false });
  } catch {
    return false;
  }
}

function one(value: string | string[] | undefined, name: string): string {
  if (typeof value !== 'string' || value === '') throw unauthenticated(`The header ${name} is needed once`);
  return value;
}

function fromBase64(text: string, length: number, name: string): Buffer {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length !== length || bytes.toString('base64') !== text) {
    throw unauthenticated(`${name} must be ${length} bytes in base64`);
  }
  return bytes;
}
