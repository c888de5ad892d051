import type { Route } from '../pipeline/route';

type Json = Record<string, unknown>;

const header = (name: string, description: string) => ({ type: 'apiKey', in: 'header', name, description });

export const securitySchemes = {
  appKey: header('X-App-Key', 'A key of the application'),
  appKeyBearer: { type: 'http', scheme: 'bearer', description: 'The same key as a bearer token' },
  appKeyOlder: header('X-API-Key', 'The same key, for older clients'),
  operatorKey: header('X-Operator-Key', 'The key of the person who runs the service'),
  walletAddress: header('X-Wallet-Address', 'The address that signs the request'),
  walletApp: header('X-App-Id', 'The application whose owner signs the request'),
  walletTimestamp: header('X-Timestamp', 'When it was signed, in seconds since 1970; valid for five minutes'),
  walletPubkey: header('X-Pubkey', 'The public key of the address, in base64'),
  walletSignature: header('X-Signature', 'The ADR-036 signature, in base64'),
};

const signedByWallet = { walletAddress: [], walletTimestamp: [], walletPubkey: [], walletSignature: [] };

const anyAppKey = [{ appKey: [] }, { appKeyBearer: [] }, { appKeyOlder: [] }];

type Secured = Pick<Route, 'auth' | 'path' | 'method' | 'body'>;

/** Whether a wallet can sign requests of a route. What is streamed to the service it cannot. */
export const isSignable = ({ auth, method, body }: Secured): boolean =>
  (auth.kind === 'app' || auth.kind === 'reader' || auth.kind === 'wallet') &&
  (body?.kind !== 'stream' || method === 'GET');

/** How the owner of an application signs in place of a key. */
function signedByOwner(route: Secured): Json[] {
  if (!isSignable(route)) return [];
  return [route.path.includes('{app_id}') ? signedByWallet : { ...signedByWallet, walletApp: [] }];
}

/** The security requirements of a route, each of which is enough to authenticate a request. */
export function securityOf(route: Secured): Json[] {
  const access = route.auth;
  switch (access.kind) {
    case 'public':
      return [];
    case 'reader':
      return [...(access.keyFirst ? [...anyAppKey, {}] : [{}, ...anyAppKey]), ...signedByOwner(route)];
    case 'operator':
      return [{ operatorKey: [] }];
    case 'wallet':
      return [signedByWallet, { operatorKey: [] }];
    case 'app':
      return [...anyAppKey, ...signedByOwner(route), ...(access.operator ? [{ operatorKey: [] }] : [])];
  }
}

/** The sentence about it in the description of an operation. */
export function accessText(route: Secured): string {
  const access = route.auth;
  const orSignature = isSignable(route) ? ', or the signature of the owner' : '';
  switch (access.kind) {
    case 'public':
      return 'Public.';
    case 'reader':
      return `Public, or with a key that has \`Read\`${orSignature}, where the data is private.`;
    case 'operator':
      return 'For the operator.';
    case 'wallet':
      return 'Needs the signature of the wallet, or the operator key.';
    case 'app':
      return `Needs a key with \`${access.permission}\`${orSignature}${access.operator ? ', or the operator key' : ''}.`;
  }
}
