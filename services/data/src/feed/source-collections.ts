import { notFound, ServiceError } from '@granary/shared/errors';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { isAll } from '../query/language/condition';
import { needsKey } from '../query/language/paging';
import type { Channel } from './channel';
import { shownMax, type ChannelSet } from './channel-set';
import { CollectionMatcher, TOO_MANY_FILTERS } from './collection-matcher';
import type { LogEntry } from './log';

export const FEED_NOT_SOLD = 'FEED_NOT_SOLD';

/** A collection as the channels of a request read it. */
export interface SourceCollection {
  ref: CollectionRef;
  matcher: CollectionMatcher;
  /** The channels that read it, by their places. */
  channels: readonly number[];
}

/** What is compiled for the channels of a set that read a collection. */
type CompiledSource = Omit<SourceCollection, 'ref'>;

interface CompiledEntry {
  /** The revision of the catalog that it was compiled for. */
  revision: bigint;
  compiled: CompiledSource;
}

/** By the number of the collection. */
const compiledSources = new WeakMap<ChannelSet, Map<bigint, CompiledEntry>>();

/** The collections of an app, as the channels of one request may read them. */
export class SourceCollections {
  /** The errors of the channels that may not read what they name, by the places of these channels. */
  readonly refused = new Map<number, ServiceError>();
  /** Channels that name a collection which is not there. They end only once its removal has been delivered. */
  readonly missing = new Map<number, ServiceError>();
  private readonly byNumber = new Map<bigint, SourceCollection>();
  /** Channels with a right to everything, by the name of the collection; those that have all under undefined. */
  private readonly readers = new Map<string | undefined, number[]>();
  /** Channels without that right, by the name of the collection. */
  private readonly strangers = new Map<string, number[]>();

  /** `collections`: those that channels name, and those of the app where one has all. */
  constructor(
    private readonly set: ChannelSet,
    collections: readonly CollectionRef[],
  ) {
    const byName = new Map(collections.map((ref) => [ref.name, ref]));
    for (const [index, channel] of set.channels.entries()) this.admit(index, channel, byName);
    for (const ref of collections) {
      const source = this.sourceOf(ref);
      this.byNumber.set(ref.number, source);
      for (const [channel, error] of source.matcher.refusals) this.refused.set(channel, error);
    }
  }

  /** The collection of an entry, where a channel reads it and it is still there. */
  of({ collectionNumber }: LogEntry): SourceCollection | undefined {
    const source = collectionNumber === null ? undefined : this.byNumber.get(collectionNumber);
    return source && source.channels.length > 0 ? source : undefined;
  }

  /** The channels without a filter that an entry is for, of a collection that is gone as well. */
  unfiltered(entry: LogEntry): readonly number[] {
    const source = this.of(entry);
    if (source) return source.matcher.unfiltered;
    return this.readersOf(entry).filter((channel) => isAll(this.set.channels[channel]!.find));
  }

  /** The channels that are told of an erasure: those without a key where they could read the collection then. */
  toldOf(entry: LogEntry): readonly number[] {
    const source = this.of(entry);
    if (source)
      return source.channels.filter((channel) => entry.isPublic || this.set.channels[channel]!.mayReadPrivate);
    // The ids of a collection that is gone, too, are for keys alone; that it was dropped has none.
    const isForStrangers = entry.kind === 'dropped' && entry.isPublic;
    return [...this.readersOf(entry), ...(isForStrangers ? (this.strangers.get(entry.collection) ?? []) : [])];
  }

  mayRead(channel: number): boolean {
    return !this.refused.has(channel);
  }

  private readersOf({ collection }: LogEntry): number[] {
    return [...(this.readers.get(collection) ?? []), ...(this.readers.get(undefined) ?? [])];
  }

  private admit(index: number, channel: Channel, byName: ReadonlyMap<string, CollectionRef>): void {
    for (const name of channel.collections ?? []) {
      const ref = byName.get(name);
      if (!ref) this.missing.set(index, notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`));
      else if (!channel.mayReadPrivate) this.admitStranger(index, ref);
    }
    if (this.set.excess.has(index)) this.refused.set(index, tooManySelections());
    if (!channel.mayReadPrivate && !channel.collections) this.refused.set(index, needsKey('feed of a whole app'));
    for (const name of channel.collections ?? [undefined]) {
      if (channel.mayReadPrivate) append(this.readers, name, index);
      else if (name !== undefined) append(this.strangers, name, index);
    }
  }

  private admitStranger(index: number, ref: CollectionRef): void {
    if (ref.readAccess === 'private') this.refused.set(index, needsKey('collection'));
    else if (ref.readPrices) this.refused.set(index, notSold(`collection ${ref.name}`));
  }

  /** What is compiled outlives this request, and has channels that this one refuses. */
  private sourceOf(ref: CollectionRef): SourceCollection {
    let ofSet = compiledSources.get(this.set);
    if (!ofSet) compiledSources.set(this.set, (ofSet = new Map<bigint, CompiledEntry>()));
    const entry = ofSet.get(ref.number);
    if (entry?.revision === ref.revision) return { ref, ...entry.compiled };
    const channels = [...this.set.channels.entries()].filter(([, channel]) => reads(channel, ref.name));
    const compiled = { matcher: new CollectionMatcher(ref, channels), channels: channels.map(([index]) => index) };
    ofSet.set(ref.number, { revision: ref.revision, compiled });
    return { ref, ...compiled };
  }
}

function append<Key>(lists: Map<Key, number[]>, key: Key, channel: number): void {
  const list = lists.get(key);
  if (list) list.push(channel);
  else lists.set(key, [channel]);
}

const reads = ({ collections }: Channel, name: string): boolean => collections?.includes(name) ?? true;

const tooManySelections = (): ServiceError =>
  new ServiceError(
    'RESOURCE_EXHAUSTED',
    TOO_MANY_FILTERS,
    `The feeds of this app have more than ${shownMax} different selections`,
    { details: { limit: 'selections of an app', max: shownMax } },
  );

export const notSold = (source: string): ServiceError =>
  new ServiceError(
    'PERMISSION_DENIED',
    FEED_NOT_SOLD,
    `Reads of the ${source} have a price, and feeds are not sold: a key with Read is needed`,
  );
