import { windowItems } from './protocol';
import { StreamGroup, type StreamEvents, type StreamGroupOptions } from './stream-group';
import type { Stream } from './stream';

export interface ChannelsOptions extends Omit<StreamGroupOptions, 'streamsMax'> {
  /** Streams to a service with one address. */
  count: number;
}

/** Streams to the addresses of a service, at most. */
const addressesMax = 64;
const avoidAfterSilenceMs = 5_000;

/**
 * The streams to a service: one to each of its addresses, or `count` to its only one, on connections of their own so
 * that what stalls one does not stall all.
 */
export class Channels<Item> {
  /** The first one reaches all addresses, the others have one stream each. */
  private readonly groups: readonly [StreamGroup<Item>, ...StreamGroup<Item>[]];
  private turn = 0;

  constructor(
    private readonly options: ChannelsOptions,
    events: StreamEvents<Item>,
  ) {
    const one = () => new StreamGroup<Item>({ ...options, streamsMax: 1 }, events);
    const { count } = options;
    const all = new StreamGroup<Item>({ ...options, streamsMax: count === 1 ? 1 : addressesMax }, events);
    this.groups = [all, ...Array.from({ length: count - 1 }, one)];
  }

  /** How many streams take calls, or would. */
  get width(): number {
    return Math.max(this.options.count, this.groups[0].streams.size);
  }

  /**
   * The stream with the fewest calls that has room, opened if need be; among those with as few the least recently used.
   */
  leastLoaded(nowMs: number): Stream<Item> | undefined {
    let best: Stream<Item> | undefined;
    let bestLoad = Infinity;
    let empty: StreamGroup<Item> | undefined;
    for (const group of this.wantedGroups()) {
      if (group.streams.size === 0) empty = preferred(empty, group, nowMs);
      for (const stream of group.streams) {
        if (!stream.hasRoom) continue;
        const load = stream.inFlight.size + (isAvoided(stream, nowMs) ? windowItems : 0);
        if (load > bestLoad || (load === bestLoad && stream.lastTurn > best!.lastTurn)) continue;
        [best, bestLoad] = [stream, load];
      }
    }
    if (empty && bestLoad >= (empty.avoidUntilMs > nowMs ? windowItems : 0)) best = empty.search();
    if (best) best.lastTurn = ++this.turn;
    return best;
  }

  /**
   * A call that was sent on this stream has timed out. If nothing has arrived since, the other streams are preferred.
   */
  timedOut(stream: Stream<Item>, sentAtMs: number): void {
    if (stream.lastReceivedMs < sentAtMs) stream.avoidUntilMs = Date.now() + avoidAfterSilenceMs;
  }

  /** Sends pending cancellations, and ends streams that have drained. */
  maintain(): void {
    for (const group of this.groups) group.maintain();
  }

  /** Ends every stream without calls, and with the last stream the connections. */
  close(): void {
    for (const group of this.groups) group.close();
  }

  counts(): { streams: number; renewals: number } {
    const sum = (numbers: number[]) => numbers.reduce((total, one) => total + one, 0);
    return {
      streams: sum(this.groups.map(({ openCount }) => openCount)),
      renewals: sum(this.groups.map(({ renewals }) => renewals)),
    };
  }

  /**
   * The groups that take calls. With several addresses the first group alone has enough connections, and the others are
   * retired.
   */
  private wantedGroups(): readonly StreamGroup<Item>[] {
    const [all, ...others] = this.groups;
    if (all.addresses < 2) return this.groups;
    for (const group of others) group.retire();
    return [all];
  }
}

/** A stream that is not connected yet takes calls only where no other one does. */
function isAvoided<Item>({ avoidUntilMs, peer }: Stream<Item>, nowMs: number): boolean {
  return avoidUntilMs > nowMs || peer === undefined;
}

function preferred<Item>(
  one: StreamGroup<Item> | undefined,
  other: StreamGroup<Item>,
  nowMs: number,
): StreamGroup<Item> {
  return one && (one.avoidUntilMs <= nowMs || other.avoidUntilMs > nowMs) ? one : other;
}
