import { createHash } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { ripemd160 } from '@noble/hashes/legacy';
import { bech32 } from '@scure/base';

const sha256 = (data: Uint8Array | string) => createHash('sha256').update(data).digest();

export interface Wallet {
  secret: Uint8Array;
  publicKey: Uint8Array;
  address: string;
}

/** A wallet of a Cosmos chain, made of nothing but the published rules. */
export function newWallet(prefix = 'celestia'): Wallet {
  const secret = secp256k1.utils.randomPrivateKey();
  const publicKey = secp256k1.getPublicKey(secret, true);
  return { secret, publicKey, address: bech32.encode(prefix, bech32.toWords(ripemd160(sha256(publicKey)))) };
}

/** The headers of a GET that the wallet signs, `atMs` by its clock. */
export const signedHeaders = (wallet: Wallet, target: string, atMs = Date.now()): Record<string, string> =>
  signedRequest(wallet, 'GET', target, '', atMs);

/** The headers of a request that the wallet signs as ADR-036 says, `atMs` by its clock. */
export function signedRequest(
  wallet: Wallet,
  method: string,
  target: string,
  body = '',
  atMs = Date.now(),
): Record<string, string> {
  const timestamp = String(Math.floor(atMs / 1000));
  const text = `${method}\n${target}\n${timestamp}\n${sha256(body).toString('hex')}`;
  const data = Buffer.from(text).toString('base64');
  const document =
    '{"account_number":"0","chain_id":"","fee":{"amount":[],"gas":"0"},"memo":"","msgs":[{"type":"sign/MsgSignData",' +
    `"value":{"data":"${data}","signer":"${wallet.address}"}}],"sequence":"0"}`;
  const signature = secp256k1.sign(sha256(document), wallet.secret, { lowS: true }).toBytes('compact');
  return {
    'x-wallet-address': wallet.address,
    'x-timestamp': timestamp,
    'x-signature': Buffer.from(signature).toString('base64'),
    'x-pubkey': Buffer.from(wallet.publicKey).toString('base64'),
  };
}
