import type { ServiceError } from '@granary/shared/errors';
import type { FeedChange } from '@granary/shared/gen/granary/data/v1/FeedChange';
import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import { readCatalogRevision } from '../catalog/app-lock';
import { findCollections, isFreeForAll, type CollectionRef } from '../catalog/collection';
import type { ChannelSet } from './channel-set';
import { formatCursor, type Position } from './cursor';
import { Deliveries } from './deliveries';
import { eventsOf } from './events';
import type { FeedHead } from './feed-head';
import { readLog, type LogEntry } from './log';
import { LogPart } from './log-part';
import { SourceCollections } from './source-collections';
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
  db: Queryable;
  /** For small statements, which do not count as scans. */
  fast: Queryable;
  app: App;
  lookUp: (collection: string) => Promise<CollectionRef | undefined>;
}

/** Entries of the log of one window, at most. */
const entriesMax = 1_000;
/** A text that is shown in more ways than that counts as longer. */
const copiesMax = 8;
/** Collections of one window, at most: a statement reads each. */
const collectionsMax = 64;

/** Reads the window behind the position of a head. */
export async function readWindow(
  { db, fast, app, lookUp }: WindowSource,
  head: FeedHead,
  set: ChannelSet,
  limits: WindowLimits,
): Promise<FeedWindow> {
  const part = new LogPart(await readLog(db, app, head, entriesMax));
  part.limitCollections(collectionsMax);
  // Which version is the newest of a window depends on where it ends, so its end must not depend on what is delivered.
  if (set.hasLatest) part.endBefore(limits.changesMax);
  const collections = await collectionsOf(set, part.entries, lookUp);
  const sources = new SourceCollections(set, collections);
  const { missing, refused } = sources;
  if (limits.isOpening && missing.size + refused.size > 0) return nothingOf(head, new Map([...missing, ...refused]));
  const texts = new WindowTexts(sources);
  await texts.read(db, part, Math.min(limits.bytesMax, Math.floor((copiesMax * limits.bytesMax) / set.shownCount)));
  const deliveries = new Deliveries(sources, texts, set.channels);
  const changes: FeedChange[] = [];
  for (const [index, entry] of part.entries.entries()) {
    if (changes.length === limits.changesMax) {
      part.endBefore(index);
      break;
    }
    const delivery = deliveries.of(entry);
    if (delivery.puts.length + delivery.removals.length === 0) continue;
    changes.push({
      height: entry.height.toString(),
      place: entry.place,
      cursor: formatCursor({ height: entry.height, place: entry.place + 1 }, part.log.hashes.get(entry.height)!),
      events: eventsOf(entry, texts.versionOf(entry), delivery, set.channels, texts.shownOf(entry)),
    });
  }
  const { end, hash, completeHeight, isWhole } = part;
  const isEnded = isWhole && missing.size > 0;
  // A collection that has gone away meanwhile has its removal behind this window, and one may have become private.
  const dependsOnCatalog = isEnded || (!set.mayReadPrivate && changes.length > 0);
  if (dependsOnCatalog && (await readCatalogRevision(fast, app.number)) !== head.catalogRevision) {
    if (isEnded || !(await areStillPublic(fast, app, collections))) return nothingOf(head, refused);
  }
  const refusals = isEnded ? new Map([...missing, ...refused]) : refused;
  return { changes, end, hash, completeHeight, isWhole, refusals };
}

/** A window without changes: what is behind its head has to be read again, unless it is refused. */
function nothingOf({ position, hash }: FeedHead, refusals: FeedWindow['refusals']): FeedWindow {
  return { changes: [], end: position, hash, completeHeight: position.height - 1n, isWhole: false, refusals };
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
