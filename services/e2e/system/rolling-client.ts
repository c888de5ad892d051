import { Agent, request as open, type IncomingHttpHeaders } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { limitMs } from '@granary/testing/speed';

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  json<T>(): T;
}

export interface Request {
  key?: string;
  body?: Buffer | object;
  headers?: Record<string, string>;
}

const pollEveryMs = 100;
const requestTimeoutMs = limitMs(20_000);

/**
 * What a client behind a balancer sees of several gateways: each request goes to one of those that say that they are
 * ready (if none does, to one that is not stopping), over a connection that was used a moment ago or a new one. Nothing
 * is sent twice.
 */
export class Balanced {
  private readonly ready = new Set<string>();
  /** They answer, but not in time or not well: an overloaded machine makes them do so. */
  private readonly doubtful = new Set<string>();
  private readonly agent = new Agent({ keepAlive: true, timeout: 300 });
  private readonly polling: Promise<void>;
  private stopped = false;
  private turn = 0;

  constructor(private readonly urls: readonly string[]) {
    this.polling = Promise.all(urls.map((url) => this.poll(url))).then(() => {});
  }

  /** Resolves when all of them are ready. */
  async whenAllReady(): Promise<void> {
    while (this.ready.size < this.urls.length) await delay(20);
  }

  /** Throws when there is no answer, or nobody to ask. */
  send(method: string, path: string, { key, body, headers = {} }: Request = {}): Promise<Reply> {
    const candidates = [...(this.ready.size > 0 ? this.ready : this.doubtful)];
    const url = candidates[this.turn++ % candidates.length];
    if (url === undefined) return Promise.reject(new Error('no gateway is ready'));
    return this.ask(url, method, path, body, { ...headers, ...(key !== undefined && { 'x-app-key': key }) });
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.polling;
    this.agent.destroy();
  }

  private async poll(url: string): Promise<void> {
    while (!this.stopped) {
      const status = await this.ask(url, 'GET', '/readyz').then(
        (reply) => reply.json<{ status: string }>().status,
        () => 'gone',
      );
      this.ready.delete(url);
      this.doubtful.delete(url);
      if (status === 'ready') this.ready.add(url);
      if (status === 'not ready') this.doubtful.add(url);
      await delay(pollEveryMs);
    }
  }

  private ask(
    url: string,
    method: string,
    path: string,
    body?: Buffer | object,
    headers: Record<string, string> = {},
  ): Promise<Reply> {
    const bytes = Buffer.isBuffer(body) || body === undefined ? body : Buffer.from(JSON.stringify(body));
    const type = bytes !== undefined && bytes !== body && { 'content-type': 'application/json' };
    const length = bytes && { 'content-length': String(bytes.length) };
    return new Promise((resolve, reject) => {
      const options = { method, agent: this.agent, headers: { ...type, ...length, ...headers } };
      const sent = open(url + path, options, (response) => {
        response.toArray().then((chunks) => {
          const received = Buffer.concat(chunks as Buffer[]);
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: received,
            json: <T>() => JSON.parse(received.toString()) as T,
          });
        }, reject);
      });
      const cutOff = setTimeout(() => sent.destroy(new Error('no answer in time')), requestTimeoutMs);
      sent.once('close', () => clearTimeout(cutOff));
      sent.on('error', reject).end(bytes);
    });
  }
}
