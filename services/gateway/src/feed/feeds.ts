import type { ServerResponse } from 'node:http';
import { jittered } from '@granary/shared/concurrency/backoff';
import { LinkedCancellation, type CancelSignal } from '@granary/shared/concurrency/cancellation';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import type { Logger } from '@granary/shared/logger';
import type { KeyWatch } from '../clients/key-watch';
import { overloaded, unauthenticated } from '../errors/problem';
import { heartbeatMs } from '../http/heartbeat';
import { AppFeed } from './app-feed';
import { fewChannels, readChanges, refusalError, type FeedData, type ReadLimits } from './feed-reader';
import type { StreamContext } from './feed-group';
import { FeedStream } from './feed-stream';
import type { FeedFormat } from './feed-text';
import { exportStreamCounts } from './metrics';
import { ReadTurns } from './read-turns';
import { StreamSlots, type StreamLimits } from './stream-slots';
import { isStranger, type FeedRequest } from './subscription';

export interface FeedSettings extends StreamLimits {
  FEED_STREAM_AGE_MS: number;
  IDLE_TIMEOUT_MS: number;
}

/** Bytes of texts of a JSON page, and of the first page of a stream. */
const pageBytes = 1024 * 1024;
const firstPageBytes = 128 * 1024;
/** A feed that begins waits no longer for its turn, and half as long for that of its token: it is silent meanwhile. */
const turnTimeoutMs = 15_000;
/** A wait takes this part of the time after which its connection would count as idle. */
const waitPartOfIdle = 0.9;

/** How a page of changes is read. */
export interface PageOptions {
  limit: number;
  waitMs: number;
}

interface WatchedKey {
  isRevoked: () => boolean;
  end: () => void;
}

/** The change feeds that this gateway serves. */
export class Feeds {
  /** The live feed of each app, and one for its readers without a key. */
  private readonly apps = new Map<string, AppFeed>();
  private readonly streams = new Set<FeedStream>();
  private readonly slots: StreamSlots;
  private readonly context: StreamContext;
  /** The pages that are waited for, the streams that are being opened, and the tokens that are being checked. */
  private readonly waits = new Set<LinkedCancellation>();
  private readonly unobserve: () => void;
  private isStopping = false;

  constructor(
    private readonly data: FeedData,
    private readonly settings: FeedSettings,
    keys: KeyWatch,
    log: Logger,
  ) {
    this.slots = new StreamSlots(settings);
    const turns = new ReadTurns({
      queueMax: settings.FEED_STREAMS_PER_APP,
      timeoutMs: Math.min(turnTimeoutMs, settings.IDLE_TIMEOUT_MS / 4),
    });
    this.unobserve = exportStreamCounts(this.slots, turns);
    this.context = { data, keys, turns, log, heartbeatMs: heartbeatMs(settings.IDLE_TIMEOUT_MS) };
  }

  /**
   * A page of changes, which may have to be waited for. Rejects with what the data service refuses, with
   * TOO_MANY_STREAMS where too many wait, with OVERLOADED where its turn does not come, and with UNAUTHENTICATED where
   * the key was revoked meanwhile.
   */
  async page(
    request: FeedRequest,
    { limit, waitMs }: PageOptions,
    requestId: string,
    signal: CancelSignal,
  ): Promise<ReadChangesResponse> {
    const idleMs = Math.floor(waitPartOfIdle * this.settings.IDLE_TIMEOUT_MS);
    const validMs = Math.max(0, (request.expiresAtMs ?? Infinity) - Date.now());
    const wait = Math.min(waitMs, idleMs, validMs);
    if (wait === 0 || this.isStopping) {
      return this.open(request, { limit, bytesMax: pageBytes, waitMs: 0, isOpening: true }, requestId, signal);
    }
    const leave = this.slots.take(request);
    const untilMs = performance.now() + wait;
    let watch: WatchedKey | undefined;
    try {
      return await this.whileServing(signal, async (reading) => {
        watch = this.watchKey(request, () => reading.abort());
        const limits = { limit, bytesMax: pageBytes };
        const look = () => this.open(request, { ...limits, waitMs: 0, isOpening: true }, requestId, reading);
        let page = await this.context.turns.read(request, look, reading);
        const leftMs = Math.ceil(untilMs - performance.now());
        if (page.changes.length === 0 && !page.more && leftMs > 0) {
          // On from there, for `now` would be a later moment.
          const after = { ...request, since: page.cursor };
          page = await this.open(after, { ...limits, waitMs: leftMs, isOpening: false }, requestId, reading);
        }
        await this.assertValid(request, watch);
        return page;
      });
    } catch (error) {
      throw watch?.isRevoked() ? revoked() : error;
    } finally {
      watch?.end();
      leave();
    }
  }

  /**
   * Serves a stream of changes until it ends. `begin` sends the head of the answer once the request is known to be
   * valid. Rejects before that, as `page` does.
   */
  async stream(
    request: FeedRequest,
    format: FeedFormat,
    outgoing: ServerResponse,
    requestId: string,
    signal: CancelSignal,
    begin: () => void,
  ): Promise<void> {
    const leave = this.slots.take(request);
    /** Undefined until the head of the answer is sent: before that, a refusal is an answer of its own. */
    let servedStream: FeedStream | undefined;
    const watch = this.watchKey(request, () => servedStream?.end(keyRevoked));
    try {
      const stream = await this.openStream(request, format, outgoing, requestId, signal);
      await this.assertValid(request, watch);
      begin();
      servedStream = stream;
      await this.serve(stream);
    } finally {
      watch.end();
      leave();
    }
  }

  /** Checks a token in its turn. Rejects as `check` does, and with OVERLOADED where its turn does not come. */
  checkToken<T>(clientAddress: string, check: (signal: CancelSignal) => Promise<T>, signal: CancelSignal): Promise<T> {
    return this.whileServing(signal, (checking) =>
      this.context.turns.checkToken(clientAddress, () => check(checking), checking),
    );
  }

  /** A method of its own, so that no variable of `stream` keeps the first page for as long as the stream lasts. */
  private openStream(
    request: FeedRequest,
    format: FeedFormat,
    outgoing: ServerResponse,
    requestId: string,
    signal: CancelSignal,
  ): Promise<FeedStream> {
    const limits = { limit: 1_000, bytesMax: firstPageBytes, waitMs: 0, isOpening: true };
    return this.whileServing(signal, async (opening) => {
      const read = () => this.open(request, limits, requestId, opening);
      const page = await this.context.turns.read(request, read, opening);
      return new FeedStream(this.context, request, format, outgoing, page);
    });
  }

  /** Does what is under way; rejects with OVERLOADED once the gateway stops, before which it may not come to an end. */
  private async whileServing<T>(signal: CancelSignal, work: (signal: LinkedCancellation) => Promise<T>): Promise<T> {
    const working = new LinkedCancellation(signal);
    this.waits.add(working);
    try {
      return await work(working);
    } catch (error) {
      throw this.isStopping ? overloaded() : error;
    } finally {
      this.waits.delete(working);
    }
  }

  /** Rejects with UNAUTHENTICATED where the right to read has ended since the request was authenticated. */
  private async assertValid({ keyId, expiresAtMs = Infinity }: FeedRequest, watch: WatchedKey): Promise<void> {
    if (keyId !== undefined) await this.context.keys.fresh();
    if (watch.isRevoked() || Date.now() > expiresAtMs) throw revoked();
  }

  /** Ends all streams, and tells their clients to come again. */
  stop(): void {
    this.isStopping = true;
    this.unobserve();
    for (const stream of [...this.streams]) stream.end(shuttingDown);
    for (const wait of this.waits) wait.abort();
  }

  private async serve(stream: FeedStream): Promise<void> {
    const { request } = stream;
    const age = setTimeout(() => stream.end(streamAge), jittered(this.settings.FEED_STREAM_AGE_MS));
    const leftMs = (request.expiresAtMs ?? Infinity) - Date.now();
    const expiry = Number.isFinite(leftMs)
      ? setTimeout(() => stream.end(tokenExpired), Math.max(0, leftMs))
      : undefined;
    const key = `${request.appId}${isStranger(request.subscriptions) ? ' strangers' : ''}`;
    let feed = this.apps.get(key);
    if (!feed) this.apps.set(key, (feed = new AppFeed(this.context, request.appId)));
    const group = feed.enter(stream);
    this.streams.add(stream);
    try {
      if (this.isStopping) stream.end(shuttingDown);
      await stream.run(feed, group);
    } finally {
      this.streams.delete(stream);
      feed.leave(stream, group);
      if (feed.isEmpty && this.apps.get(key) === feed) this.apps.delete(key);
      clearTimeout(age);
      clearTimeout(expiry);
    }
  }

  /** A window of a request. Rejects with what is wrong with one of its channels. */
  private async open(
    { appId, since, subscriptions }: FeedRequest,
    limits: ReadLimits,
    requestId: string,
    signal: CancelSignal,
  ): Promise<ReadChangesResponse> {
    const channels = fewChannels(subscriptions.map(({ channel }) => channel));
    const window = await readChanges(this.data, { appId, since }, channels, limits, signal, requestId);
    const [refusal] = window.refusals;
    // Changes before a refusal are delivered; the next request is refused.
    if (refusal && window.changes.length === 0) throw refusalError(refusal);
    return window;
  }

  private watchKey({ keyId }: FeedRequest, onRevoked: () => void): WatchedKey {
    let isRevoked = false;
    const revoke = () => {
      isRevoked = true;
      onRevoked();
    };
    const end = keyId === undefined ? () => {} : this.context.keys.add(keyId, revoke);
    return { isRevoked: () => isRevoked, end };
  }
}

const revoked = () => unauthenticated(keyRevoked.message);

const keyRevoked = { code: 'UNAUTHENTICATED', message: 'The key is not valid any more', retry: false };
const tokenExpired = { code: 'UNAUTHENTICATED', message: 'The feed token has expired', retry: false };
const streamAge = { code: 'STREAM_AGE', message: 'The feed is renewed from time to time', retry: true };
const shuttingDown = { code: 'SHUTTING_DOWN', message: 'The server is stopping', retry: true };
