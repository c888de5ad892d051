import { readFile } from 'node:fs/promises';
import { StoreFailure } from './retry';

/** The keys that requests are signed with. */
export interface S3Keys {
  accessKey: string;
  secretKey: string;
  /** The session token of keys that expire. */
  sessionToken?: string;
}

export interface WebIdentityOptions {
  /** A file with the token of a service account, which is renewed. */
  tokenFile: string;
  roleArn?: string | undefined;
  /** The URL of the security token service: `https://host`. */
  endpoint: string;
}

const requestTimeoutMs = 10_000;
/** Keys are replaced when this part of their time is left. */
const renewBefore = 1 / 3;
/** The pause after an attempt that failed while keys are still valid. */
const retryAfterMs = 10_000;

/** The token was refused. */
class TokenRefused extends Error {
  override readonly name = 'TokenRefused';
  /** The code of the refusal, as the object store names it. */
  readonly code = 'AccessDenied';
}

/**
 * A source of keys that expire, in exchange for the token of a service account (AssumeRoleWithWebIdentity). They are
 * replaced before they do; keys that are still valid stay in use while that fails. Concurrent callers share a request.
 */
export function webIdentityKeys(options: WebIdentityOptions): () => Promise<S3Keys> {
  let keys: S3Keys | undefined;
  let renewAtMs = 0;
  let expiresAtMs = 0;
  let renewing: Promise<void> | undefined;
  const renew = async (): Promise<void> => {
    try {
      const got = await assumeRole(options);
      const nowMs = Date.now();
      [keys, expiresAtMs] = [got.keys, got.expiresAtMs];
      renewAtMs = expiresAtMs - (expiresAtMs - nowMs) * renewBefore;
    } catch (error) {
      if (Date.now() >= expiresAtMs) throw error;
      renewAtMs = Date.now() + retryAfterMs;
    } finally {
      renewing = undefined;
    }
  };
  return async () => {
    if (Date.now() >= renewAtMs) await (renewing ??= renew());
    return keys!;
  };
}

async function assumeRole({ tokenFile, roleArn, endpoint }: WebIdentityOptions) {
  const form = new URLSearchParams({
    Action: 'AssumeRoleWithWebIdentity',
    Version: '2011-06-15',
    WebIdentityToken: (await readToken(tokenFile)).trim(),
    ...(roleArn !== undefined && { RoleArn: roleArn, RoleSessionName: 'granary-blobs' }),
  });
  const request = { method: 'POST', body: form, signal: AbortSignal.timeout(requestTimeoutMs) };
  const { status, text } = await fetch(new URL('/', endpoint), request)
    .then(async (response) => ({ status: response.status, text: await response.text() }))
    .catch((cause: unknown) => {
      throw new StoreFailure('The security token service cannot be reached', { cause });
    });
  if (status >= 500 || status === 429) throw new StoreFailure(`The security token service answers ${status}`);
  if (status !== 200) throw new TokenRefused(`The security token service answers ${status} ${element(text, 'Code')}`);
  const [accessKey, secretKey] = [element(text, 'AccessKeyId'), element(text, 'SecretAccessKey')];
  const expiresAtMs = Date.parse(element(text, 'Expiration'));
  if (accessKey === '' || secretKey === '' || !(expiresAtMs > 0)) {
    throw new StoreFailure('The answer of the security token service has no keys');
  }
  return { keys: { accessKey, secretKey, sessionToken: element(text, 'SessionToken') }, expiresAtMs };
}

function readToken(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new StoreFailure('The file of the web identity token cannot be read', { cause });
  });
}

/** The text of the first element of that name; what these answers hold has no entities. */
function element(xml: string, name: string): string {
  return new RegExp(`<${name}>\\s*([^<]*?)\\s*</${name}>`).exec(xml)?.[1] ?? '';
}
