import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';
import { LRUCache } from 'lru-cache';
import type { Projection } from '../json/project';
import { isAll, type Condition } from '../query/language/condition';
import { parseQuery } from '../query/language/filter';
import { parseSelect, readJsonText } from '../query/language/paging';
import { invalidQuery } from '../query/language/query-error';
import { unstableOperator } from '../query/language/unstable-operator';

/** The changes that subscribers with the same filter and rights get. */
export interface Channel {
  /** Names of collections; undefined: all of the app. None where a view is followed. */
  collections: readonly string[] | undefined;
  /** The name of the view whose rows are followed. */
  view: string | undefined;
  find: Condition;
  projection: Projection;
  hasDocuments: boolean;
  /** Each document once in a window, in its newest version. */
  onlyLatest: boolean;
  mayReadPrivate: boolean;
  /** Whether the subscriber may see no more than the filter lets through, not even the ids of other documents. */
  isDelegated: boolean;
  /** Tells how documents are shown from other ways: channels with the same text get the same bytes. */
  shownAs: string;
}

/** Memory for parsed channels, which gateways send again whenever another one is added. */
const cacheBytesMax = 64 * 1024 * 1024;
/** A parsed filter takes about so many times the bytes of its text. */
const parsedFactor = 5;
const parsedChannels = new LRUCache<string, Channel>({
  maxSize: cacheBytesMax,
  sizeCalculation: (_, key) => 1_000 + parsedFactor * key.length,
});

/** Parses a channel. Throws INVALID_QUERY and LIMIT_EXCEEDED with the place in its request. */
export function parseChannel(message: FeedChannel): Channel {
  const key = keyOf(message);
  const cachedChannel = parsedChannels.get(key);
  if (cachedChannel) return cachedChannel;
  const { collections, location, view } = message;
  const within = (member: string): string => (location === '' ? member : `${location}.${member}`);
  const find = parseFilter(message.find, within('find'));
  if (!isAll(find) && (view !== '' || collections.length !== 1)) {
    throw invalidQuery(within('find'), 'needs one collection, whose documents it filters');
  }
  const select = message.select.length === 0 ? null : readJsonText(message.select, within('select'));
  const channel: Channel = {
    collections: view !== '' ? [] : collections.length === 0 ? undefined : collections,
    view: view === '' ? undefined : view,
    find,
    projection: parseSelect(select, within('select')),
    hasDocuments: !message.omitsDocuments,
    onlyLatest: message.onlyLatest,
    mayReadPrivate: message.mayReadPrivate,
    isDelegated: message.isDelegated,
    shownAs: '',
  };
  channel.shownAs = waysOf(channel, message.select);
  parsedChannels.set(key, channel);
  return channel;
}

function waysOf(channel: Channel, select: Buffer): string {
  const documents = channel.hasDocuments ? `${channel.mayReadPrivate} ${select.toString()}` : 'ids';
  return `${hidesHash(channel)} ${documents}`;
}

/** Whether a channel may not know the hash of a text: what is left out of the text could be guessed by it. */
export const hidesHash = ({ isDelegated, projection, hasDocuments }: Channel): boolean =>
  isDelegated && (projection !== 'all' || !hasDocuments);

/** Whether a channel may know the ids of the rows of a view, which its text may leave out. */
export const mayKnowRowIds = ({ mayReadPrivate, isDelegated }: Channel): boolean => mayReadPrivate && !isDelegated;

function keyOf({ collections, find, select, ...flags }: FeedChannel): string {
  const { view, omitsDocuments, onlyLatest, mayReadPrivate, isDelegated } = flags;
  const texts = [view, find.toString(), select.toString()];
  return JSON.stringify([collections, ...texts, omitsDocuments, onlyLatest, mayReadPrivate, isDelegated]);
}

function parseFilter(text: Buffer, location: string): Condition {
  const { find, joins } = parseQuery(text.length === 0 ? null : readJsonText(text, location), location);
  if (joins.length > 0) throw invalidQuery(location, 'cannot have joins: a change is of one document');
  const operator = unstableOperator(find);
  if (operator === undefined) return find;
  throw invalidQuery(location, `cannot use ${operator}, whose meaning changes without a write`);
}
