import type { ServiceError } from '@granary/shared/errors';
import type { FeedChange } from '@granary/shared/gen/granary/data/v1/FeedChange';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import { readCatalogRevision } from '../catalog/app-lock';
import { findCollections, isFreeForAll, type CollectionRef } from '../catalog/collection';
import type { ChannelSet } from './channel-set';
import { formatCursor, isStart, type Position } from './cursor';
import { Deliveries } from './deliveries';
import { eventsOf } from './events';
import { readFeedHead, type FeedHead } from './feed-head';
import { readLog, type LogEntry, type LogWindow } from './log';
import { LogPart, positionBehind } from './log-part';
import { rowEventsOf } from './row-events';
import { SourceCollections } from './source-collections';
import { readSourceViews, type PricesOf, type SourceViews } from './source-views';
import { readViewRows } from './view-rows';
import { WindowTexts } from './window-texts';

/** The size of one window. */
export interface WindowLimits {
  /** Changes for channels. */
  changesMax: number;
  /** Bytes of the texts of documents; a single one may be larger. */
  bytesMax: number;
  /** Whether one channel that may not be read refuses the whole, rather than that channel behind its changes. */
  isOpening: boolean;
}

/** What happened in a part of the log, for some channels. */
export interface FeedWindow {
  changes: FeedChange[];
  end: Position;
  /** Where the log ended when the feed began at its start, see formatCursor. */
  initialEnd: Position | undefined;
  /** The hash of the commit at the end. */
  hash: Buffer;
  completeHeight: bigint;
  /** Whether it ends at the head. */
  isWhole: boolean;
  /** The errors of the channels that may not read what they name, by the places of these channels. */
  refusals: ReadonlyMap<number, ServiceError>;
}

/** Where windows are read from. */
export interface WindowSource {
  /** Where the log and the texts are read; of one snapshot with the head where views are followed. */
  db: Queryable;
  /** For small statements, which see what is committed. */
  fast: Queryable;
  app: App;
  lookUp: (collection: string) => Promise<CollectionRef | undefined>;
  pricesOf: PricesOf;
}

/** Entries of the log of one window, at most. */
const entriesMax = 1_000;
/** A text that is shown in more ways than that counts as longer. */
const copiesMax = 8;
/** Collections of one window, at most: a statement reads each. */
const collectionsMax = 64;

/** Reads the window behind the position of a head. */
export async function readWindow(
  source: WindowSource,
  head: FeedHead,
  set: ChannelSet,
  limits: WindowLimits,
): Promise<FeedWindow> {
  const { db, fast, app, lookUp } = source;
  const begins = set.views.size > 0 && isStart(head.position);
  const now = set.hasOnlyViews || begins ? await readFeedHead(db, app, { kind: 'now' }) : undefined;
  const initialEnd = begins ? now?.position : head.initialEnd;
  const part = new LogPart(set.hasOnlyViews && now ? emptyLog(head, now) : await readLog(db, app, head, entriesMax));
  part.limitCollections(collectionsMax);
  const collections = await collectionsOf(set, part.logEntries, lookUp);
  const sources = new SourceCollections(set, collections);
  const views = await readSourceViews(source, set, { position: head.position, initialEnd });
  const refused = new Map([...sources.refused, ...views.refused]);
  const { missing } = sources;
  if (limits.isOpening && missing.size + refused.size > 0) return nothingOf(head, new Map([...missing, ...refused]));
  // Behind this window nobody would know any more that rows are missing.
  if (views.isGone) return nothingOf(head, refused);
  const bytesMax = Math.min(limits.bytesMax, Math.floor((copiesMax * limits.bytesMax) / set.shownCount));
  const range = { from: head.position, to: part.end };
  const changedRows = await readViewRows(db, app, views.sources, range, { changesMax: limits.changesMax, bytesMax });
  part.addRows(changedRows);
  // Which version is the newest of a window depends on where it ends, so its end must not depend on what is delivered.
  if (set.hasLatest) part.endBefore(limits.changesMax);
  const texts = new WindowTexts(sources);
  await texts.read(db, part, Math.max(1, bytesMax - changedRows.bytes));
  const changes = changesOf(part, { set, sources, views, texts, initialEnd }, limits.changesMax);
  const { end, hash, completeHeight, isWhole } = part;
  const isEnded = isWhole && missing.size > 0;
  // A collection that has gone away meanwhile has its removal behind this window, and one may have become private.
  const dependsOnCatalog = isEnded || (!set.mayReadPrivate && changes.length > 0);
  if (dependsOnCatalog && (await readCatalogRevision(fast, app.number)) !== head.catalogRevision) {
    if (isEnded || !(await areStillPublic(fast, app, collections))) return nothingOf(head, refused);
  }
  const refusals = isEnded ? new Map([...missing, ...refused]) : refused;
  return { changes, end, initialEnd, hash, completeHeight, isWhole, refusals };
}

/** The log without entries, up to the head of now, for those who follow none of its documents. */
function emptyLog({ position, hash }: FeedHead, { position: end, height, hash: endHash }: FeedHead): LogWindow {
  const hashes = new Map([
    [position.height, hash],
    [height, endHash],
  ]);
  return { entries: [], end, hashes, completeHeight: height, isWhole: true };
}

/** The sources of what a window delivers. */
interface WindowSources {
  set: ChannelSet;
  sources: SourceCollections;
  views: SourceViews;
  texts: WindowTexts;
  initialEnd: Position | undefined;
}

/** The changes of a part, which ends where there are more than so many. */
function changesOf(
  part: LogPart,
  { set, sources, views, texts, initialEnd }: WindowSources,
  changesMax: number,
): FeedChange[] {
  const deliveries = new Deliveries(sources, texts, set.channels);
  const changes: FeedChange[] = [];
  for (const [index, entry] of part.entries.entries()) {
    if (changes.length === changesMax) {
      part.endBefore(index);
      break;
    }
    const events =
      entry.kind === 'row'
        ? rowEventsOf(entry, views.channels.get(entry.view.number)!, set.channels)
        : eventsOf(entry, texts.versionOf(entry), deliveries.of(entry), set.channels, texts.shownOf(entry));
    if (events.length === 0) continue;
    const cursor = formatCursor(positionBehind(entry), part.hashOf(entry.height), initialEnd);
    changes.push({ height: entry.height.toString(), place: entry.place, cursor, events });
  }
  return changes;
}

/** A window without changes: what is behind its head has to be read again, unless it is refused. */
function nothingOf({ position, hash, initialEnd }: FeedHead, refusals: FeedWindow['refusals']): FeedWindow {
  return {
    changes: [],
    end: position,
    initialEnd,
    hash,
    completeHeight: position.height - 1n,
    isWhole: false,
    refusals,
  };
}

async function areStillPublic(db: Queryable, app: App, collections: readonly CollectionRef[]): Promise<boolean> {
  const names = collections.map(({ name }) => name);
  const present = new Map((await findCollections(db, app, names)).map((ref) => [ref.number, ref]));
  return collections.every(({ number }) => {
    const ref = present.get(number);
    return ref !== undefined && isFreeForAll(ref);
  });
}

/** The collections that channels name, and where one has all those that the window is about. */
async function collectionsOf(
  { names, hasAll }: ChannelSet,
  entries: readonly LogEntry[],
  lookUp: WindowSource['lookUp'],
): Promise<CollectionRef[]> {
  const all = new Set([...names, ...(hasAll ? entries.map(({ collection }) => collection) : [])]);
  const collections = await Promise.all([...all].map(lookUp));
  return collections.filter((collection) => collection !== undefined);
}
