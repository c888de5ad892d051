import { ServiceError } from '@granary/shared/errors';
import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';
import { LRUCache } from 'lru-cache';
import { parseChannel, type Channel } from './channel';

export const CHANNELS_UNKNOWN = 'CHANNELS_UNKNOWN';

/** The channels of one request, in its order. */
export interface ChannelSet {
  channels: readonly Channel[];
  /** The collections that channels name, and whether one has all. */
  names: ReadonlySet<string>;
  hasAll: boolean;
  /** The views that channels name, and whether all channels name one. */
  views: ReadonlySet<string>;
  hasOnlyViews: boolean;
  hasLatest: boolean;
  /** Whether a channel has the right to everything; else the limits of public reads hold. */
  mayReadPrivate: boolean;
  /** Ways to show a document. */
  shownCount: number;
  /** The channels whose way is one too many. */
  excess: ReadonlySet<number>;
}

/** Ways to show a document in one set, at most: a document of 1 MiB in all of them fits a message. */
export const shownMax = 32;

/** Channels of all sets that are kept. */
const channelsMax = 200_000;

/** The sets of channels that gateways name by their digests. What is compiled for a set is kept by it. */
export class ChannelSets {
  private readonly sets = new LRUCache<string, ChannelSet>({
    maxSize: channelsMax,
    sizeCalculation: ({ channels }) => 1 + channels.length,
  });

  /**
   * The channels of a request, which sends them in full, or the digest of a set that this process has got before.
   * Throws CHANNELS_UNKNOWN, and what `parseChannel` throws.
   */
  of(digest: Buffer, messages: readonly FeedChannel[]): ChannelSet {
    const key = digest.toString('latin1');
    const knownSet = key === '' ? undefined : this.sets.get(key);
    if (knownSet) return knownSet;
    if (messages.length === 0) {
      throw new ServiceError('FAILED_PRECONDITION', CHANNELS_UNKNOWN, 'The channels have to be sent');
    }
    const set = setOf(messages.map(parseChannel));
    if (key !== '') this.sets.set(key, set);
    return set;
  }
}

function setOf(channels: readonly Channel[]): ChannelSet {
  const ways = [...new Set(channels.map(({ shownAs }) => shownAs))];
  const shown = new Set(ways.slice(0, shownMax));
  return {
    channels,
    names: new Set(channels.flatMap(({ collections }) => collections ?? [])),
    hasAll: channels.some(({ collections }) => collections === undefined),
    views: new Set(channels.flatMap(({ view }) => view ?? [])),
    hasOnlyViews: channels.every(({ view }) => view !== undefined),
    hasLatest: channels.some(({ onlyLatest }) => onlyLatest),
    mayReadPrivate: channels.some(({ mayReadPrivate }) => mayReadPrivate),
    shownCount: shown.size,
    excess: new Set([...channels.keys()].filter((index) => !shown.has(channels[index]!.shownAs))),
  };
}
