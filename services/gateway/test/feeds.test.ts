import type { ServerResponse } from 'node:http';
import { PassThrough } from 'node:stream';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { ServiceError } from '@granary/shared/errors';
import type { FeedChannel } from '@granary/shared/gen/granary/data/v1/FeedChannel';
import type { ReadChangesRequest } from '@granary/shared/gen/granary/data/v1/ReadChangesRequest';
import type { ReadChangesResponse } from '@granary/shared/gen/granary/data/v1/ReadChangesResponse';
import { createLogger } from '@granary/shared/logger';
import type { Call } from '@granary/shared/rpc/types';
import { eventually } from '@granary/testing/eventually';
import { KeyWatch } from '../src/clients/key-watch';
import { Feeds } from '../src/feed/feeds';
import { positionOf } from '../src/feed/position';
import type { FeedRequest } from '../src/feed/subscription';

const settings = {
  FEED_STREAMS: 10,
  FEED_STREAMS_PER_APP: 10,
  FEED_STREAMS_PER_KEY: 10,
  FEED_STREAMS_PER_CLIENT: 10,
  FEED_STREAM_AGE_MS: 600_000,
  IDLE_TIMEOUT_MS: 600_000,
};

const channel: FeedChannel = {
  collections: ['notes'],
  find: Buffer.alloc(0),
  select: Buffer.alloc(0),
  omitsDocuments: false,
  onlyLatest: false,
  mayReadPrivate: true,
  isDelegated: false,
  location: '',
  view: '',
};

/** A read of the live feed that waits for changes, until the test ends it. */
interface LiveRead {
  request: ReadChangesRequest;
  resolve: (response: ReadChangesResponse) => void;
  reject: (error: ServiceError) => void;
}

/** A data service with one change at each height. Reads without a wait are answered at once. */
class DataDouble {
  head = 0;
  catalogRevision = '1';
  refusals: ReadChangesResponse['refusals'] = [];
  validKeys: string[] = ['key'];
  readonly liveReads: LiveRead[] = [];

  readChanges = (request: ReadChangesRequest, call: Call): Promise<ReadChangesResponse> => {
    if (request.waitMs === 0) return Promise.resolve(this.behind(request.since));
    if (request.channels.length === 0) {
      return Promise.reject(
        new ServiceError('FAILED_PRECONDITION', 'CHANNELS_UNKNOWN', 'The channels have to be sent'),
      );
    }
    return new Promise((resolve, reject) => {
      this.liveReads.push({ request, resolve, reject });
      call.signal.addEventListener('abort', () => reject(new ServiceError('CANCELLED', 'CANCELLED', 'Cancelled')));
    });
  };

  findValidKeys = (): Promise<{ keyIds: string[] }> => Promise.resolve({ keyIds: this.validKeys });

  behind(since: string): ReadChangesResponse {
    const { height } = since === 'now' ? { height: this.head } : positionOf(since);
    const heights = Array.from({ length: this.head - height }, (_, index) => height + 1 + index);
    return {
      cursor: `${this.head}.1-00000000`,
      head: String(this.head),
      more: false,
      completeHeight: String(this.head),
      catalogRevision: this.catalogRevision,
      refusals: this.refusals,
      readMs: 0,
      changes: heights.map((each) => ({
        height: String(each),
        place: 0,
        cursor: `${each}.1-00000000`,
        events: [{ kind: 'put', members: Buffer.from(`"id":"n${each}"`), channels: [0] }],
      })),
    };
  }

  /** The latest read that waits. */
  async waiting(count: number): Promise<LiveRead> {
    await eventually(() => this.liveReads.length >= count);
    return this.liveReads[count - 1]!;
  }
}

/** A window whose changes are for the first two channels. */
const toAll = ({ changes, ...window }: ReadChangesResponse): ReadChangesResponse => ({
  ...window,
  changes: changes.map(({ events, ...change }) => ({
    ...change,
    events: events.map((event) => ({ ...event, channels: [0, 1] })),
  })),
});

const failure = () => new ServiceError('INTERNAL', 'INTERNAL', 'Internal error');

let data: DataDouble;
let feeds: Feeds;
beforeEach(() => {
  data = new DataDouble();
  const log = createLogger('gateway', 'silent');
  feeds = new Feeds(data, settings, new KeyWatch(data, log), log);
});
afterEach(() => feeds.stop());

function requestOf(since: string, subscribed: Partial<FeedChannel> = {}): FeedRequest {
  return {
    appId: 'app',
    since,
    subscriptions: [{ name: undefined, channel: { ...channel, ...subscribed } }] as FeedRequest['subscriptions'],
    keyId: 'key',
    isByToken: false,
    expiresAtMs: undefined,
    clientAddress: '127.0.0.1',
  };
}

function open(request: FeedRequest) {
  const socket = new PassThrough();
  let text = '';
  let hasBegun = false;
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const outgoing = socket as unknown as ServerResponse;
  const client = new Cancellation();
  const ended = feeds.stream(request, 'ndjson', outgoing, 'test', client, () => (hasBegun = true));
  ended.catch(() => {});
  const events = (kind: string) =>
    text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ event }) => event === kind);
  return { socket, ended, events, hasBegun: () => hasBegun, cancel: () => client.abort() };
}

test('a stream that is ahead of a live feed which fails is sent nothing twice', async () => {
  const first = open(requestOf('now'));
  const read = await data.waiting(1);
  data.head = 1;
  const second = open(requestOf('0.0-00000000'));
  await eventually(() => second.events('put').length === 1);
  // It has joined by then: nothing is waited for in between.
  await new Promise(setImmediate);
  read.reject(failure());
  for (const count of [2, 3]) (await data.waiting(count)).reject(failure());
  await eventually(() => first.events('put').length === 1);
  await data.waiting(4);
  expect(second.events('put').map(({ id }) => id)).toEqual(['n1']);
});

test('a position that is gone ends the streams that were there, and one that began behind it goes on', async () => {
  const [noted, viewed] = [{}, { collections: ['sums'], view: 'sums' }];
  const first = open(requestOf('now', noted));
  const stale = open(requestOf('now', viewed));
  await data.waiting(1);
  data.head = 1;
  const second = open(requestOf('0.0-00000000', viewed));
  await eventually(() => second.events('put').length === 1);
  const detailsJson = Buffer.from('{}');
  const error = { status: 'FAILED_PRECONDITION', reason: 'CURSOR_GONE', message: 'gone', detailsJson };
  const nothing = { ...data.behind('1.1-00000000'), cursor: '0.1-00000000', completeHeight: '-1' };
  const isOf = (channels: readonly FeedChannel[], view: string) => channels.some((each) => each.view === view);
  // The position of the live feed is gone for the view, until it has come to the first change.
  const answering = setInterval(() => {
    for (const { request, resolve } of data.liveReads.splice(0)) {
      const refused = request.channels.findIndex(({ view }) => view === 'sums');
      const { height } = positionOf(request.since);
      if (height === 0 && refused >= 0) resolve({ ...nothing, refusals: [{ channel: refused, error }] });
      else if (height === 0) resolve(data.behind(request.since));
      else if (isOf(request.channels, 'sums') && data.head === 2) resolve(toAll(data.behind(request.since)));
      else data.liveReads.push({ request, resolve, reject: () => {} });
    }
  }, 5);
  await eventually(() => stale.events('reset').length === 1 && first.events('put').length === 1, 5_000);
  data.head = 2;
  await eventually(() => second.events('put').length === 2, 5_000).finally(() => clearInterval(answering));
  expect([second.events('reset'), second.events('end')]).toEqual([[], []]);
  expect(second.events('put').map(({ id }) => id)).toEqual(['n1', 'n2']);
  expect(stale.events('put')).toEqual([]);
});

test('a stream learns of a change of the catalog once, whether it is live or reads on its own', async () => {
  const told = ({ events }: ReturnType<typeof open>) => events('catalog').map(({ revision }) => revision);
  const live = open(requestOf('now'));
  (await data.waiting(1)).resolve({ ...data.behind('now'), catalogRevision: '2' });
  await eventually(() => told(live).length === 1);
  // These are opened at the revision before, and join a feed that knows the new one.
  const second = open(requestOf('now'));
  const byToken = open(requestOf('now', { isDelegated: true }));
  await eventually(() => told(second).length === 1);
  // After failures both read on their own.
  data.catalogRevision = '3';
  const failing = setInterval(() => data.liveReads.forEach(({ reject }) => reject(failure())), 5);
  await eventually(() => told(live).length === 2 && told(second).length === 2);
  clearInterval(failing);
  await eventually(() => byToken.events('progress').length >= 1);
  expect([told(live), told(second), told(byToken)]).toEqual([[2, 3], [2, 3], []]);
});

test('a stream tells no progress within a commit of which its client may have a part', async () => {
  data.head = 2;
  const pages = [
    { cursor: '2.5-00000000', completeHeight: '1', more: true },
    { cursor: '2.7-00000000', completeHeight: '1', more: true },
    { cursor: '2.9-00000000', completeHeight: '2', more: false },
  ];
  const { readChanges } = data;
  data.readChanges = (request, call) => {
    const page = request.waitMs === 0 ? pages.shift() : undefined;
    return page ? Promise.resolve({ ...data.behind('now'), ...page, changes: [] }) : readChanges(request, call);
  };
  const { events } = open(requestOf('2.3-00000000'));
  await data.waiting(1);
  expect(events('progress')).toEqual([{ event: 'progress', cursor: '2.9-00000000', head: 2 }]);
});

test('a stream whose client has gone ends, whatever it waits for', async () => {
  open(requestOf('now'));
  await data.waiting(1);
  // The data service does not heed that the request has been cancelled.
  data.readChanges = (request) =>
    request.waitMs === 0 ? Promise.resolve(data.behind(request.since)) : new Promise(() => {});
  const other = open(requestOf('now', { omitsDocuments: true }));
  await eventually(() => other.events('progress').length === 1);
  const third = open(requestOf('now', { onlyLatest: true }));
  await eventually(() => third.events('progress').length === 1);
  third.socket.destroy();
  await third.ended;
});

test('a key that is revoked while a stream is opened reads nothing', async () => {
  data.head = 1;
  data.validKeys = [];
  const { ended, hasBegun, socket } = open(requestOf('0.0-00000000'));
  await expect(ended).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  expect([hasBegun(), socket.writableEnded, socket.writableLength]).toEqual([false, false, 0]);
});

test('a page has the changes before a refusal, and the next one is refused', async () => {
  data.head = 1;
  const error = {
    status: 'NOT_FOUND',
    reason: 'COLLECTION_NOT_FOUND',
    message: 'gone',
    detailsJson: Buffer.from('{}'),
  };
  data.refusals = [{ channel: 0, error }];
  const page = (since: string) => feeds.page(requestOf(since), { limit: 10, waitMs: 0 }, 'test', new Cancellation());
  expect((await page('0.0-00000000')).changes).toHaveLength(1);
  await expect(page('1.1-00000000')).rejects.toMatchObject({ reason: 'COLLECTION_NOT_FOUND' });
});

test('a page that waits from now on misses nothing between its first look and the wait', async () => {
  data.head = 1;
  const page = feeds.page(requestOf('now'), { limit: 10, waitMs: 60_000 }, 'test', new Cancellation());
  await eventually(() => data.liveReads.length === 1);
  const [read] = data.liveReads as [LiveRead];
  expect(read.request.since).toBe('1.1-00000000');
  data.head = 2;
  read.resolve(data.behind(read.request.since));
  expect((await page).changes.map(({ height }) => height)).toEqual(['2']);
});

test('streams and waiting pages that begin at once take turns, two of an app at a time', async () => {
  let [reading, most, reads] = [0, 0, 0];
  const { readChanges } = data;
  data.readChanges = async (request, call) => {
    if (request.waitMs > 0) return readChanges(request, call);
    reading += 1;
    reads += 1;
    most = Math.max(most, reading);
    await new Promise((resolve) => setTimeout(resolve, 5));
    reading -= 1;
    return readChanges(request, call);
  };
  const page = () => feeds.page(requestOf('now'), { limit: 10, waitMs: 1 }, 'test', new Cancellation()).catch(() => {});
  const streams = Array.from({ length: 5 }, () => open(requestOf('now')));
  const pages = Array.from({ length: 5 }, page);
  await eventually(() => streams.every(({ hasBegun }) => hasBegun()));
  await eventually(() => reads >= 10);
  expect(most).toBe(2);
  feeds.stop();
  await Promise.all([...pages, ...streams.map(({ ended }) => ended)]);
});

describe('while reads take long', () => {
  const waiting: Array<() => void> = [];
  beforeEach(() => {
    const { readChanges } = data;
    data.readChanges = (request, call) => {
      if (request.waitMs > 0) return readChanges(request, call);
      return new Promise((resolve, reject) => {
        waiting.push(() => resolve(data.behind(request.since)));
        call.signal.addEventListener('abort', () => reject(new ServiceError('CANCELLED', 'CANCELLED', 'Cancelled')));
      });
    };
  });
  afterEach(() => void waiting.splice(0));

  test('the strangers of an app wait for each other, and its keys do not wait for them', async () => {
    const stranger = { ...requestOf('now', { mayReadPrivate: false }), keyId: undefined };
    const strangers = [open(stranger), open(stranger), open(stranger)];
    const reader = open(requestOf('now'));
    await eventually(() => waiting.length === 2);
    for (const answer of waiting.splice(0)) answer();
    await eventually(() => reader.hasBegun());
    expect(strangers.filter(({ hasBegun }) => hasBegun())).toHaveLength(1);
  });

  test('a stream whose client goes while it waits for its turn leaves the turn to others', async () => {
    const first = [open(requestOf('now')), open(requestOf('now'))];
    const gone = open(requestOf('now'));
    const last = open(requestOf('now'));
    await eventually(() => waiting.length === 2);
    gone.cancel();
    await expect(gone.ended).rejects.toMatchObject({ code: 'CANCELLED' });
    for (const answer of waiting.splice(0)) answer();
    await eventually(() => first.every(({ hasBegun }) => hasBegun()) && waiting.length === 1);
    waiting[0]!();
    await eventually(() => last.hasBegun());
  });

  test('a stop refuses the streams and pages that wait for their turns', async () => {
    const streams = [open(requestOf('now')), open(requestOf('now')), open(requestOf('now'))];
    const page = feeds.page(requestOf('now'), { limit: 1, waitMs: 60_000 }, 'test', new Cancellation());
    await eventually(() => waiting.length === 2);
    feeds.stop();
    for (const ended of [...streams.map((stream) => stream.ended), page]) {
      await expect(ended).rejects.toMatchObject({ reason: 'OVERLOADED' });
    }
  });
});
