import { GranaryError, isPassing } from '../errors.ts';
import { errorOf, type Feature } from './answers.ts';
import { backoffMs, raced, sleep } from './waiting.ts';

/** A secret, or what fetches the present one: it is called for each request. */
export type Secret = string | (() => string | Promise<string>);

/** Makes the payment that an answer 402 asks for. Resolves to the headers with which the request is sent again. */
export type Payer = (required: { headers: Headers; body: unknown }) => Promise<Record<string, string>>;

export interface TransportSettings {
  url: string;
  key: Secret | undefined;
  headers: Record<string, string>;
  /** Keys that pay for what has a price. */
  payingHeaders: Record<string, string>;
  fetch: typeof fetch;
  timeoutMs: number;
  retries: number;
  parse: (text: string) => unknown;
  pay: Payer | undefined;
}

export type Query = Record<string, string | number | boolean | undefined>;

/** Options of every call. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** How long the call may take with all its attempts; 30 seconds if nothing else is said. */
  timeoutMs?: number | undefined;
}

/** Options of a call that changes something. */
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
  /** JSON that is sent as it is, in place of `json`. */
  jsonText?: string | undefined;
  /** A body for each attempt; undefined where there can be no other attempt. */
  body?: (() => BodyInit) | undefined;
  /** It is made once, whatever comes of it. */
  isOnce?: boolean;
  /** The answer may lead to another host, which has no business with the keys that pay. */
  mayRedirect?: boolean;
  /** A POST that changes nothing. */
  isRead?: boolean;
  feature?: Feature | undefined;
}

/** An answer whose head has come. `controller` ends it. */
export interface OpenAnswer {
  response: Response;
  controller: AbortController;
}

/** The time that a payment has to be confirmed, which the service waits for. */
const confirmationMs = 90_000;
const pendingDelayMs = 2_000;

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
      const body = this.parsed(await response.text(), status) as T;
      if (status === 202 && isUnconfirmed(body)) throw unconfirmed(body);
      return { body, headers, status };
    });
  }

  /** The text of an answer as it is. Throws as `json` does. */
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
    const request = this.prepared(call);
    let endsMs = performance.now() + timeoutMs;
    for (let failures = 0; ;) {
      const remainingMs = endsMs - performance.now();
      try {
        return await this.within(call, remainingMs, (controller) => read(this.attempt(request, controller)));
      } catch (error) {
        if (await this.pay(request, error)) {
          // A payment that was made is delivered, however long it took to make, and confirmed by a block.
          endsMs = performance.now() + Math.max(timeoutMs, confirmationMs);
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

  /** Pays for a request that has to be paid for, once. Resolves to whether it was paid. */
  private async pay(request: PreparedRequest, error: unknown): Promise<boolean> {
    const asked = paymentAsked.get(error as object);
    if (!asked || !this.settings.pay || request.isPaid) return false;
    const headers = await raced(this.settings.pay(asked), request.call.signal);
    for (const [name, value] of Object.entries(headers)) request.headers.set(name, value);
    request.isPaid = true;
    return true;
  }

  /** Does the work; ends it when the time is over or the signal of the call says so. */
  private async within<T>(call: Call, ms: number, work: (controller: AbortController) => Promise<T>): Promise<T> {
    const { signal, method, path } = call;
    signal?.throwIfAborted();
    const controller = new AbortController();
    const late = new GranaryError(`There was no answer to ${method} ${path} in time`, { code: 'TIMEOUT' });
    // A timer of more than that would fire at once.
    const timer = ms < 2 ** 31 ? setTimeout(() => controller.abort(late), Math.max(0, ms)) : undefined;
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
    }
  }

  /** The request of all attempts of a call. Throws a TypeError for what cannot be sent. */
  private prepared(call: Call): PreparedRequest {
    const headers = new Headers(this.settings.headers);
    if (!call.mayRedirect) {
      for (const [name, value] of Object.entries(this.settings.payingHeaders)) headers.set(name, value);
    }
    const isRead = call.isRead === true || call.method === 'GET' || call.method === 'HEAD';
    // A read that is paid for is paid for again without one.
    const mayPay = this.settings.pay !== undefined || Object.keys(this.settings.payingHeaders).length > 0;
    if (!isRead || mayPay) headers.set('Idempotency-Key', call.idempotencyKey ?? newKey());
    const text = call.jsonText ?? (call.json === undefined ? undefined : JSON.stringify(call.json));
    if (text !== undefined) headers.set('Content-Type', 'application/json');
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers.set(name, value);
    return { call, url: urlOf(this.settings.url, call), headers, text, isPaid: false };
  }

  private async attempt(request: PreparedRequest, controller: AbortController): Promise<OpenAnswer> {
    const { settings } = this;
    const { call, url, text } = request;
    const headers = new Headers(request.headers);
    const signal = call.signal ? AbortSignal.any([controller.signal, call.signal]) : controller.signal;
    // It goes to this service alone: `fetch` leaves it out where an answer leads elsewhere.
    if (settings.key !== undefined)
      headers.set('Authorization', `Bearer ${await raced(valueOf(settings.key), signal)}`);
    const init: RequestInit = {
      method: call.method,
      headers,
      signal,
      redirect: call.mayRedirect ? 'follow' : 'manual',
    };
    const body = text ?? call.body?.();
    if (body !== undefined) init.body = body;
    const response = await settings.fetch(url, init);
    if (response.ok) return { response, controller };
    if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) throw redirected(url);
    const copy = response.status === 402 ? response.clone() : undefined;
    const error = await errorOf(response, call.feature);
    if (copy) paymentAsked.set(error, { headers: copy.headers, body: await copy.json().catch(() => undefined) });
    throw error;
  }
}

/** Whether the answer to a paid write says that no block has its payment yet, and nothing was done so far. */
const isUnconfirmed = (body: unknown): body is Record<string, unknown> =>
  (body as { status?: unknown } | undefined)?.status === 'PaymentConfirming';

const unconfirmed = (details: Record<string, unknown>): GranaryError =>
  new GranaryError('No block has the payment yet: the same call is answered once one has it', {
    code: 'PAYMENT_PENDING',
    status: 202,
    details,
    retryAfterMs: pendingDelayMs,
  });

interface PreparedRequest {
  call: Call;
  url: string;
  headers: Headers;
  /** The body where it is JSON. */
  text: string | undefined;
  isPaid: boolean;
}

/** A write that followed it would become a read, and keys would go to somebody else. */
const redirected = (url: string): GranaryError =>
  new GranaryError(`${url} leads to another address: that is the URL of the service`, { code: 'INVALID_ANSWER' });

/** Answers 402 by the errors that were made of them. */
const paymentAsked = new WeakMap<object, { headers: Headers; body: unknown }>();

/** Rejects with GranaryError: NETWORK_ERROR where the error is of another kind, for it may be fetched later. */
export async function valueOf(secret: Secret): Promise<string> {
  if (typeof secret === 'string') return secret;
  try {
    return await secret();
  } catch (cause) {
    if (cause instanceof GranaryError) throw cause;
    throw new GranaryError(`A key could not be fetched: ${reasonOf(cause)}`, { code: 'NETWORK_ERROR', cause });
  }
}

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
