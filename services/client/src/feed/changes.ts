import { filterText } from '../documents/filter.ts';
import { GranaryError, hasCode, isPassing, type ErrorCode } from '../errors.ts';
import { appPath, features, type AppContext } from '../http/app-context.ts';
import { readLines } from '../http/lines.ts';
import { valueOf, type Call, type Secret } from '../http/transport.ts';
import { backoffMs, raced, sleep } from '../http/waiting.ts';
import type { Field, Filter } from '../types.ts';
import type { ChangeEvent, End, Notice, Ready } from './events.ts';

/** One of several that share a stream; its changes name it in `as`. */
export interface Subscription {
  as: string;
  collection?: string;
  view?: string;
  find?: { [member: string]: unknown };
  mode?: 'all' | 'latest';
}

export interface ChangesOptions<D> {
  /** `now` if nothing else is said; a height, behind which the feed begins, or a cursor. */
  since?: string | number | undefined;
  /** A filter, or one as JSON, in which numbers keep their digits. */
  find?: Filter<D> | string | undefined;
  select?: ReadonlyArray<Field<D>> | undefined;
  /** `all` versions if nothing else is said; `latest` for readers that only want to keep up. */
  mode?: 'all' | 'latest' | undefined;
  /** Ids without documents. */
  documents?: false | undefined;
  signal?: AbortSignal | undefined;
}

export interface AppChangesOptions<D> extends ChangesOptions<D> {
  collection?: string | readonly string[] | undefined;
  view?: string | undefined;
  subscriptions?: readonly Subscription[] | undefined;
  /** A token that the server of an app has made, in the place of a key; a function is called for each connection. */
  token?: Secret | undefined;
}

/** The service says something every 25 seconds. */
const idleMs = 45_000;

/**
 * The changes of an app, each once and in the order of the commits, from any moment on. Connections that end are made
 * again where the reader is. Nothing is read faster than it is taken.
 */
export class ChangeFeed<D> implements AsyncIterable<ChangeEvent<D>> {
  /**
   * The place where a feed goes on: behind the last change whose successor was asked for, or behind those that were
   * passed over. Undefined until it is known.
   */
  cursor: string | undefined;
  status: 'connecting' | 'open' | 'waiting' | 'closed' = 'connecting';
  private readonly context: AppContext;
  private readonly options: AppChangesOptions<D>;
  private since: string | number;
  private wasOpen: boolean;
  /** Whether the present connection has told anything. */
  private isReady = false;

  /** `wasOpen`: the service is known, so that a first connection that fails is tried again, too. */
  constructor(context: AppContext, options: AppChangesOptions<D> = {}, wasOpen = false) {
    const { subscriptions, token, find, collection, view, mode, since = 'now' } = options;
    if (subscriptions && [token, find, collection, view, mode].some((option) => option !== undefined)) {
      throw new TypeError('subscriptions say all by themselves: what they are of, their filters and modes');
    }
    this.context = context;
    this.options = options;
    this.since = since;
    this.wasOpen = wasOpen;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ChangeEvent<D>, void, undefined> {
    for await (const event of this.withNotices()) {
      if (event.event !== 'progress' && event.event !== 'catalog') yield event;
    }
  }

  /** Also tells how far the feed is, and that definitions may have changed, as they may before each connection. */
  async *withNotices(): AsyncGenerator<ChangeEvent<D> | Notice, void, undefined> {
    const { signal } = this.options;
    try {
      for (let failures = 0; ;) {
        let waitMs: number;
        try {
          const end = yield* this.connection(() => (failures = 0));
          waitMs = end.retry_after_ms ?? backoffMs(failures, undefined);
        } catch (error) {
          if (hasCode(error, 'CURSOR_GONE') && error.status !== 0) {
            yield { event: 'reset', code: error.code, message: error.message };
          }
          // A service that was never reached may have another address.
          const mayPass = this.wasOpen && (isPassing(error) || this.isExpired(error));
          if (!mayPass || signal?.aborted) throw error;
          waitMs = backoffMs(failures, (error as GranaryError).retryAfterMs);
        }
        failures += 1;
        this.status = 'waiting';
        await sleep(waitMs, signal);
      }
    } finally {
      this.status = 'closed';
    }
  }

  /** Whether the secret of a connection has come to its end, and there may be a new one. */
  private isExpired(error: unknown): boolean {
    const secret = this.options.token ?? this.context.transport.settings.key;
    return this.isReady && typeof secret === 'function' && hasCode(error, 'UNAUTHENTICATED');
  }

  /** The events of one connection. Returns how it has ended. */
  private async *connection(onEvent: () => void): AsyncGenerator<ChangeEvent<D> | Notice, End, undefined> {
    const { transport } = this.context;
    this.isReady = false;
    const answer = await transport.open(await this.call());
    // Events of one change, of which only the last has a cursor: a connection that ends between them tells all again.
    let pending: Array<ChangeEvent<D>> = [];
    for await (const line of readLines(answer, idleMs, this.options.signal)) {
      if (line === '') continue;
      onEvent();
      const event = transport.settings.parse(line) as ChangeEvent<D> | Notice | Ready | End;
      if (event.event === 'end') {
        if (event.retry) return event;
        throw new GranaryError(event.message, { code: event.code as ErrorCode });
      }
      if (event.event === 'ready') {
        this.status = 'open';
        this.wasOpen = this.isReady = true;
        // Nothing that is committed from here on may be missed, should the connection end before there is a cursor.
        if (this.since === 'now' && !this.context.isPublic && !this.options.token) this.since = event.head;
        // A connection does not tell what was defined before it.
        yield { event: 'catalog' };
        continue;
      }
      const isPart = (event.event === 'put' || event.event === 'remove') && event.cursor === undefined;
      if (isPart) {
        pending.push(event);
        continue;
      }
      yield* pending;
      pending = [];
      yield event;
      if (event.cursor !== undefined) this.since = this.cursor = event.cursor;
    }
    throw new GranaryError('The feed ended without a reason', { code: 'NETWORK_ERROR' });
  }

  private async call(): Promise<Call> {
    const { collection, view, find, select, mode, documents, subscriptions, token, signal } = this.options;
    const { since } = this;
    const path = appPath(this.context, 'changes');
    const common = {
      path,
      headers: { Accept: 'application/x-ndjson' },
      signal,
      feature: features.changes,
      isRead: true,
    };
    if (subscriptions) {
      return { ...common, method: 'POST', json: { since: String(since), subscriptions, select, documents } };
    }
    const query = {
      since,
      collection: typeof collection === 'string' ? collection : collection?.join(','),
      view,
      find: filterText(find),
      select: select?.join(','),
      mode,
      documents,
      token: token && (await raced(valueOf(token), signal)),
    };
    return { ...common, method: 'GET', query };
  }
}
