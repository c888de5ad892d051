import type { ServerResponse } from 'node:http';
import { Backoff, jittered, pause } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { ServiceError } from '@granary/shared/errors';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import type { AppFeed } from './app-feed';
import { progressEveryMs, type FeedGroup, type GroupMember, type StreamContext } from './feed-group';
import { fewChannels, isPassing, readChanges, refusalError } from './feed-reader';
import { endText, eventsText, heartbeats, noticeText, openingText, type FeedFormat } from './feed-text';
import { feedMetrics } from './metrics';
import { positionOf, type Position } from './position';
import { eventsByTarget, type Route } from './stream-events';
import { seesCatalog, type FeedRequest } from './subscription';

/** Bytes that a client has not taken yet, beyond which it reads on its own, at its own pace. */
const unsentBytesMax = 256 * 1024;
/** Changes and bytes of texts of a page that a stream reads on its own. */
const pageChanges = 1_000;
const pageBytes = 128 * 1024;
/** A stream that is at the head and cannot join the live ones tries again after so long. */
const rejoinAfterMs = 25;
/** A client that is told to come again does so after a time within these bounds. */
const comeAgainMs = { min: 500, max: 5_000 };

const isCursor = /^\d+\.\d/;

/** Why a stream ends. */
interface StreamEnd {
  code: string;
  message: string;
  /** Whether the same request may succeed. */
  retry: boolean;
}

/** The feed of one client: it reads pages up to the head on its own, and then gets what its group gets. */
export class FeedStream implements GroupMember {
  /** Behind what has been sent, while the stream reads on its own. */
  cursor: string;
  position: Position;
  catalogRevision: string;
  readonly signal = new Cancellation();
  private sentCursor: string;
  private sentAtMs = performance.now();
  private head: number;
  private openHeight: number | undefined;
  private isBehind = false;
  private onBehind: (() => void) | undefined;
  /** The first page, until it is sent. */
  private first: ReadChangesResponse | undefined;
  private readonly channels;
  private readonly seesCatalog: boolean;
  private readonly routes: Array<Array<Route<FeedStream>>>;

  constructor(
    private readonly context: StreamContext,
    readonly request: FeedRequest,
    readonly format: FeedFormat,
    private readonly outgoing: ServerResponse,
    first: ReadChangesResponse,
  ) {
    this.first = first;
    this.cursor = first.cursor;
    this.position = positionOf(first.cursor);
    this.catalogRevision = first.catalogRevision;
    this.head = Number(first.head);
    this.sentCursor = first.cursor;
    // The client may have a part of the commit that its cursor is in.
    if (isCursor.test(request.since)) this.openHeight = positionOf(request.since).height;
    this.seesCatalog = seesCatalog(request.subscriptions);
    this.channels = fewChannels(request.subscriptions.map(({ channel }) => channel));
    this.routes = request.subscriptions.map(({ name }) => [{ target: this, name }]);
  }

  private get isEnded(): boolean {
    return this.signal.aborted;
  }

  /** Serves the feed until it ends, by either side. */
  async run(feed: AppFeed, group: FeedGroup): Promise<void> {
    this.outgoing.once('close', () => this.signal.abort());
    if (this.outgoing.destroyed) this.signal.abort();
    const heartbeat = setInterval(() => this.beat(feed, group), jittered(this.context.heartbeatMs, 0.25)).unref();
    try {
      this.send(openingText(this.format, this.request.appId, this.head));
      let isAtHead = this.sendFirst();
      while (!this.isEnded) {
        await this.drained();
        if (isAtHead) await this.follow(feed, group);
        isAtHead = await this.readPage();
      }
    } finally {
      clearInterval(heartbeat);
    }
  }

  /** Returns whether the first page ended at the head. */
  private sendFirst(): boolean {
    const { more } = this.first!;
    this.sendPage(this.first!);
    this.first = undefined;
    return !more;
  }

  /** Gets what its group gets, until it falls behind. Returns at once where it is behind already. */
  private async follow(feed: AppFeed, group: FeedGroup): Promise<void> {
    this.isBehind = false;
    const startCursor = this.cursor;
    const isLive = await feed.join(this, group);
    if (isLive) await this.until((resolve) => (this.isBehind ? resolve() : (this.onBehind = resolve)));
    // Without a pause it would read again and again what it has read.
    else if (this.cursor === startCursor) await pause(rejoinAfterMs, this.signal);
  }

  receive(bytes: Buffer, cursor: string): boolean {
    this.send(bytes);
    this.sentCursor = cursor;
    return this.outgoing.writableLength <= unsentBytesMax;
  }

  fallBehind(cursor: string, openHeight: number | undefined): void {
    this.moveTo(cursor);
    this.openHeight = openHeight;
    this.isBehind = true;
    this.onBehind?.();
  }

  /** Ends the stream and says why. A client that does not read is cut off where it may not have the rest. */
  end({ code, message, retry }: StreamEnd): void {
    if (this.isEnded) return;
    const { min, max } = comeAgainMs;
    const retryAfterMs = retry ? Math.round(min + (max - min) * Math.random()) : undefined;
    this.signal.abort();
    if (!retry && this.outgoing.writableNeedDrain) this.outgoing.destroy();
    else this.outgoing.end(endText(this.format, code, message, retryAfterMs));
  }

  fail(error: unknown): void {
    const { reason, message } =
      error instanceof ServiceError ? error : { reason: 'INTERNAL', message: 'Internal error' };
    if (reason === 'CURSOR_GONE') {
      feedMetrics.resets.inc();
      this.send(noticeText(this.format, 'reset', { code: reason, message }));
    }
    // The filters of others may have gone by then.
    this.end({ code: reason, message, retry: reason === 'TOO_MANY_FILTERS' });
  }

  notifyCatalog(revision: string): void {
    if (BigInt(revision) <= BigInt(this.catalogRevision)) return;
    this.catalogRevision = revision;
    if (!this.seesCatalog) return;
    this.send(noticeText(this.format, 'catalog', { revision: Number(revision) }));
  }

  private send(bytes: Buffer): void {
    if (this.isEnded || bytes.length === 0) return;
    this.outgoing.write(bytes);
    this.sentAtMs = performance.now();
  }

  /** Reads and sends the next page. Returns whether it ended at the head. */
  private async readPage(): Promise<boolean> {
    const backoff = new Backoff({ firstMs: 50, maxMs: 1_000 });
    while (!this.isEnded) {
      try {
        const page = await this.context.turns.read(this.request, () => this.read(), this.signal);
        await this.context.keys.fresh();
        const hasMoved = page.cursor !== this.cursor;
        this.sendPage(page);
        // A page that has to be read again is not read again and again.
        if (page.more && !hasMoved) await pause(rejoinAfterMs, this.signal);
        return !page.more;
      } catch (error) {
        if (!isPassing(error)) this.fail(error);
        else await backoff.wait(this.signal);
      }
    }
    return false;
  }

  private read(): Promise<ReadChangesResponse> {
    const place = { appId: this.request.appId, since: this.cursor };
    const limits = { limit: pageChanges, bytesMax: pageBytes, waitMs: 0 };
    return readChanges(this.context.data, place, this.channels, limits, this.signal);
  }

  private sendPage(page: ReadChangesResponse): void {
    this.head = Number(page.head);
    const events = eventsByTarget(page, this.routes).get(this) ?? [];
    const isCommitOver = this.openHeight !== undefined && Number(page.completeHeight) >= this.openHeight;
    if (events.length > 0) {
      const last = events.at(-1)!;
      feedMetrics.changes.inc(events.length);
      this.send(eventsText(this.format, events));
      this.sentCursor = last.cursor!;
      this.openHeight = last.isLast ? undefined : last.height;
    } else if (isCommitOver || (this.openHeight === undefined && (page === this.first || this.isProgressDue()))) {
      // After the first page, so that a client has a cursor to come again with; never within a commit.
      this.sendProgress(page.cursor, this.head);
      if (isCommitOver) this.openHeight = undefined;
    }
    this.moveTo(page.cursor);
    this.notifyCatalog(page.catalogRevision);
    const [refusal] = page.refusals;
    if (refusal) this.fail(refusalError(refusal));
  }

  private isProgressDue(): boolean {
    return performance.now() - this.sentAtMs >= progressEveryMs;
  }

  private sendProgress(cursor: string, head: number): void {
    this.send(noticeText(this.format, 'progress', { head }, cursor));
    this.sentCursor = cursor;
  }

  /** A client that takes nothing gets no heartbeat either: its connection is closed after a while. */
  private beat(feed: AppFeed, group: FeedGroup): void {
    if (this.isEnded || this.outgoing.writableNeedDrain) return;
    const isWithinCommit = (this.openHeight ?? group.openHeight) !== undefined;
    // A window that is being sent may not have come to this stream.
    const cursor = feed.isDelivering || isWithinCommit ? this.sentCursor : feed.cursorOf(this, group);
    if (cursor === this.sentCursor) this.send(heartbeats[this.format]);
    else this.sendProgress(cursor, Math.max(this.head, feed.head));
  }

  private moveTo(cursor: string): void {
    this.cursor = cursor;
    this.position = positionOf(cursor);
  }

  /** Resolves once the client has taken what was sent, or the stream has ended. */
  private async drained(): Promise<void> {
    if (this.outgoing.writableNeedDrain) await this.until((resolve) => this.outgoing.once('drain', resolve));
  }

  /** Waits until what `begin` gets is called, or the stream has ended. */
  private until(begin: (resolve: () => void) => void): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        this.signal.removeEventListener('abort', end);
        resolve();
      };
      this.signal.addEventListener('abort', end);
      begin(end);
      if (this.isEnded) end();
    });
  }
}
