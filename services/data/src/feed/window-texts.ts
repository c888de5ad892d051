import type { Queryable } from '@granary/shared/postgres/pool';
import { cipherOf } from '../encryption/document-cipher';
import { ShownDocuments } from './change-text';
import type { LogEntry } from './log';
import type { LogPart } from './log-part';
import type { SourceCollection, SourceCollections } from './source-collections';
import { readVersions, type StoredVersion, type Versions } from './versions';

/** The versions that the entries of a window stored, and those before them. */
export class WindowTexts {
  private readonly versions = new Map<SourceCollection, Versions>();
  private readonly shown = new Map<SourceCollection, ShownDocuments>();
  /** For each document of the window its first and its last entry. */
  private readonly spans = new Map<string, { first: LogEntry; last: LogEntry }>();

  constructor(private readonly sources: SourceCollections) {}

  /** Reads the texts of a part, and ends it where they are more than `bytesMax`; one version may be larger. */
  async read(db: Queryable, part: LogPart, bytesMax: number): Promise<void> {
    let leftBytes = bytesMax;
    for (const [source, entries] of this.bySource(part.logEntries)) {
      const versions = await readVersions(db, source.ref, source.matcher, entries, Math.max(1, leftBytes));
      leftBytes -= versions.bytes;
      this.versions.set(source, versions);
      this.shown.set(source, new ShownDocuments({ cipher: cipherOf(source.ref) }));
    }
    const cut = part.entries.findIndex((entry) => entry.kind !== 'row' && this.versionOf(entry)?.text === null);
    if (cut > 0) part.endBefore(cut);
    for (const entry of part.logEntries) {
      const span = this.spans.get(keyOf(entry));
      if (span) span.last = entry;
      else this.spans.set(keyOf(entry), { first: entry, last: entry });
    }
  }

  versionOf(entry: LogEntry): StoredVersion | undefined {
    const source = sourceOf(this.sources, entry);
    return source && this.versions.get(source)?.of(entry);
  }

  /** The version before that of an entry. */
  versionBefore(entry: LogEntry): StoredVersion | undefined {
    const source = sourceOf(this.sources, entry);
    const version = this.versionOf(entry);
    return source && version && this.versions.get(source)?.before(version);
  }

  /** The first and the last entry of the window about the document of an entry. */
  spanOf(entry: LogEntry): { first: LogEntry; last: LogEntry } {
    return this.spans.get(keyOf(entry))!;
  }

  shownOf(entry: LogEntry): ShownDocuments | undefined {
    const source = sourceOf(this.sources, entry);
    return source && this.shown.get(source);
  }

  private bySource(entries: readonly LogEntry[]): Map<SourceCollection, LogEntry[]> {
    const bySource = new Map<SourceCollection, LogEntry[]>();
    for (const entry of entries) {
      const source = sourceOf(this.sources, entry);
      if (!source) continue;
      const others = bySource.get(source);
      if (others) others.push(entry);
      else bySource.set(source, [entry]);
    }
    return bySource;
  }
}

/** The collection of an entry that stored something. */
const sourceOf = (sources: SourceCollections, entry: LogEntry): SourceCollection | undefined =>
  entry.kind === 'stored' ? sources.of(entry) : undefined;

const keyOf = ({ collectionNumber, collection, id }: LogEntry): string => `${collectionNumber ?? collection} ${id}`;
