import { Backoff, pause } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { createSignal } from '@granary/shared/concurrency/signal';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import { windowPauseMs, windowPauseMsMin } from '@granary/shared/concurrency/window-pause';
import { isUnavailable } from '@granary/shared/errors';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import { isPassing, manyChannels, readChanges, refusalError, type Channels } from './feed-reader';
import { groupKey, newGroup, windowText, type FeedGroup, type GroupMember, type StreamContext } from './feed-group';
import { eventsText } from './feed-text';
import { feedMetrics } from './metrics';
import { comparePositions, positionOf, type Position } from './position';
import { eventsByTarget, type Route, type StreamEvent } from './stream-events';
import { channelKey } from './subscription';

const noChannels: Channels = { list: [], digest: Buffer.alloc(0) };

/** Changes and bytes of texts of one window. */
const windowChanges = 1_000;
const windowBytes = 256 * 1024;
/** How long the data service waits for a change before it answers that there is none. */
const waitMs = 20_000;
/** A request is replaced no later than at this age, so that a new group does not wait much longer for its changes. */
const replaceAfterMsMax = 2_000;
/** How much one window counts in the average of what windows take. */
const averageWeight = 0.2;
/** Failures in a row after which streams read on their own, so that what is wrong with one does not stop the others. */
const failuresMax = 3;

/**
 * The live feed of one app: one request after the other asks for the changes of all its groups, behind the last window.
 * However many streams there are, a change is read and written once for each group.
 */
export class AppFeed {
  /** The height of the last commit that it has heard of. */
  head = 0;
  /** Whether a window is being sent: some streams have it, others do not. */
  isDelivering = false;
  private readonly groups = new Map<string, FeedGroup>();
  private cursor = '';
  private position: Position = { height: 0, place: 0, row: 0 };
  private catalogRevision = '0';
  private channels: Channels = noChannels;
  private routes: Array<Array<Route<FeedGroup>>> = [];
  private includedCount = 0;
  private isRunning = false;
  /** What a window takes: a moving average, so that one slow window does not hold up the one behind it. */
  private averageMs = 0;
  /** The request under way. */
  private request: { cancellation: Cancellation; startedAtMs: number; isReplaced: boolean } | undefined;
  /** The age at which a request may be replaced by one with more groups. */
  private replaceAfterMs = windowPauseMsMin;
  /** Notified when a request begins, for the streams whose groups the one before did not have. */
  private readonly requestBegins = createSignal();

  constructor(
    private readonly context: StreamContext,
    private readonly appId: string,
  ) {}

  get isEmpty(): boolean {
    return this.groups.size === 0;
  }

  /** Counts a stream among those of its group. */
  enter(stream: GroupMember): FeedGroup {
    const channelKeys = stream.request.subscriptions.map(({ channel }) => channelKey(channel));
    const key = groupKey(stream, channelKeys);
    let group = this.groups.get(key);
    if (!group) this.groups.set(key, (group = newGroup(key, channelKeys, stream)));
    group.members.add(stream);
    return group;
  }

  leave(stream: GroupMember, group: FeedGroup): void {
    group.members.delete(stream);
    this.leaveLive(stream, group);
    if (group.members.size > 0) return;
    this.groups.delete(group.key);
    if (this.groups.size === 0) this.request?.cancellation.abort();
  }

  private leaveLive(stream: GroupMember, { live }: FeedGroup): void {
    if (live.delete(stream)) feedMetrics.live.dec();
  }

  /**
   * Lets a stream that is at the head take part in the windows that follow. Resolves to false where it is behind them:
   * it has to read on.
   */
  async join(stream: GroupMember, group: FeedGroup): Promise<boolean> {
    if (this.isRunning && group.startsAt && comparePositions(this.position, group.startsAt) < 0) return false;
    group.joining += 1;
    try {
      while (!group.isIncluded && !stream.signal.aborted) {
        if (this.isRunning) await this.included(stream);
        else this.start(stream);
      }
      // The live feed may have ended meanwhile, because of failures.
      const isAhead = this.isRunning && comparePositions(stream.position, this.position) >= 0;
      if (stream.signal.aborted || !isAhead) return false;
      group.live.add(stream);
      feedMetrics.live.inc();
      stream.notifyCatalog(this.catalogRevision);
      return true;
    } finally {
      group.joining -= 1;
    }
  }

  /** Behind what a stream has been sent, or has no need of. */
  cursorOf(stream: GroupMember, { live }: FeedGroup): string {
    return live.has(stream) && comparePositions(stream.position, this.position) < 0 ? this.cursor : stream.cursor;
  }

  private start({ cursor, catalogRevision }: GroupMember): void {
    this.cursor = cursor;
    this.position = positionOf(cursor);
    this.catalogRevision = catalogRevision;
    this.isRunning = true;
    void this.run();
  }

  /**
   * Resolves once a request has begun that has all groups of now, or the stream has ended. That request takes the place
   * of one that waits for changes.
   */
  private async included({ signal }: GroupMember): Promise<void> {
    const { request } = this;
    if (request && !request.isReplaced) {
      request.isReplaced = true;
      const leftMs = request.startedAtMs + this.replaceAfterMs - performance.now();
      setTimeout(() => request.cancellation.abort(), Math.max(0, leftMs));
      // A request that has not come to its wait yet is not replaced again and again.
      this.replaceAfterMs = Math.min(2 * this.replaceAfterMs, replaceAfterMsMax);
    }
    await this.requestBegins.wait(waitMs, signal);
  }

  /** Never rejects. Ends when no stream is live or about to be, and after failures: the next to join starts it anew. */
  private async run(): Promise<void> {
    const backoff = new Backoff({ firstMs: 50, maxMs: 1_000 });
    let failures = 0;
    while (this.include() && failures < failuresMax) {
      const cancellation = new Cancellation();
      // After several that were replaced, one completes, so that the live streams get on.
      const mustComplete = this.replaceAfterMs === replaceAfterMsMax;
      this.request = { cancellation, startedAtMs: performance.now(), isReplaced: mustComplete };
      try {
        const window = await this.read(cancellation, mustComplete ? replaceAfterMsMax : waitMs);
        this.request = undefined;
        const arrivedAtMs = performance.now();
        await this.deliver(window);
        backoff.reset();
        failures = 0;
        this.replaceAfterMs = windowPauseMsMin;
        const takenMs = window.readMs + performance.now() - arrivedAtMs;
        this.averageMs += averageWeight * (takenMs - this.averageMs);
        await pause(windowPauseMs({ takenMs: this.averageMs, hasMore: window.more }));
      } catch (error) {
        this.request = undefined;
        if (cancellation.aborted) continue;
        if (!isPassing(error)) for (const stream of this.streams()) stream.fail(error);
        else if (backoff.failures === 0)
          this.context.log.warn({ err: error, app: this.appId }, 'a feed cannot be read');
        // A service that is away is so for every stream.
        if (!isUnavailable(error)) failures += 1;
        await backoff.wait();
      }
    }
    this.end();
  }

  private end(): void {
    this.isRunning = false;
    for (const group of this.groups.values()) {
      group.isIncluded = false;
      for (const stream of [...group.live]) {
        // One that has joined ahead of the last window goes on from where it is.
        const cursor = this.cursorOf(stream, group);
        this.leaveLive(stream, group);
        stream.fallBehind(cursor, cursor === this.cursor ? group.openHeight : undefined);
      }
    }
    feedMetrics.channels.dec(this.channels.list.length);
    this.channels = noChannels;
    this.requestBegins.notify();
  }

  private *streams(): Generator<GroupMember> {
    for (const { members } of this.groups.values()) yield* members;
  }

  /** Puts the groups with streams that are live or about to be into the next request. Returns whether there are any. */
  private include(): boolean {
    let isChanged = false;
    let count = 0;
    for (const group of this.groups.values()) {
      const isWanted = group.live.size + group.joining > 0;
      if (isWanted) count += 1;
      if (isWanted !== group.isIncluded) isChanged = true;
      group.isIncluded = isWanted;
    }
    if (isChanged || count !== this.includedCount) this.listChannels();
    this.includedCount = count;
    this.requestBegins.notify();
    return count > 0;
  }

  private listChannels(): void {
    const places = new Map<string, number>();
    const list: Channels['list'] = [];
    this.routes = [];
    for (const group of this.groups.values()) {
      if (!group.isIncluded) continue;
      for (const [index, key] of group.channelKeys.entries()) {
        const { name, channel } = group.subscriptions[index]!;
        let place = places.get(key);
        if (place === undefined) {
          place = list.push({ ...channel, location: '' }) - 1;
          places.set(key, place);
          this.routes.push([]);
        }
        this.routes[place]!.push({ target: group, name });
      }
    }
    feedMetrics.channels.inc(list.length - this.channels.list.length);
    this.channels = manyChannels(list, [...places.keys()]);
  }

  private read(signal: Cancellation, waitMsMax: number): Promise<ReadChangesResponse> {
    const { catalogRevision } = this;
    const limits = { limit: windowChanges, bytesMax: windowBytes, waitMs: waitMsMax, catalogRevision };
    return readChanges(this.context.data, { appId: this.appId, since: this.cursor }, this.channels, limits, signal);
  }

  private async deliver(window: ReadChangesResponse): Promise<void> {
    const startedAtMs = performance.now();
    await this.context.keys.fresh();
    const start = this.position;
    this.isDelivering = true;
    try {
      // Streams that join from now on must be behind this window.
      this.cursor = window.cursor;
      this.position = positionOf(window.cursor);
      this.head = Number(window.head);
      await runSliced(this.fanOut(window, start, eventsByTarget(window, this.routes)));
    } finally {
      this.isDelivering = false;
    }
    if (window.catalogRevision !== this.catalogRevision) this.notifyCatalog(window.catalogRevision);
    this.refuse(window, start);
    if (window.changes.length > 0) feedMetrics.windows.observe((performance.now() - startedAtMs) / 1_000);
  }

  private *fanOut(
    window: ReadChangesResponse,
    start: Position,
    events: ReadonlyMap<FeedGroup, readonly StreamEvent[]>,
  ): Generator<void, void, void> {
    const hasMoved = comparePositions(this.position, start) > 0;
    for (const group of this.groups.values()) {
      const groupEvents = events.get(group) ?? [];
      const text = windowText(group, groupEvents, window, hasMoved);
      if (!text) continue;
      for (const stream of group.live) {
        this.send(stream, group, { events: groupEvents, text, start, cursor: window.cursor });
        yield;
      }
    }
  }

  private send(stream: GroupMember, group: FeedGroup, { events, text, start, cursor }: GroupWindow): void {
    // One that has joined ahead of the window before has this one already, or a part of it.
    if (comparePositions(stream.position, this.position) > 0) return;
    const isAhead = comparePositions(stream.position, start) > 0;
    if (isAhead && group.hasLatest) {
      // What the newest version is compared with was before the window, and the stream has seen more than that.
      this.leaveLive(stream, group);
      return stream.fallBehind(stream.cursor, undefined);
    }
    const newEvents = isAhead
      ? events.filter(({ position }) => comparePositions(position, stream.position) > 0)
      : events;
    feedMetrics.changes.inc(newEvents.length);
    const bytes = newEvents.length === events.length ? text : eventsText(group.format, newEvents);
    if (stream.receive(bytes, cursor)) return;
    feedMetrics.fallenBehind.inc();
    this.leaveLive(stream, group);
    stream.fallBehind(cursor, group.openHeight);
  }

  private notifyCatalog(revision: string): void {
    this.catalogRevision = revision;
    for (const { live } of this.groups.values()) for (const stream of live) stream.notifyCatalog(revision);
  }

  /**
   * Ends the streams that may not read one of their channels, or not any more. A position that is gone is gone for the
   * streams that were there: one that has begun behind it reads on by itself, until this feed has come so far.
   */
  private refuse({ refusals }: ReadChangesResponse, start: Position): void {
    for (const refusal of refusals) {
      const error = refusalError(refusal);
      for (const { target } of this.routes[refusal.channel] ?? []) {
        for (const stream of [...target.live]) {
          const isBehind = error.reason === 'CURSOR_GONE' && comparePositions(stream.position, start) > 0;
          if (!isBehind) {
            stream.fail(error);
            continue;
          }
          target.startsAt = stream.position;
          this.leaveLive(stream, target);
          stream.fallBehind(stream.cursor, undefined);
        }
      }
    }
  }
}

/** A window as a group gets it. */
interface GroupWindow {
  events: readonly StreamEvent[];
  text: Buffer;
  /** Where it begins. */
  start: Position;
  /** Behind it. */
  cursor: string;
}
