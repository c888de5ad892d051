import type { RemovalReason } from './change-text';
import type { Channel } from './channel';
import type { LogEntry } from './log';
import type { SourceCollection, SourceCollections } from './source-collections';
import type { StoredVersion } from './versions';
import type { WindowTexts } from './window-texts';

/** What an entry is to channels: a new version, or a removal. */
export interface Delivery {
  puts: readonly number[];
  removals: ReadonlyArray<readonly [channel: number, reason: RemovalReason]>;
}

const nothing: ReadonlySet<number> = new Set();

/** The channels that an entry is for, of those that may read it. */
export class Deliveries {
  constructor(
    private readonly sources: SourceCollections,
    private readonly texts: WindowTexts,
    private readonly channels: readonly Channel[],
  ) {}

  of(entry: LogEntry): Delivery {
    const { puts, removals } = entry.kind === 'stored' ? this.stored(entry) : this.erased(entry, entry.kind);
    const mayRead = (channel: number) => this.sources.mayRead(channel);
    return { puts: puts.filter(mayRead), removals: removals.filter(([channel]) => mayRead(channel)) };
  }

  private erased(entry: LogEntry, reason: 'erased' | 'dropped'): Delivery {
    return { puts: [], removals: this.sources.toldOf(entry).map((channel) => [channel, reason] as const) };
  }

  /** Whether its text is gone or not, channels without a filter learn that a version was stored. */
  private stored(entry: LogEntry): Delivery {
    const source = this.sources.of(entry);
    const version = this.texts.versionOf(entry);
    const { last } = this.texts.spanOf(entry);
    const isDue = (channel: number) => {
      const { onlyLatest, mayReadPrivate } = this.channels[channel]!;
      // Without a key nobody reads what was replaced, here as elsewhere.
      return (!onlyLatest || entry === last) && (mayReadPrivate || version?.isPresent === true);
    };
    const unfiltered = this.sources.unfiltered(entry).filter(isDue);
    const isDeleted = version?.deleted === true;
    const removed = isDeleted ? unfiltered.map((channel) => [channel, 'deleted'] as const) : [];
    const delivery = { puts: isDeleted ? [] : unfiltered, removals: removed };
    if (!source || !version?.text || !source.matcher.hasFilters) return delivery;
    const matching = isDeleted ? nothing : matchesOf(source, version);
    const left = this.mayHaveShown(source, entry).filter((channel) => !matching.has(channel) && isDue(channel));
    const reason = isDeleted ? 'deleted' : 'filtered';
    return {
      puts: [...delivery.puts, ...[...matching].filter(isDue)],
      removals: [...removed, ...left.map((channel) => [channel, reason] as const)],
    };
  }

  /**
   * The channels that may have a version of the document which matched their filter: before the entry, or before the
   * window for those with newest versions only. Whether it was one that matched is for keys alone, once it is replaced.
   */
  private mayHaveShown(source: SourceCollection, entry: LogEntry): number[] {
    const { first } = this.texts.spanOf(entry);
    const before = matchesOf(source, this.texts.versionBefore(entry));
    const beforeWindow = entry === first ? before : matchesOf(source, this.texts.versionBefore(first));
    const hasMatched = (channel: number) => {
      const { onlyLatest, mayReadPrivate } = this.channels[channel]!;
      return mayReadPrivate && (onlyLatest ? beforeWindow : before).has(channel);
    };
    return [...source.matcher.filteredStrangers, ...[...new Set([...before, ...beforeWindow])].filter(hasMatched)];
  }
}

/** The channels whose filter a version matches; none for one that is deleted, or not there. */
function matchesOf({ matcher }: SourceCollection, version: StoredVersion | undefined): ReadonlySet<number> {
  if (!version?.text || version.deleted) return nothing;
  return matcher.matches({ text: version.text, results: version.results });
}
