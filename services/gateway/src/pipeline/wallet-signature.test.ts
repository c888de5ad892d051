import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { secp256k1 } from '@noble/curves/secp256k1';
import { ripemd160 } from '@noble/hashes/legacy';
import { bech32 } from '@scure/base';
import { unauthenticated } from '../errors/problem';
import { isSignatureOfRequest, readWalletSignature, signDoc, signedText, type SignedRequest } from './wallet-signature';

const nowMs = 1_790_000_000_000;
const sha256 = (data: Uint8Array | string) => createHash('sha256').update(data).digest();

/** The address that has signed a request. */
function verifyWalletSignature(request: SignedRequest & { headers: IncomingHttpHeaders }, atMs: number): string {
  const signature = readWalletSignature(request.headers, atMs);
  if (!isSignatureOfRequest(signature, request)) throw unauthenticated('It is not the signature of the request');
  return signature.address;
}

interface Wallet {
  secret: Uint8Array;
  publicKey: Uint8Array;
  address: string;
}

function newWallet(prefix = 'celestia'): Wallet {
  const secret = secp256k1.utils.randomPrivateKey();
  const publicKey = secp256k1.getPublicKey(secret, true);
  return { secret, publicKey, address: bech32.encode(prefix, bech32.toWords(ripemd160(sha256(publicKey)))) };
}
interface Options {
  timestamp?: string;
  method?: string;
  target?: string;
  body?: Buffer;
}

function signedRequest(wallet: Wallet, options: Options = {}): SignedRequest & { headers: Record<string, string> } {
  const { timestamp = String(nowMs / 1000), method = 'GET', target = '/api/authz/transactions/x?limit=1' } = options;
  const request = { method, target, body: options.body ?? Buffer.alloc(0) };
  const hash = sha256(signDoc(wallet.address, signedText(request, timestamp)));
  const signature = secp256k1.sign(hash, wallet.secret, { lowS: true }).toBytes('compact');
  const headers = {
    'x-wallet-address': wallet.address,
    'x-timestamp': timestamp,
    'x-signature': Buffer.from(signature).toString('base64'),
    'x-pubkey': Buffer.from(wallet.publicKey).toString('base64'),
  };
  return { ...request, headers };
}

const refused = expect.objectContaining({ code: 'UNAUTHENTICATED' }) as Error;

test('a request signed by a wallet is of its address, whatever the prefix of the chain', () => {
  for (const prefix of ['celestia', 'cosmos']) {
    const wallet = newWallet(prefix);
    expect(verifyWalletSignature(signedRequest(wallet), nowMs)).toBe(wallet.address);
  }
});

test('the signed document is the one of ADR-036, byte for byte', () => {
  expect(signDoc('celestia1x', 'GET\n/')).toBe(
    '{"account_number":"0","chain_id":"","fee":{"amount":[],"gas":"0"},"memo":"","msgs":' +
      '[{"type":"sign/MsgSignData","value":{"data":"R0VUCi8=","signer":"celestia1x"}}],"sequence":"0"}',
  );
});

test('a signature for another path, query, method or body is refused', () => {
  const request = signedRequest(newWallet());
  for (const change of [
    { target: '/api/authz/transactions/y?limit=1' },
    { target: '/api/authz/transactions/x?limit=2' },
    { method: 'POST' },
    { body: Buffer.from('{}') },
  ]) {
    expect(() => verifyWalletSignature({ ...request, ...change }, nowMs)).toThrow(refused);
  }
});

test('a timestamp counts for five minutes either way', () => {
  const wallet = newWallet();
  const at = (seconds: number) => signedRequest(wallet, { timestamp: String(nowMs / 1000 + seconds) });
  for (const seconds of [-300, 0, 300]) expect(verifyWalletSignature(at(seconds), nowMs)).toBe(wallet.address);
  for (const seconds of [-301, 301]) expect(() => verifyWalletSignature(at(seconds), nowMs)).toThrow(refused);
  const iso = signedRequest(wallet, { timestamp: new Date(nowMs).toISOString() });
  expect(() => verifyWalletSignature(iso, nowMs)).toThrow(refused);
});

test('the other form of a signature, with high S, is refused', () => {
  const request = signedRequest(newWallet());
  const low = secp256k1.Signature.fromBytes(Buffer.from(request.headers['x-signature']!, 'base64'), 'compact');
  const high = new secp256k1.Signature(low.r, secp256k1.CURVE.n - low.s);
  expect(high.hasHighS()).toBe(true);
  request.headers['x-signature'] = Buffer.from(high.toBytes('compact')).toString('base64');
  expect(() => verifyWalletSignature(request, nowMs)).toThrow(refused);
});

test('an address that does not belong to the public key is refused', () => {
  const [mine, other] = [newWallet(), newWallet()];
  // Signed correctly, but in the name of another.
  expect(() => verifyWalletSignature(signedRequest({ ...mine, address: other.address }), nowMs)).toThrow(refused);
  expect(() => verifyWalletSignature(signedRequest({ ...mine, publicKey: other.publicKey }), nowMs)).toThrow(refused);
  const upper = { ...mine, address: mine.address.toUpperCase() };
  expect(() => verifyWalletSignature(signedRequest(upper), nowMs)).toThrow(refused);
});

test('missing and malformed headers are refused', () => {
  const request = signedRequest(newWallet());
  for (const name of Object.keys(request.headers)) {
    const { [name]: _, ...rest } = request.headers;
    expect(() => verifyWalletSignature({ ...request, headers: rest }, nowMs)).toThrow(refused);
    for (const text of ['', '!', 'AAAA', `${request.headers[name]} `]) {
      const headers = { ...request.headers, [name]: text };
      expect(() => verifyWalletSignature({ ...request, headers }, nowMs)).toThrow(refused);
    }
  }
  // Not a point of the curve.
  const headers = { ...request.headers, 'x-pubkey': Buffer.alloc(33, 2).toString('base64') };
  expect(() => verifyWalletSignature({ ...request, headers }, nowMs)).toThrow(refused);
});
