import { readFile } from 'node:fs/promises';
import { request as requestInClear, type IncomingMessage } from 'node:http';
import { request as requestOverTls } from 'node:https';
import { Backoff } from '@granary/shared/concurrency/backoff';
import { z } from 'zod';

export interface VaultOptions {
  /** Scheme, host and port. */
  url: string;
  /** The path at which the secrets engine is mounted. */
  mount: string;
  namespace?: string | undefined;
  /** Read again for each request, because tokens are renewed. */
  tokenFile: string;
  /** Certificates of the authorities to trust instead of those of the system; read again for each request. */
  caFile?: string | undefined;
  /** The time limit of one request with its whole answer. */
  timeoutMs: number;
}

/** Vault did not answer, is sealed, or could not serve the request: it may succeed later. */
export class VaultFailure extends Error {
  override readonly name = 'VaultFailure';
}

/** Vault refused the request; the message has its reasons. */
export class VaultRefusal extends Error {
  override readonly name = 'VaultRefusal';

  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const attemptsMax = 3;
const delays = { firstMs: 100, maxMs: 1_000 };
const answerMaxBytes = 256 * 1024;

/**
 * Statuses, besides 5xx, of requests that may succeed later: too many requests, and states of a standby that has not
 * caught up (412) or serves no such request (472, 473).
 */
const laterStatuses: ReadonlySet<number> = new Set([412, 429, 472, 473]);

const errorsSchema = z.object({ errors: z.array(z.string()).default([]) });

/** Requests to a secrets engine of HashiCorp Vault, over its HTTP API. No error has the token or a key in it. */
export class VaultClient {
  constructor(private readonly options: VaultOptions) {}

  /**
   * The `data` of the answer to a request, which is repeated when it fails. `path` is below the mount; with a body it
   * is a POST. Throws a VaultFailure, a VaultRefusal.
   */
  async call<T>(path: string, schema: z.ZodType<T>, body?: object): Promise<T> {
    const backoff = new Backoff(delays);
    for (;;) {
      try {
        return await this.attempt(path, schema, body);
      } catch (error) {
        if (!(error instanceof VaultFailure) || backoff.failures >= attemptsMax - 1) throw error;
        await backoff.wait();
      }
    }
  }

  private async attempt<T>(path: string, schema: z.ZodType<T>, body: object | undefined): Promise<T> {
    const { status, text } = await this.send(path, body);
    if (status >= 500 || laterStatuses.has(status)) throw new VaultFailure(`Vault answers ${describe(status, text)}`);
    if (status !== 200) throw new VaultRefusal(status, `Vault answers ${describe(status, text)}`);
    const answer = z.object({ data: schema }).safeParse(parsed(text));
    if (!answer.success) throw new VaultFailure('Vault gives an answer of an unknown form');
    return answer.data.data;
  }

  private async send(path: string, body: object | undefined): Promise<{ status: number; text: string }> {
    const { url, mount, namespace, tokenFile, caFile, timeoutMs } = this.options;
    const token = (await readText(tokenFile, 'token')).trim();
    const ca = caFile === undefined ? undefined : await readText(caFile, 'CA file');
    const target = new URL(`/v1/${mount}/${path}`, url);
    const text = body && JSON.stringify(body);
    const headers = {
      'x-vault-token': token,
      'x-vault-request': 'true',
      ...(namespace !== undefined && { 'x-vault-namespace': namespace }),
      ...(text !== undefined && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
    };
    const request = target.protocol === 'https:' ? requestOverTls : requestInClear;
    // Each request has a separate connection: requests are rare, and the next one may have another CA.
    const options = { method: text === undefined ? 'GET' : 'POST', headers, agent: false, ...(ca && { ca }) };
    try {
      return await new Promise((resolve, reject) => {
        const sent = request(target, { ...options, signal: AbortSignal.timeout(timeoutMs) }, (response) => {
          readAnswer(response).then(resolve, reject);
        });
        sent.on('error', reject).end(text);
      });
    } catch (error) {
      throw new VaultFailure(`Vault cannot be reached: ${reasonOf(error, timeoutMs)}`, { cause: error });
    }
  }
}

async function readAnswer(response: IncomingMessage): Promise<{ status: number; text: string }> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > answerMaxBytes) throw new Error(`it answers with more than ${answerMaxBytes} bytes`);
    chunks.push(chunk);
  }
  return { status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') };
}

/** While a token is replaced its file may be missing. */
function readText(path: string, what: string): Promise<string> {
  return readFile(path, 'utf8').catch((cause: unknown) => {
    throw new VaultFailure(`The ${what} of Vault cannot be read from ${path}`, { cause });
  });
}

function reasonOf(error: unknown, timeoutMs: number): string {
  const { name, code, message } = error as NodeJS.ErrnoException;
  if (name === 'AbortError' || name === 'TimeoutError') return `no answer within ${timeoutMs} ms`;
  return message || code || name;
}

function describe(status: number, text: string): string {
  const { errors = [] } = errorsSchema.safeParse(parsed(text)).data ?? {};
  const reasons = errors.map((reason) => reason.replace(/\s+/g, ' ').trim()).join('; ');
  return reasons === '' ? String(status) : `${status} (${reasons.slice(0, 300)})`;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
