import { GranaryError, isPassing } from '../errors.ts';
import { errorOf, type Feature } from './answers.ts';
import { backoffMs, sleep } from './waiting.ts';

/** A secret, or what fetches the present one: it is called for each request. */
export type Secret = string | (() => string | Promise<string>);

/** Makes the payment that an answer 402 asks for. Resolves to the headers with which the request is sent again. */
export type Payer = (required: { headers: Headers; body: unknown }) => Promise<Record<string, string>>;

export interface TransportSettings {
  url: string;
  key: Secret | undefined;
  headers: Record<string, string>;
  fetch: typeof fetch;
  timeoutMs: number;
  retries: number;
  parse: (text: string) => unknown;
  pay: Payer | undefined;
}

export type Query = Record<string, string | number | boolean | undefined>;

/** What every call takes. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** How long the call may take with all its attempts; 30 seconds if nothing else is said. */
  timeoutMs?: number | undefined;
}

/** What a call that changes something takes. */
export interface WriteOptions extends CallOptions {
  /**
   * Names the write: the service does it once, however often it comes. The client makes one for each call; one that is
   * kept with the work makes it safe to do again after a crash.
   */
  idempotencyKey?: string | undefined;
}

export interface Call extends WriteOptions {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** From the root of the service, with encoded segments. */
  path: string;
  query?: Query | undefined;
  headers?: Record<string, string | undefined> | undefined;
  /** Is sent as JSON. */
  json?: unknown;
  /** A body for each attempt; undefined where there can be no other attempt. */
  body?: (() => BodyInit) | undefined;
  /** The body can be had once only. */
  isOnce?: boolean;
  /** A POST that changes nothing. */
  isRead?: boolean;
  feature?: Feature | undefined;
}

/** An answer whose head has come. `controller` ends it. */
export interface OpenAnswer {
  response: Response;
  controller: AbortController;
}

/** Sends requests, again where that is safe, with keys and payments, and makes errors of answers that refuse. */
export class Transport {
  readonly settings: TransportSettings;

  constructor(settings: TransportSettings) {
    this.settings = settings;
  }

  /** The same with another `fetch`. */
  withFetch(otherFetch: typeof fetch): Transport {
    return new Transport({ ...this.settings, fetch: otherFetch });
  }

  /** The JSON of an answer. Throws GranaryError, and the reason of the signal. */
  async json<T>(call: Call): Promise<T> {
    const { body } = await this.answer<T>(call);
    return body;
  }

  /** The JSON of an answer, with its headers. */
  answer<T>(call: Call): Promise<{ body: T; headers: Headers; status: number }> {
    return this.repeat(call, async (attempt) => {
      const { response } = await attempt;
      const { headers, status } = response;
      return { body: this.parsed(await response.text(), status) as T, headers, status };
    });
  }

  /** The text of an answer. */
  text(call: Call): Promise<string> {
    return this.repeat(call, async (attempt) => (await attempt).response.text());
  }

  /** An answer whose body is still to be read, for as long as that takes. */
  open(call: Call): Promise<OpenAnswer> {
    return this.repeat(call, (attempt) => attempt);
  }

  private parsed(text: string, status: number): unknown {
    try {
      return text === '' ? undefined : this.settings.parse(text);
    } catch (cause) {
      throw new GranaryError('The answer is not JSON', { code: 'INVALID_ANSWER', status, cause });
    }
  }

  private async repeat<T>(call: Call, read: (attempt: Promise<OpenAnswer>) => Promise<T>): Promise<T> {
    const { signal, timeoutMs = this.settings.timeoutMs } = call;
    const isRead = call.isRead === true || call.method === 'GET' || call.method === 'HEAD';
    const headers: Record<string, string> = isRead ? {} : { 'Idempotency-Key': call.idempotencyKey ?? newKey() };
    const endsMs = performance.now() + timeoutMs;
    for (let failures = 0; ;) {
      const remainingMs = endsMs - performance.now();
      try {
        return await this.within(call, remainingMs, (controller) => read(this.attempt(call, headers, controller)));
      } catch (error) {
        const offer = !('X-PAYMENT' in headers || 'PAYMENT-SIGNATURE' in headers) && paymentAsked.get(error as object);
        if (offer && this.settings.pay) {
          Object.assign(headers, await this.settings.pay(offer));
          continue;
        }
        if (!isPassing(error) || call.isOnce || failures >= this.settings.retries) throw error;
        const waitMs = backoffMs(failures, error.retryAfterMs);
        failures += 1;
        if (performance.now() + waitMs > endsMs) throw error;
        await sleep(waitMs, signal);
      }
    }
  }

  /** Does the work; ends it when the time is over or the signal of the call says so. */
  private async within<T>(call: Call, ms: number, work: (controller: AbortController) => Promise<T>): Promise<T> {
    const { signal, method, path } = call;
    signal?.throwIfAborted();
    const controller = new AbortController();
    const onAbort = () => controller.abort(signal!.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    const late = new GranaryError(`There was no answer to ${method} ${path} in time`, { code: 'TIMEOUT' });
    const timer = setTimeout(() => controller.abort(late), Math.max(0, ms));
    try {
      return await work(controller);
    } catch (error) {
      signal?.throwIfAborted();
      if (controller.signal.aborted) throw late;
      if (error instanceof GranaryError) throw error;
      const message = `${method} ${path} got no whole answer: ${reasonOf(error)}`;
      throw new GranaryError(message, { code: 'NETWORK_ERROR', cause: error });
    } finally {
      clearTimeout(timer);
      // An answer that is still being read goes on: who reads it has the controller.
      signal?.removeEventListener('abort', onAbort);
    }
  }

  private async attempt(call: Call, more: Record<string, string>, controller: AbortController): Promise<OpenAnswer> {
    const { settings } = this;
    const headers = new Headers({ ...settings.headers, ...more });
    if (settings.key !== undefined) headers.set('Authorization', `Bearer ${await valueOf(settings.key)}`);
    if (call.json !== undefined) headers.set('Content-Type', 'application/json');
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers.set(name, value);
    const body = call.json === undefined ? call.body?.() : JSON.stringify(call.json);
    const init: RequestInit & { duplex?: 'half' } = { method: call.method, headers, signal: controller.signal };
    if (body !== undefined) init.body = body;
    if (body instanceof ReadableStream) init.duplex = 'half';
    const response = await settings.fetch(urlOf(settings.url, call), init);
    if (response.ok) return { response, controller };
    const copy = response.status === 402 ? response.clone() : undefined;
    const error = await errorOf(response, call.feature);
    if (copy) paymentAsked.set(error, { headers: copy.headers, body: await copy.json().catch(() => undefined) });
    throw error;
  }
}

/** Answers 402 by the errors that were made of them. */
const paymentAsked = new WeakMap<object, { headers: Headers; body: unknown }>();

export const valueOf = async (secret: Secret): Promise<string> => (typeof secret === 'string' ? secret : secret());

function urlOf(url: string, { path, query = {} }: Call): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, String(value));
  const text = parameters.toString();
  return `${url}${path}${text === '' ? '' : `?${text}`}`;
}

/** Why a request has failed: an error of `fetch` says so in its cause. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error && cause.message !== '' ? cause.message : message;
}

/** Not `randomUUID`, which pages have by HTTPS only. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes));
}
