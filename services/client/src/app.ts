import { Collection, type Definition } from './collection.ts';
import { GranaryError, type ErrorCode } from './errors.ts';
import { ChangeFeed, type AppChangesOptions, type Subscription } from './feed/changes.ts';
import { Blobs } from './files/blobs.ts';
import { appPath, features, pathSegment, type AppContext } from './http/app-context.ts';
import {
  Transport,
  type Call,
  type CallOptions,
  type Payer,
  type Query,
  type Secret,
  type WriteOptions,
} from './http/transport.ts';
import { backoffMs, sleep } from './http/waiting.ts';
import { parserOf, type Numbers } from './numbers.ts';
import type { AnyApp, AppTypes, JsonObject, MemberOf, Name } from './types.ts';
import { PredefinedQuery, View } from './view.ts';

export interface GranaryOptions {
  /** The address of the service, such as `https://granary.example.org`; it may have a path. */
  url: string | URL;
  /** The id of the app. */
  app: string;
  /** A key of the app. Without one there are public reads. */
  key?: Secret | undefined;
  /** An agent's key, which pays what has a price; see `docs/money`. */
  agentKey?: string | undefined;
  /** A user's key, by whose grant is paid what has a price. */
  userKey?: string | undefined;
  /** Pays by x402, see `@granary/client/payments`. */
  pay?: Payer | undefined;
  numbers?: Numbers | undefined;
  /** For each call with all its attempts: 30 seconds if nothing else is said. */
  timeoutMs?: number | undefined;
  /** How often a call is made again: 4 times if nothing else is said. */
  retries?: number | undefined;
  headers?: Record<string, string> | undefined;
  fetch?: typeof fetch | undefined;
}

/** An operation of a batch, as the service takes it. */
export interface BatchOperation {
  operation: 'create' | 'update' | 'delete';
  collection: string;
  data?: object;
  /** A filter that the present version has to meet. */
  conditions?: object;
}

export interface BatchResult {
  success: boolean;
  status: number;
  result?: { id: string; version: number; celestia_height: number };
  error?: string;
  code?: ErrorCode;
  details?: Record<string, unknown>;
}

export type TaskStatus =
  | 'Pending'
  | 'PaymentBroadcast'
  | 'PaymentConfirming'
  | 'PaymentConfirmed'
  | 'StoringData'
  | 'Completed'
  | { Failed: { error: string } };

export interface Task {
  ticket_id: string;
  status: TaskStatus;
  operation_type: string;
  /** From 0 to 1. */
  progress: number;
  result?: Record<string, unknown>;
  [member: string]: unknown;
}

export interface FeedTokenRequest {
  subscriptions: readonly Subscription[];
  select?: readonly string[] | undefined;
  documents?: false | undefined;
  /** At most a day. */
  ttl_seconds?: number | undefined;
}

const defaults = { timeoutMs: 30_000, retries: 4 };
const longestPollMs = 2_000;

/**
 * An app of a service. `Types` is what `granary types` has written for it; without that every name is taken. Nothing is
 * sent before something is asked for. Throws a TypeError for a URL that is none, and where the engine cannot read
 * numbers exactly.
 */
export function granary<Types extends AppTypes = AnyApp>(options: GranaryOptions): App<Types> {
  const { agentKey, userKey, headers = {} } = options;
  const url = new URL(options.url).href.replace(/\/+$/, '');
  if ([agentKey, userKey, options.pay].filter((way) => way !== undefined).length > 1) {
    throw new TypeError('agentKey, userKey and pay are three ways to pay: a call has one of them');
  }
  const payingHeaders: Record<string, string> = {};
  if (agentKey !== undefined) payingHeaders['X-Agent-Key'] = agentKey;
  if (userKey !== undefined) payingHeaders['X-User-Key'] = userKey;
  const transport = new Transport({
    url,
    key: options.key,
    headers,
    payingHeaders,
    // Browsers want it called without an object.
    fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    timeoutMs: options.timeoutMs ?? defaults.timeoutMs,
    retries: options.retries ?? defaults.retries,
    parse: parserOf(options.numbers ?? 'double'),
    pay: options.pay,
  });
  return new App<Types>({ transport, appId: options.app, isPublic: options.key === undefined });
}

export class App<Types extends AppTypes = AnyApp> {
  readonly id: string;
  private readonly context: AppContext;

  constructor(context: AppContext) {
    this.context = context;
    this.id = context.appId;
  }

  collection<N extends Name<Types['collections']>>(
    name: N,
  ): Collection<MemberOf<Types['collections'], N, 'document'> & object> {
    return new Collection(this.context, name);
  }

  view<N extends Name<Types['views']>>(
    name: N,
  ): View<MemberOf<Types['views'], N, 'row'> & object, MemberOf<Types['views'], N, 'variables'> & object> {
    return new View(this.context, name);
  }

  query<N extends Name<Types['queries']>>(
    name: N,
  ): PredefinedQuery<
    MemberOf<Types['queries'], N, 'row'> & object,
    MemberOf<Types['queries'], N, 'parameters'> & object
  > {
    return new PredefinedQuery(this.context, name);
  }

  /** The files of a collection. */
  blobs(collection: string): Blobs {
    return new Blobs(this.context, collection);
  }

  /** Operations in their order: each by itself with its result, or all or none with `atomic`. */
  async batch(
    operations: readonly BatchOperation[],
    { atomic, ...options }: WriteOptions & { atomic?: boolean } = {},
  ): Promise<BatchResult[]> {
    const json = { operations, atomic };
    return this.context.transport.json({ ...options, method: 'POST', path: appPath(this.context, 'batch'), json });
  }

  /** The changes of the app, of some of its collections, or of a view. */
  changes<D = JsonObject>(options: AppChangesOptions<D> = {}): ChangeFeed<D & { id: string }> {
    return new ChangeFeed(this.context, options as AppChangesOptions<D & { id: string }>);
  }

  /** A secret with which a browser follows what the subscriptions say, and nothing else. */
  async createFeedToken(
    request: FeedTokenRequest,
    options: CallOptions = {},
  ): Promise<{ token: string; expires_at: string }> {
    return this.context.transport.json({
      ...options,
      method: 'POST',
      path: appPath(this.context, 'feed-tokens'),
      json: request,
      isRead: true,
      feature: features.changes,
    });
  }

  /** The records of an import that could not be stored, at most 1,000. */
  async importErrors(
    importId: string,
    options: CallOptions = {},
  ): Promise<
    Array<{ line: number; offset: number; code: ErrorCode; id?: string; error: string; details: Definition }>
  > {
    const path = appPath(this.context, 'imports', importId, 'errors');
    const { errors } = await this.context.transport.json<{ errors: [] }>({ ...options, method: 'GET', path });
    return errors;
  }

  async task(ticketId: string, options: CallOptions = {}): Promise<Task> {
    return this.context.transport.json({
      ...options,
      method: 'GET',
      path: `/api/tasks/${pathSegment(ticketId)}`,
    });
  }

  /** Resolves to a task once it is completed, however long that takes. Throws GranaryError with TASK_FAILED. */
  async finished(
    ticketId: string,
    { onProgress, ...options }: CallOptions & { onProgress?: (task: Task) => void } = {},
  ) {
    for (let polls = 0; ; polls += 1) {
      const task = await this.task(ticketId, options);
      if (task.status === 'Completed') return task;
      if (typeof task.status === 'object') {
        const { error } = task.status.Failed;
        throw new GranaryError(error, { code: 'TASK_FAILED', details: { ticket_id: ticketId } });
      }
      onProgress?.(task);
      await sleep(Math.min(longestPollMs, backoffMs(polls, undefined)), options.signal);
    }
  }

  /**
   * Any call of the service, with the key, the attempts and the errors of the others: `path` from the root of the
   * service, as in `/docs`.
   */
  async request<T = unknown>(
    method: Call['method'],
    path: string,
    options: Pick<Call, 'query' | 'json' | 'jsonText' | 'headers'> & WriteOptions = {},
  ): Promise<T> {
    return this.context.transport.json({ ...options, method, path });
  }

  /** The pages of a listing, each of which is read when the one before has been handled: `path` as for `request`. */
  async *pages<T = unknown>(
    path: string,
    { query, ...options }: CallOptions & { query?: Query } = {},
  ): AsyncGenerator<T, void, undefined> {
    let call: Call | undefined = { ...options, method: 'GET', path, query };
    while (call) {
      const answer: { body: T; headers: Headers } = await this.context.transport.answer<T>(call);
      yield answer.body;
      const next = /<(\/[^>]+)>; rel="next"/.exec(answer.headers.get('link') ?? '')?.[1];
      call = next === undefined ? undefined : { ...options, method: 'GET', path: next };
    }
  }

  /** The text of what the service has under a path, as it is: also what is no JSON, such as a skills document. */
  async text(path: string, options: Pick<Call, 'query' | 'headers'> & CallOptions = {}): Promise<string> {
    return this.context.transport.text({ ...options, method: 'GET', path });
  }

  /** A read of any length: resolves once its head has come, and its body is read from the answer, as it comes. */
  async open(path: string, options: Pick<Call, 'query' | 'headers'> & CallOptions = {}): Promise<Response> {
    const { response } = await this.context.transport.open({ ...options, method: 'GET', path });
    return response;
  }
}
