import type { ServiceError } from '@granary/shared/errors';
import type { FeedChange } from '@granary/shared/gen/granary/data/v1/FeedChange';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import type { CollectionRef } from '../catalog/collection';
import { cipherOf } from '../encryption/document-cipher';
import type { Channel } from './channel';
import type { ChannelSet } from './channel-set';
import { ShownDocuments } from './change-text';
import { formatCursor, type Position } from './cursor';
import { eventsOf, type Delivery } from './events';
import type { FeedHead } from './feed-head';
import { readLog, type LogEntry, type LogWindow } from './log';
import { SourceCollections, type SourceCollection } from './source-collections';
import { readVersions, type StoredVersion, type Versions } from './versions';

/** The size of one window. */
export interface WindowLimits {
  /** Changes for channels. */
  changesMax: number;
  /** Bytes of the texts of documents; a single one may be larger. */
  bytesMax: number;
  /** Whether channels learn at once that a collection is missing, rather than behind what happened to it. */
  isOpening: boolean;
}

/** What happened in a part of the log, for some channels. */
export interface FeedWindow {
  changes: FeedChange[];
  end: Position;
  /** The hash of the commit at the end. */
  hash: Buffer;
  completeHeight: bigint;
  /** Whether it ends at the head. */
  isWhole: boolean;
  refusals: ReadonlyMap<number, ServiceError>;
}

/** Entries of the log of one window, at most. */
const entriesMax = 1_000;
/** Collections whose texts one window has, at most: a statement reads each. */
const collectionsMax = 8;

/** Where windows are read from. */
export interface WindowSource {
  db: Queryable;
  app: App;
  lookUp: (collection: string) => Promise<CollectionRef | undefined>;
}

/** Reads the window behind the position of a head. */
export async function readWindow(
  { db, app, lookUp }: WindowSource,
  head: FeedHead,
  set: ChannelSet,
  limits: WindowLimits,
): Promise<FeedWindow> {
  // Which version is the newest of a window depends on where it ends, so its end must not depend on what is delivered.
  const entries = set.hasLatest ? Math.min(entriesMax, limits.changesMax) : entriesMax;
  const log = await readLog(db, app, head, entries);
  const sources = new SourceCollections(set, await collectionsOf(set, log, lookUp));
  const part = new WindowPart(log, sources);
  await part.readTexts(db, Math.max(1, Math.floor(limits.bytesMax / Math.max(1, set.shownCount))));
  const changes: FeedChange[] = [];
  for (const [index, entry] of part.entries.entries()) {
    if (changes.length === limits.changesMax) {
      part.endBefore(index);
      break;
    }
    const change = part.changeOf(entry, set.channels);
    if (change) changes.push(change);
  }
  const { end, completeHeight, isWhole } = part;
  const refusals = sources.refusals(isWhole || limits.isOpening);
  return { changes, end, hash: log.hashes.get(end.height)!, completeHeight, isWhole, refusals };
}

/** The collections that channels name, and where one has all those that the window is about. */
async function collectionsOf(
  { names, hasAll }: ChannelSet,
  { entries }: LogWindow,
  lookUp: WindowSource['lookUp'],
): Promise<CollectionRef[]> {
  const all = new Set([...names, ...(hasAll ? entries.map(({ collection }) => collection) : [])]);
  const collections = await Promise.all([...all].map(lookUp));
  return collections.filter((collection) => collection !== undefined);
}

/** The entries of a log of which the texts have been read. */
class WindowPart {
  entries: readonly LogEntry[];
  end: Position;
  completeHeight: bigint;
  isWhole: boolean;
  private readonly versions = new Map<SourceCollection, Versions>();
  private readonly shown = new Map<SourceCollection, ShownDocuments>();
  /** For each document of the window its first and its last entry. */
  private readonly spans = new Map<string, { first: LogEntry; last: LogEntry }>();

  constructor(
    private readonly log: LogWindow,
    private readonly sources: SourceCollections,
  ) {
    this.entries = log.entries;
    this.end = log.end;
    this.completeHeight = log.completeHeight;
    this.isWhole = log.isWhole;
  }

  /** Leaves out the entries from that index on: they come in the next window. */
  endBefore(index: number): void {
    const { height } = this.entries[index]!;
    const before = this.entries[index - 1];
    this.entries = this.entries.slice(0, index);
    // What is no entry, such as the bytes of an upload, is passed with the entry before it.
    this.end = before ? { height: before.height, place: before.place + 1 } : this.log.end;
    this.completeHeight = height - 1n;
    this.isWhole = false;
  }

  async readTexts(db: Queryable, bytesMax: number): Promise<void> {
    const entriesOf = new Map<SourceCollection, LogEntry[]>();
    for (const [index, entry] of this.entries.entries()) {
      const source = entry.kind === 'stored' ? this.sources.of(entry) : undefined;
      if (!source) continue;
      const entries = entriesOf.get(source);
      if (entries) {
        entries.push(entry);
      } else if (entriesOf.size === collectionsMax) {
        this.endBefore(index);
        break;
      } else {
        entriesOf.set(source, [entry]);
      }
    }
    for (const [source, entries] of entriesOf) {
      this.versions.set(source, await readVersions(db, source.ref, source.matcher, entries, bytesMax));
      this.shown.set(source, new ShownDocuments({ cipher: cipherOf(source.ref) }));
    }
    // The first entry without a text has one too many bytes before it, in its collection or in another.
    const cut = this.entries.findIndex((entry) => this.versionOf(entry)?.text === null);
    if (cut > 0) this.endBefore(cut);
    for (const entry of this.entries) {
      const span = this.spans.get(keyOf(entry));
      if (span) span.last = entry;
      else this.spans.set(keyOf(entry), { first: entry, last: entry });
    }
  }

  /** The change that an entry is to channels; undefined where it is none. */
  changeOf(entry: LogEntry, channels: readonly Channel[]): FeedChange | undefined {
    const source = this.sources.of(entry);
    const version = this.versionOf(entry);
    const all = entry.kind === 'stored' ? this.stored(entry, source, version, channels) : this.erased(entry);
    const puts = all.puts.filter((channel) => this.sources.mayRead(channel));
    const removals = all.removals.filter(([channel]) => this.sources.mayRead(channel));
    if (puts.length + removals.length === 0) return undefined;
    const shown = source && this.shown.get(source);
    const behind = { height: entry.height, place: entry.place + 1 };
    return {
      height: entry.height.toString(),
      place: entry.place,
      cursor: formatCursor(behind, this.log.hashes.get(entry.height)!),
      events: eventsOf(entry, version, { puts, removals }, channels, shown),
    };
  }

  private versionOf(entry: LogEntry): StoredVersion | undefined {
    const source = entry.kind === 'stored' ? this.sources.of(entry) : undefined;
    return source && this.versions.get(source)?.of(entry);
  }

  /** Whether a text is gone or not, channels without a filter learn that the version was stored. */
  private stored(
    entry: LogEntry,
    source: SourceCollection | undefined,
    version: StoredVersion | undefined,
    channels: readonly Channel[],
  ): Delivery {
    const { first, last } = this.spans.get(keyOf(entry))!;
    const isDue = (channel: number) => !channels[channel]!.onlyLatest || entry === last;
    const unfiltered = this.sources.unfiltered(entry).filter(isDue);
    const deleted = unfiltered.map((channel) => [channel, 'deleted'] as const);
    const delivery = version?.deleted ? { puts: [], removals: deleted } : { puts: unfiltered, removals: [] };
    if (!source || !version?.text || !source.matcher.hasFilters) return delivery;
    const now = version.deleted ? new Set<number>() : source.matcher.matches({ ...version, text: version.text });
    const before = this.matchedBefore(source, entry);
    const beforeWindow = entry === first ? before : this.matchedBefore(source, first);
    const wasShown = (channel: number) => (channels[channel]!.onlyLatest ? beforeWindow : before).has(channel);
    const reason = version.deleted ? 'deleted' : 'filtered';
    const left = new Set([...before, ...beforeWindow]);
    return {
      puts: [...delivery.puts, ...[...now].filter(isDue)],
      removals: [
        ...delivery.removals,
        ...[...left]
          .filter((channel) => !now.has(channel) && isDue(channel) && wasShown(channel))
          .map((channel) => [channel, reason] as const),
      ],
    };
  }

  /** The channels whose filter the version before that of an entry matched. */
  private matchedBefore(source: SourceCollection, entry: LogEntry): ReadonlySet<number> {
    const versions = this.versions.get(source);
    const version = versions?.of(entry);
    const before = version && versions?.before(version);
    if (!before?.text || before.deleted) return new Set();
    return source.matcher.matches({ ...before, text: before.text });
  }

  private erased(entry: LogEntry): Delivery {
    const reason = entry.kind === 'dropped' ? 'dropped' : 'erased';
    return { puts: [], removals: this.sources.everyChannel(entry).map((channel) => [channel, reason]) };
  }
}

const keyOf = ({ collectionNumber, collection, id }: LogEntry): string => `${collectionNumber ?? collection} ${id}`;
