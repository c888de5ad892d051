import type { Access } from '../pipeline/access';

type Json = Record<string, unknown>;

const header = (name: string, description: string) => ({ type: 'apiKey', in: 'header', name, description });

export const securitySchemes = {
  appKey: header('X-App-Key', 'A key of the application'),
  appKeyBearer: { type: 'http', scheme: 'bearer', description: 'The same key as a bearer token' },
  appKeyOlder: header('X-API-Key', 'The same key, for older clients'),
  operatorKey: header('X-Operator-Key', 'The key of the person who runs the service'),
  walletAddress: header('X-Wallet-Address', 'The address that signs the request'),
  walletTimestamp: header('X-Timestamp', 'When it was signed, in seconds since 1970; valid for five minutes'),
  walletPubkey: header('X-Pubkey', 'The public key of the address, in base64'),
  walletSignature: header('X-Signature', 'The ADR-036 signature, in base64'),
};

const signedByWallet = { walletAddress: [], walletTimestamp: [], walletPubkey: [], walletSignature: [] };

const anyAppKey = [{ appKey: [] }, { appKeyBearer: [] }, { appKeyOlder: [] }];

/** What authenticates a request; each element is enough. */
export function securityOf(access: Access): Json[] {
  switch (access.kind) {
    case 'public':
      return [];
    case 'reader':
      return [{}, ...anyAppKey];
    case 'operator':
      return [{ operatorKey: [] }];
    case 'wallet':
      return [signedByWallet, { operatorKey: [] }];
    case 'app':
      return access.operator ? [...anyAppKey, { operatorKey: [] }] : anyAppKey;
  }
}

/** The sentence about it in the description of an operation. */
export function accessText(access: Access): string {
  switch (access.kind) {
    case 'public':
      return 'Public.';
    case 'reader':
      return 'Public, or with a key that has `Read` where the data is private.';
    case 'operator':
      return 'For the operator.';
    case 'wallet':
      return 'Needs the signature of the wallet, or the operator key.';
    case 'app':
      return `Needs a key with \`${access.permission}\`${access.operator ? ', or the operator key' : ''}.`;
  }
}
