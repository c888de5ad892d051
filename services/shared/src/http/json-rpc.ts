import { z } from 'zod';

/** The node could not be reached, or what it answered is no answer to the call: nothing is known of the outcome. */
export class NodeFailure extends Error {
  override readonly name = 'NodeFailure';
}

/** The node refused the call, with this code of JSON-RPC; `data` is its reason. */
export class RpcError extends Error {
  override readonly name = 'RpcError';

  constructor(
    message: string,
    readonly data: string,
    readonly code = 0,
  ) {
    super(`${message}: ${data}`);
  }
}

export interface JsonRpcOptions {
  /**
   * The address of the node, with a path or user and password if need be; it may hold a secret, so no error and no log
   * shows it.
   */
  url: string;
  /** The name of the node in errors. */
  name: string;
  /** The time limit of a call with its whole answer. */
  timeoutMs: number;
}

export interface AnswerLimits {
  maxBytes?: number;
  timeoutMs?: number;
}

const defaultMaxBytes = 1024 * 1024;

const answerSchema = z.object({
  id: z.number(),
  result: z.unknown().optional(),
  error: z
    .object({ code: z.number().default(0), message: z.string().default(''), data: z.unknown().optional() })
    .optional(),
});

/** Calls of one node over JSON-RPC 2.0, as CometBFT and the nodes of EVM networks serve it. */
export class JsonRpc {
  readonly name: string;
  private readonly url: URL;
  private readonly headers: Record<string, string>;
  private nextId = 1;

  constructor(private readonly options: JsonRpcOptions) {
    this.name = options.name;
    this.url = new URL(options.url);
    const { username, password } = this.url;
    const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
    this.headers = {
      'content-type': 'application/json',
      ...(credentials !== ':' && { authorization: `Basic ${Buffer.from(credentials).toString('base64')}` }),
    };
    // fetch refuses a URL that holds them.
    this.url.username = '';
    this.url.password = '';
  }

  /** The result of a call. Throws an RpcError that the node answered with, and otherwise a NodeFailure. */
  async call<T>(
    method: string,
    params: Record<string, unknown> | readonly unknown[],
    schema: z.ZodType<T>,
    { maxBytes = defaultMaxBytes, timeoutMs = this.options.timeoutMs }: AnswerLimits = {},
  ): Promise<T> {
    const id = this.nextId++;
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params });
    const { status, text } = await this.post(method, body, maxBytes, Math.min(timeoutMs, this.options.timeoutMs));
    const answer = parse(text, answerSchema);
    if (answer?.id !== id) throw this.failure(method, `answers with HTTP ${status} and no JSON-RPC`);
    if (answer.error) throw new RpcError(`${this.name} refuses ${method}`, reasonIn(answer.error), answer.error.code);
    const result = schema.safeParse(answer.result);
    if (!result.success) throw this.failure(method, `answers with an unknown form: ${z.prettifyError(result.error)}`);
    return result.data;
  }

  private async post(
    method: string,
    body: string,
    maxBytes: number,
    timeoutMs: number,
  ): Promise<{ status: number; text: string }> {
    try {
      const signal = AbortSignal.timeout(timeoutMs);
      const request = { method: 'POST', headers: this.headers, body, signal, redirect: 'error' } as const;
      const response = await fetch(this.url, request);
      return { status: response.status, text: await readText(response, maxBytes) };
    } catch (error) {
      if (error instanceof AnswerTooLarge) throw this.failure(method, `answers with more than ${maxBytes} bytes`);
      throw this.failure(method, 'does not answer');
    }
  }

  private failure(method: string, problem: string): NodeFailure {
    return new NodeFailure(`${this.name} ${problem} (${method})`);
  }
}

/** CometBFT has it in `data`; what EVM nodes have there is for programs. */
const reasonIn = ({ message, data }: { message: string; data?: unknown }): string =>
  typeof data === 'string' && data !== '' && !data.startsWith('0x') ? data : message;

class AnswerTooLarge extends Error {}

/** Throws an AnswerTooLarge as soon as there is more. */
async function readText(response: Response, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > maxBytes) throw new AnswerTooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parse<T>(text: string, schema: z.ZodType<T>): T | undefined {
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
