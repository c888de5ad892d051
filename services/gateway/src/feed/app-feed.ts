import { Backoff, pause } from '@granary/shared/concurrency/backoff';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { runSliced } from '@granary/shared/concurrency/time-slicing';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import { isPassing, manyChannels, readChanges, refusalError, type Channels } from './feed-reader';
import { progressEveryMs, type FeedGroup, type GroupMember, type StreamContext } from './feed-group';
import { eventsText, noticeText } from './feed-text';
import { feedMetrics } from './metrics';
import { comparePositions, positionOf, type Position } from './position';
import { eventsByTarget, type Route, type StreamEvent } from './stream-events';
import { channelKey, seesCatalog } from './subscription';

/** Changes and bytes of texts of one window. */
const windowChanges = 1_000;
const windowBytes = 1024 * 1024;
/** How long the data service waits for a change before it answers that there is none. */
const waitMs = 20_000;
/** The shortest time from one window to the next, and how many times the duration of the first it is. */
const windowPauseMs = 15;
const windowPauseFactor = 2;
/** The greatest age at which a request waits to be replaced. */
const replaceAfterMaxMs = 1_000;

/**
 * The live feed of one app: one request after the other asks for the changes of all its groups, behind the last window.
 * However many streams there are, a change is read and written once for each group.
 */
export class AppFeed {
  head = 0;
  private readonly groups = new Map<string, FeedGroup>();
  private cursor = '';
  private position: Position = { height: 0, place: 0 };
  private catalogRevision = '0';
  private channels: Channels = { list: [], digest: Buffer.alloc(0) };
  private routes: Array<Array<Route<FeedGroup>>> = [];
  private areChannelsKnown = false;
  private running: Promise<void> | undefined;
  /** The request under way. */
  private request: { cancellation: Cancellation; startedAtMs: number; isReplaced: boolean } | undefined;
  /** The age at which a request may be replaced by one with more groups. */
  private replaceAfterMs = windowPauseMs;
  /** Those who wait until their group is included. */
  private awaiting: Array<() => void> = [];

  constructor(
    private readonly context: StreamContext,
    private readonly appId: string,
  ) {}

  get isEmpty(): boolean {
    return this.groups.size === 0;
  }

  /** Counts a stream among those of its group. */
  enter(stream: GroupMember): FeedGroup {
    const { format, request } = stream;
    const keys = request.subscriptions.map(({ channel }) => channelKey(channel));
    const names = request.subscriptions.map(({ name }) => name ?? null);
    const key = JSON.stringify([format, names, keys]);
    let group = this.groups.get(key);
    if (!group) {
      group = {
        key,
        format,
        subscriptions: request.subscriptions,
        channelKeys: keys,
        members: new Set(),
        live: new Set(),
        isIncluded: false,
        seesCatalog: seesCatalog(request.subscriptions),
        toldAtMs: 0,
        openHeight: undefined,
      };
      this.groups.set(key, group);
      this.areChannelsKnown = false;
    }
    group.members.add(stream);
    return group;
  }

  leave(stream: GroupMember, group: FeedGroup): void {
    group.members.delete(stream);
    if (group.live.delete(stream)) feedMetrics.live.dec();
    if (group.members.size > 0) return;
    this.groups.delete(group.key);
    this.areChannelsKnown = false;
    if (this.groups.size === 0) this.request?.cancellation.abort();
  }

  /**
   * Lets a stream that is at the head take part in the windows that follow. Resolves to false where it is behind them:
   * it has to read on.
   */
  async join(stream: GroupMember, group: FeedGroup): Promise<boolean> {
    if (!this.running) this.start(stream);
    while (!group.isIncluded && !stream.isEnded) await this.included();
    if (stream.isEnded || comparePositions(stream.position, this.position) < 0) return false;
    group.live.add(stream);
    feedMetrics.live.inc();
    return true;
  }

  /** Behind what a stream has been sent, or has no need of. */
  cursorOf(stream: GroupMember, { live }: FeedGroup): string {
    return live.has(stream) && comparePositions(stream.position, this.position) < 0 ? this.cursor : stream.cursor;
  }

  private start({ cursor }: GroupMember): void {
    this.cursor = cursor;
    this.position = positionOf(cursor);
    this.running = this.run().finally(() => (this.running = undefined));
  }

  /** Resolves once a request has begun that has all groups of now. It takes the place of one that waits for changes. */
  private included(): Promise<void> {
    const { request } = this;
    if (request && !request.isReplaced) {
      request.isReplaced = true;
      const leftMs = request.startedAtMs + this.replaceAfterMs - performance.now();
      setTimeout(() => request.cancellation.abort(), Math.max(0, leftMs));
      // A request that has not come to its wait yet is not replaced again and again.
      this.replaceAfterMs = Math.min(2 * this.replaceAfterMs, replaceAfterMaxMs);
    }
    return new Promise((resolve) => this.awaiting.push(resolve));
  }

  private async run(): Promise<void> {
    const backoff = new Backoff({ firstMs: 50, maxMs: 1_000 });
    while (this.groups.size > 0) {
      this.includeAll();
      const cancellation = new Cancellation();
      this.request = { cancellation, startedAtMs: performance.now(), isReplaced: false };
      try {
        const window = await this.read(cancellation);
        this.request = undefined;
        const arrivedAtMs = performance.now();
        await this.deliver(window);
        backoff.reset();
        this.replaceAfterMs = windowPauseMs;
        await pause(Math.max(windowPauseMs, (performance.now() - arrivedAtMs) * windowPauseFactor));
      } catch (error) {
        this.request = undefined;
        if (cancellation.aborted) continue;
        if (!isPassing(error)) for (const stream of this.streams()) stream.fail(error);
        else await backoff.wait();
      }
    }
    // Whoever waits comes again.
    this.resolveAwaiting();
  }

  private *streams(): Generator<GroupMember> {
    for (const { members } of this.groups.values()) yield* members;
  }

  private includeAll(): void {
    if (!this.areChannelsKnown) this.listChannels();
    for (const group of this.groups.values()) group.isIncluded = true;
    this.resolveAwaiting();
  }

  private resolveAwaiting(): void {
    for (const resolve of this.awaiting.splice(0)) resolve();
  }

  private listChannels(): void {
    const places = new Map<string, number>();
    const list: Channels['list'] = [];
    this.routes = [];
    for (const group of this.groups.values()) {
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
    this.areChannelsKnown = true;
  }

  private read(signal: Cancellation): Promise<ReadChangesResponse> {
    const limits = { limit: windowChanges, bytesMax: windowBytes, waitMs, catalogRevision: this.catalogRevision };
    return readChanges(this.context.data, { appId: this.appId, since: this.cursor }, this.channels, limits, signal);
  }

  private async deliver(window: ReadChangesResponse): Promise<void> {
    const startedAtMs = performance.now();
    await this.context.keys.fresh();
    const before = this.position;
    // Streams that join from now on must be behind this window.
    this.cursor = window.cursor;
    this.position = positionOf(window.cursor);
    this.head = Number(window.head);
    const events = eventsByTarget(window, this.routes);
    await runSliced(this.fanOut(window, before, events));
    if (window.catalogRevision !== this.catalogRevision) this.notifyCatalog(window.catalogRevision);
    this.refuse(window);
    if (window.changes.length > 0) feedMetrics.windows.observe((performance.now() - startedAtMs) / 1_000);
  }

  private *fanOut(
    window: ReadChangesResponse,
    before: Position,
    events: ReadonlyMap<FeedGroup, readonly StreamEvent[]>,
  ): Generator<void, void, void> {
    for (const group of this.groups.values()) {
      const own = events.get(group) ?? [];
      const text = textOf(group, own, window);
      if (!text) continue;
      for (const stream of group.live) {
        // One that has joined ahead of the window before has a part of this one already.
        const isAhead = comparePositions(stream.position, before) > 0;
        const missing = isAhead ? own.filter(({ position }) => comparePositions(position, stream.position) > 0) : own;
        const bytes = missing.length === own.length ? text : eventsText(group.format, missing);
        feedMetrics.changes.inc(missing.length);
        if (!stream.receive(bytes, window.cursor)) {
          group.live.delete(stream);
          feedMetrics.live.dec();
          stream.fallBehind(window.cursor, group.openHeight);
        }
        yield;
      }
    }
  }

  private notifyCatalog(revision: string): void {
    const isFirst = this.catalogRevision === '0';
    this.catalogRevision = revision;
    if (isFirst) return;
    for (const group of this.groups.values()) {
      if (group.seesCatalog) for (const stream of group.live) stream.notifyCatalog(revision);
    }
  }

  /** Ends the streams that may not read one of their channels, or not any more. */
  private refuse({ refusals }: ReadChangesResponse): void {
    for (const refusal of refusals) {
      for (const { target } of this.routes[refusal.channel] ?? []) {
        for (const stream of [...target.live]) stream.fail(refusalError(refusal));
      }
    }
  }
}

/** What a window is to a group; undefined where it is nothing. */
function textOf(group: FeedGroup, events: readonly StreamEvent[], window: ReadChangesResponse): Buffer | undefined {
  const nowMs = performance.now();
  const last = events.at(-1);
  if (last) {
    group.toldAtMs = nowMs;
    group.openHeight = last.isLast ? undefined : last.height;
    return eventsText(group.format, events);
  }
  const isCommitOver = group.openHeight !== undefined && Number(window.completeHeight) >= group.openHeight;
  if (!isCommitOver && nowMs - group.toldAtMs < progressEveryMs) return undefined;
  group.toldAtMs = nowMs;
  if (isCommitOver) group.openHeight = undefined;
  return noticeText(group.format, 'progress', { head: Number(window.head) }, window.cursor);
}
