import type { Request } from 'express';
import { z } from 'zod';
import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { invalid } from '@granary/shared/errors';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import { created, jsonBytes, type Answer } from '../http/answer';
import { contentTypes, pageText, type FeedFormat } from '../feed/feed-text';
import { eventsByTarget } from '../feed/stream-events';
import type { FeedRequest, Subscription } from '../feed/subscription';
import { mayReadPrivate, type AnyReader } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { requestContextOf } from '../pipeline/request-context';
import { bodyLimits, route, type RouteRequest } from '../pipeline/route';
import { writeHead } from '../pipeline/send-answer';
import { feedBody, feedQuery, feedTokenBody } from '../validation/feed-request';
import { exampleTime, objectSchema, timeSchema } from '../validation/schemas';
import {
  formatOf,
  subscriptionOfQuery,
  subscriptionsOfBody,
  subscriptionsOfToken,
  tokenContent,
} from './feed-requests';

const path = '/apps/{app_id}/changes';
const auth = { kind: 'reader', keyFirst: true } as const;
const tag = 'Commits';
const defaultLimit = 100;

const changeSchema = z.object({
  event: z
    .enum(['put', 'remove'])
    .describe('`put`: a new version, or a row of a view; `remove`: it is not there any more, or not for this filter'),
  cursor: z.string().optional().describe('Where a feed continues behind it'),
  as: z.array(z.string()).optional().describe('The subscriptions that it is for'),
  height: z.int().describe('The height of its commit'),
  place: z.int().optional().describe('Its place among the changes of that height; none for a row of a view'),
  collection: z.string().optional().describe('Name of the collection'),
  view: z.string().optional().describe('In its place: name of the view whose row it is'),
  id: z.string().optional().describe('Id of the document or the row; none where a whole collection was dropped'),
  id_sha256: z
    .string()
    .optional()
    .describe('In place of the id, for a token with a filter: what it erased may not have been its'),
  version: z.int().nullable().optional().describe('Its version; null where its text is not stored any more'),
  at: timeSchema.optional().describe('When it was committed; none for a row of a view'),
  sha256: z.string().nullable().optional().describe('SHA-256 of the stored text; null where it was not kept'),
  reason: z.enum(['deleted', 'filtered', 'erased', 'dropped']).optional().describe('Of a removal'),
  document: objectSchema
    .nullable()
    .optional()
    .describe('The document, or the row; null where its text is not stored any more'),
  last: z.literal(true).optional().describe('On the last change of a commit'),
});

const pageSchema = z.object({
  changes: z.array(changeSchema).describe('In the order of the commits'),
  cursor: z.string().describe('For `since` of the next request'),
  head: z.int().describe('Height of the last commit of the application'),
  more: z.boolean().describe('Whether there is more behind the page already'),
});

const example = {
  changes: [
    {
      event: 'put' as const,
      cursor: '2.1-4f4f4f4f',
      height: 2,
      place: 0,
      collection: 'notes',
      id: 'a',
      version: 2,
      at: exampleTime,
      sha256: '61'.repeat(32),
      document: { id: 'a', text: 'Hello again' },
      last: true as const,
    },
  ],
  cursor: '2.1-4f4f4f4f',
  head: 2,
  more: false,
};

const responses = {
  200: {
    description: 'A page of changes, or a stream of them, by `Accept`',
    schema: pageSchema,
    example,
  },
  400: {
    description: 'A parameter is not valid, or the height is beyond the last commit',
    codes: ['VALIDATION_FAILED', 'INVALID_QUERY', 'LIMIT_EXCEEDED', 'CURSOR_AHEAD', 'MALFORMED_JSON'],
  },
  401: { description: 'A private collection, without a key', codes: ['UNAUTHENTICATED'] },
  403: { description: 'Reads of the collection have a price', codes: ['FEED_NOT_SOLD'] },
  404: {
    description: 'There is no such application, collection or view',
    codes: ['APP_NOT_FOUND', 'COLLECTION_NOT_FOUND', 'VIEW_NOT_FOUND'],
  },
  409: { description: 'The changes of the view are not kept', codes: ['VIEW_HAS_NO_CHANGES'] },
  410: { description: 'The cursor is of another history, or of a view that was built again', codes: ['CURSOR_GONE'] },
  429: { description: 'Too many feeds are open', codes: ['TOO_MANY_STREAMS', 'TOO_MANY_FILTERS', 'TOO_MANY_REQUESTS'] },
} as const;

const headers = {
  Accept: {
    description:
      '`text/event-stream` for server-sent events, `application/x-ndjson` for a JSON object on each line, else a JSON page',
  },
  'Last-Event-ID': { description: 'The cursor of the last event, as `EventSource` sends it; in place of `since`' },
};

const about =
  'Each change exactly once by its height and place, from any moment of the past on, and then as it is committed. See ' +
  'docs/feed.md.';

export const changeRoutes = [
  route({
    method: 'GET',
    path,
    id: 'readChanges',
    summary: 'Follow the changes of an application',
    description: `${about} Without a key: of public collections without a price, which \`collection\` names.`,
    tag,
    auth,
    query: feedQuery,
    headers,
    responses,
    isEndless,
    handle: async (gateway, request) => {
      const { query } = request;
      const feed =
        query.token === undefined ? keyFeed(gateway, request) : await tokenFeed(gateway, request, query.token);
      return follow(gateway, request, feed, { wait: query.wait, limit: query.limit });
    },
  }),
  route({
    method: 'POST',
    path,
    id: 'readSubscribedChanges',
    summary: 'Follow the changes of an application by several subscriptions',
    description: `${about} As \`GET\`, for filters that are too long for a URL, and up to 32 subscriptions on one stream.`,
    tag,
    auth,
    headers,
    body: {
      kind: 'json',
      schema: feedBody,
      example: { since: '0', subscriptions: [{ as: 'starred', collection: 'notes', find: { stars: { gte: 3 } } }] },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses,
    isEndless,
    handle: async (gateway, request) => {
      const { body, jsonTree, caller, path: names } = request;
      const rights = { mayReadPrivate: mayReadPrivate(caller, names.app_id), isDelegated: false };
      const subscriptions = subscriptionsOfBody(body, jsonTree, rights);
      const feed = { ...ownerOf(gateway, request), since: sinceOf(request, body.since), subscriptions };
      return follow(gateway, request, feed, { wait: body.wait, limit: body.limit });
    },
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/feed-tokens',
    id: 'createFeedToken',
    summary: 'Make a token for a feed',
    description:
      'It reads what its subscriptions say and nothing else, as `?token=` of `GET /changes`, where a browser’s ' +
      '`EventSource` cannot send a key. It is kept nowhere, and ends with its time or with the key that made it.',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    body: {
      kind: 'json',
      schema: feedTokenBody,
      example: { subscriptions: [{ as: 'mine', collection: 'notes', find: { owner: 'ann' } }], ttl_seconds: 600 },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      201: {
        description: 'The token',
        schema: z.object({ token: z.string().describe('For `?token=`'), expires_at: timeSchema.describe('Its end') }),
        example: { token: 'ft_…', expires_at: exampleTime },
      },
      400: { description: 'A subscription is not valid', codes: ['INVALID_QUERY', 'LIMIT_EXCEEDED'] },
      404: {
        description: 'There is no such collection or view',
        codes: ['COLLECTION_NOT_FOUND', 'VIEW_NOT_FOUND'],
      },
      409: { description: 'The changes of the view are not kept', codes: ['VIEW_HAS_NO_CHANGES'] },
    },
    handle: async (gateway, request) => {
      const { clients, feeds } = gateway;
      const { body, jsonTree, caller, call, path: names } = request;
      const appId = names.app_id;
      if (caller.keyId === '') {
        throw invalid('A signature makes no feed token', {
          key: ['is needed: the token ends with the key that made it'],
        });
      }
      const subscriptions = subscriptionsOfBody(body, jsonTree, { mayReadPrivate: true, isDelegated: true });
      const feed = { ...ownerOf(gateway, request), since: 'now', subscriptions };
      // Whatever a feed would refuse is refused now.
      await feeds.page(feed, { limit: 1, waitMs: 0 }, call.requestId, call.signal);
      const { token, expiresAt } = await clients.data.createFeedToken(
        { appId, keyId: caller.keyId, content: tokenContent(jsonTree), ttlSeconds: body.ttl_seconds ?? 600 },
        call,
      );
      const answer = created(
        `/api/apps/${appId}/changes`,
        { token, expires_at: expiresAt },
        { 'Cache-Control': 'no-store' },
      );
      return { ...answer, isSecret: true };
    },
  }),
];

/** The format of a stream; undefined for a page. */
const streamFormatOf = ({ method, headers: { accept } }: Request): FeedFormat | undefined =>
  method === 'HEAD' ? undefined : formatOf(accept);

/** A stream takes no place among the requests: feeds have turns and limits of their own. */
function isEndless(incoming: Request): boolean {
  return streamFormatOf(incoming) !== undefined;
}

type FeedRouteRequest = RouteRequest<'app_id', AnyReader, z.output<typeof feedQuery>>;

/** A feed by the right of a key, or of anybody. */
function keyFeed(gateway: GatewayContext, request: FeedRouteRequest): FeedRequest {
  const rights = { mayReadPrivate: mayReadPrivate(request.caller, request.path.app_id), isDelegated: false };
  const subscriptions = [subscriptionOfQuery(request.query, rights)];
  return { ...ownerOf(gateway, request), since: sinceOf(request, request.query.since), subscriptions };
}

/** A feed by a token, which says everything but where it begins. Throws UNAUTHENTICATED, VALIDATION_FAILED. */
async function tokenFeed(gateway: GatewayContext, request: FeedRouteRequest, token: string): Promise<FeedRequest> {
  const { collection, view, find, select, documents, mode } = request.query;
  for (const [name, value] of Object.entries({ collection, view, find, select, documents, mode })) {
    if (value !== undefined) throw invalid('The query string is not valid', { [name]: ['is what the token says'] });
  }
  const { call, incoming } = request;
  const appId = request.path.app_id;
  const clientAddress = gateway.addressOf(incoming);
  const open = (signal: CancelSignal) => {
    const deadlineMs = Date.now() + gateway.config.REQUEST_TIMEOUT_MS;
    return gateway.clients.data.openFeedToken({ appId, token }, { ...call, deadlineMs, signal });
  };
  // A page has a place among the requests.
  const opened = await (isEndless(incoming)
    ? gateway.feeds.checkToken(clientAddress, open, call.signal)
    : open(call.signal));
  const subscriptions: Subscription[] = subscriptionsOfToken(opened.content);
  return {
    appId,
    since: sinceOf(request, request.query.since),
    subscriptions,
    keyId: opened.keyId,
    isByToken: true,
    expiresAtMs: Date.now() + opened.leftMs,
    clientAddress,
  };
}

function ownerOf(
  { addressOf }: GatewayContext,
  { path: names, caller, incoming }: Pick<RouteRequest<'app_id', AnyReader>, 'path' | 'caller' | 'incoming'>,
): Omit<FeedRequest, 'since' | 'subscriptions'> {
  const isReader = mayReadPrivate(caller, names.app_id);
  return {
    appId: names.app_id,
    keyId: isReader && caller.kind === 'app' && caller.keyId !== '' ? caller.keyId : undefined,
    isByToken: false,
    expiresAtMs: undefined,
    clientAddress: addressOf(incoming),
  };
}

function sinceOf({ incoming }: Pick<RouteRequest, 'incoming'>, since: string | undefined): string {
  const last = incoming.headers['last-event-id'];
  return typeof last === 'string' && last !== '' ? last : (since ?? 'now');
}

/** Answers with a page, or serves a stream; by Accept. */
async function follow(
  { feeds }: GatewayContext,
  request: Pick<RouteRequest, 'incoming' | 'outgoing' | 'call' | 'leaveLimits'>,
  feed: FeedRequest,
  { wait, limit }: { wait: number | undefined; limit: number | undefined },
): Promise<Answer | undefined> {
  const { incoming, outgoing, call } = request;
  const format = streamFormatOf(incoming);
  if (!format) {
    if ((wait ?? 0) > 0) request.leaveLimits();
    const options = { limit: limit ?? defaultLimit, waitMs: (wait ?? 0) * 1_000 };
    return pageAnswer(await feeds.page(feed, options, call.requestId, call.signal), feed.subscriptions);
  }
  for (const [name, value] of Object.entries({ wait, limit })) {
    if (value !== undefined)
      throw invalid('The request is not valid', { [name]: ['is for JSON pages, not for streams'] });
  }
  request.leaveLimits();
  await feeds.stream(feed, format, outgoing, call.requestId, call.signal, () => {
    requestContextOf(outgoing).streamedAtMs = performance.now();
    writeHead(outgoing, 200, {
      'Content-Type': contentTypes[format],
      'Cache-Control': 'no-store',
      // nginx would otherwise collect events before it passes them on.
      'X-Accel-Buffering': 'no',
    });
  });
  return undefined;
}

function pageAnswer(page: ReadChangesResponse, subscriptions: readonly Subscription[]): Answer {
  const routes = subscriptions.map(({ name }) => [{ target: page, name }]);
  const events = eventsByTarget(page, routes).get(page) ?? [];
  const rest = `],"cursor":"${page.cursor}","head":${page.head},"more":${page.more}}`;
  return jsonBytes(200, Buffer.concat([Buffer.from('{"changes":['), pageText(events), Buffer.from(rest)]), {
    'Cache-Control': 'no-store',
  });
}
