import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';
import { invalid } from '@granary/shared/errors';
import { readJson, toText, type JsonValue } from '@granary/shared/json/value';
import { namePattern, nameRule } from '@granary/shared/names';
import type { z } from 'zod';
import type { FeedFormat } from '../feed/feed-text';
import type { Subscription } from '../feed/subscription';
import { validate } from '../validation/validate';
import {
  collectionsMax,
  findBytesMax,
  subscribedSchema,
  type feedQuery,
  type Subscribed,
} from '../validation/feed-request';

const nothing = Buffer.alloc(0);

/** By what right a feed reads. */
export interface FeedRights {
  mayReadPrivate: boolean;
  isDelegated: boolean;
}

/** The subscription that the parameters of a URL are. Throws VALIDATION_FAILED. */
export function subscriptionOfQuery(query: z.output<typeof feedQuery>, rights: FeedRights): Subscription {
  assertAlone(query, 'The query string is not valid');
  const collections = query.collection === undefined ? [] : collectionNames(query.collection);
  const { view } = query;
  if (Buffer.byteLength(query.find ?? '') > findBytesMax) {
    throw invalid('The query string is not valid', { find: [`may have at most ${findBytesMax} bytes`] });
  }
  const channel: FeedChannel = {
    // What does not know views takes it for a collection that is not there.
    collections: view === undefined ? collections : [view],
    find: Buffer.from(query.find ?? ''),
    select: query.select === undefined ? nothing : Buffer.from(selectText(query.select)),
    omitsDocuments: query.documents === 'false',
    onlyLatest: query.mode === 'latest',
    location: '',
    view: view ?? '',
    ...rights,
  };
  return { name: undefined, channel };
}

/** Throws VALIDATION_FAILED where a view is named together with what only collections have. */
function assertAlone(
  {
    view,
    collection,
    find,
    mode,
  }: Pick<z.output<typeof feedQuery>, 'view' | 'collection' | 'mode'> & { find?: unknown },
  message: string,
  location = '',
): void {
  if (view === undefined) return;
  for (const [name, value] of Object.entries({ collection, find, mode })) {
    if (value !== undefined) throw invalid(message, { [`${location}${name}`]: ['is for collections, not for a view'] });
  }
}

function collectionNames(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  const wrong = names.find((name) => !namePattern.test(name));
  if (wrong !== undefined) throw invalid('The query string is not valid', { collection: [`${wrong} ${nameRule}`] });
  if (names.length > collectionsMax) {
    throw invalid('The query string is not valid', { collection: [`may name at most ${collectionsMax} collections`] });
  }
  return [...new Set(names)];
}

/** A list of fields, or JSON. */
export const selectText = (text: string): string => (/^\s*[{["]/.test(text) ? text : JSON.stringify(text));

/** The subscriptions of a body, whose filters keep the numbers that were sent. Throws VALIDATION_FAILED. */
export function subscriptionsOfBody(body: Subscribed, tree: JsonValue, rights: FeedRights): Subscription[] {
  const members = tree as Map<string, JsonValue>;
  const list = members.get('subscriptions') as Array<Map<string, JsonValue>>;
  const select = members.get('select');
  const names = new Set<string>();
  return body.subscriptions.map((subscription, index) => {
    const { as: name, collection, view, mode } = subscription;
    const location = `subscriptions[${index}]`;
    assertAlone(subscription, 'The body is not valid', `${location}.`);
    if (names.has(name)) throw invalid('The body is not valid', { [`${location}.as`]: ['is the name of another one'] });
    names.add(name);
    const find = list[index]!.get('find');
    const findText = Buffer.from(find === undefined ? '' : toText(find));
    if (findText.length > findBytesMax) {
      throw invalid('The body is not valid', { [`${location}.find`]: [`may have at most ${findBytesMax} bytes`] });
    }
    const channel: FeedChannel = {
      collections: [collection ?? view].filter((source) => source !== undefined),
      find: findText,
      select: select === undefined ? nothing : Buffer.from(toText(select)),
      omitsDocuments: body.documents === false,
      onlyLatest: mode === 'latest',
      location,
      view: view ?? '',
      ...rights,
    };
    return { name, channel };
  });
}

/** What a token says that this service has made: its JSON text and its subscriptions. */
export function subscriptionsOfToken(content: Buffer): Subscription[] {
  const tree = readJson(content, { maxDepth: 64 });
  const body = validate(subscribedSchema, JSON.parse(content.toString()), 'token');
  return subscriptionsOfBody(body, tree, { mayReadPrivate: true, isDelegated: true });
}

/** The text that a token says. */
export function tokenContent(tree: JsonValue): Buffer {
  const members = new Map(tree as Map<string, JsonValue>);
  members.delete('ttl_seconds');
  return Buffer.from(toText(members));
}

const formats: ReadonlyMap<string, FeedFormat> = new Map([
  ['text/event-stream', 'sse'],
  ['application/x-ndjson', 'ndjson'],
]);

/** The form of a stream that the client prefers to a JSON page; undefined: a page. */
export function formatOf(accept: string | undefined): FeedFormat | undefined {
  let best: { format: FeedFormat | undefined; quality: number } = { format: undefined, quality: 0 };
  for (const range of accept?.toLowerCase().split(',') ?? []) {
    const [type = '', ...parameters] = range.split(';').map((part) => part.trim());
    const format = formats.get(type);
    if (!format && type !== 'application/json') continue;
    const quality = Number(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? 1);
    if (quality > best.quality) best = { format, quality };
  }
  return best.format;
}
