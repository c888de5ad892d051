import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ripemd160 } from '@noble/hashes/legacy';
import { bech32 } from '@scure/base';
import { isSignatureOf } from '@granary/shared/money/secp256k1';
import { unauthenticated } from '../errors/problem';

/** How far the timestamp of a signature may be from our clock, either way. */
const windowSeconds = 300;

export interface SignedRequest {
  method: string;
  /** The path and query string, as the client sent them. */
  target: string;
  body: Buffer;
}

/** The signature of a request as its headers have it. */
export interface WalletSignature {
  /** The address that the public key hashes to. */
  address: string;
  publicKey: Buffer;
  /** The time of the signature, in whole seconds since 1970. */
  timestamp: string;
  bytes: Buffer;
}

/** Whether a request claims to be signed by a wallet. */
export const isWalletSigned = (headers: IncomingHttpHeaders): boolean =>
  headers['x-signature'] !== undefined || headers['x-wallet-address'] !== undefined;

/**
 * The signature in the headers X-Wallet-Address, X-Timestamp, X-Signature and X-Pubkey. Checks timestamp and address
 * only; the caller must verify the signature itself. Throws UNAUTHENTICATED.
 */
export function readWalletSignature(headers: IncomingHttpHeaders, nowMs = Date.now()): WalletSignature {
  const address = one(headers['x-wallet-address'], 'X-Wallet-Address');
  const timestamp = one(headers['x-timestamp'], 'X-Timestamp');
  const bytes = fromBase64(one(headers['x-signature'], 'X-Signature'), 64, 'X-Signature');
  const publicKey = fromBase64(one(headers['x-pubkey'], 'X-Pubkey'), 33, 'X-Pubkey');
  if (!/^\d{1,12}$/.test(timestamp)) throw unauthenticated('X-Timestamp must be a time in whole seconds');
  if (Math.abs(nowMs / 1000 - Number(timestamp)) > windowSeconds) {
    throw unauthenticated('X-Timestamp is more than five minutes from now');
  }
  if (!belongsTo(publicKey, address)) throw unauthenticated('X-Wallet-Address does not belong to X-Pubkey');
  return { address, publicKey, timestamp, bytes };
}

/** Whether it is the ADR-036 signature of this request. */
export function isSignatureOfRequest(
  { address, publicKey, timestamp, bytes }: WalletSignature,
  request: SignedRequest,
): boolean {
  const digest = hash('sha256', signDoc(address, signedText(request, timestamp)), 'buffer');
  // Of the two forms that every signature has, only the canonical one is valid.
  return isSignatureOf(publicKey, digest, bytes);
}

/** The text that the wallet signs: a line each for method, path with query, seconds, and SHA-256 of the body in hex. */
export function signedText(request: SignedRequest, timestamp: string): string {
  const bodyHash = hash('sha256', request.body, 'hex');
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
  const derived = ripemd160(hash('sha256', publicKey, 'buffer'));
  return bytes !== undefined && Buffer.from(derived).equals(bytes);
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
