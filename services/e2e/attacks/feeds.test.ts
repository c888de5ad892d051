import { eventually } from '@granary/testing/eventually';
import { FeedClient } from '../support/feed-client';
import type { TestApp } from '../support/granary';
import { expectUnharmed, openArena, type Arena } from './arena';
import { clients, flood, over, type Flood } from './sockets';

const mebibyte = 1024 ** 2;
const stalledReaders = 500;
/** The memory that the feed of a client which does not read may hold, see `unsentBytesMax` of the gateway. */
const heldBytesMax = 256 * 1024;
const reconnects = 10_000;
const apps = 10;
/** As many feeds as an instance serves, see FEED_STREAMS. */
const feedsMax = 4_096;
const servedWithinMs = 120_000;
/** The address of a connection: one of the loopback interface that is not the victim's. */
const from = (connection: number) => `127.0.0.${2 + (connection % 100)}`;
/** As many filters of different SQL as a collection may have, and as many feeds as a key. */
const shapes = 64;
const feedsOfKey = 256;

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());

const feedHead = (path: string, ...headers: string[]) =>
  [`GET ${path} HTTP/1.1`, 'Host: x', 'Accept: text/event-stream', ...headers, '', ''].join('\r\n');

/** A token for the changes of `documents`. */
async function tokenOf(app: TestApp): Promise<string> {
  const body = { subscriptions: [{ as: 'all', collection: 'documents' }], ttl_seconds: 3_600 };
  const made = await app.call<{ token: string }>('POST', `/api/apps/${app.appId}/feed-tokens`, body);
  expect(made.status).toBe(201);
  return made.body.token;
}

/** Stores documents, a few at a time, until the signal aborts; how many. */
async function write(app: TestApp, signal: AbortSignal, text: string): Promise<number> {
  let count = 0;
  while (!signal.aborted) {
    await app.store(
      'documents',
      Array.from({ length: 5 }, () => ({ id: `w${(count += 1)}`, n: count, text })),
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return count;
}

/**
 * Floods until the signal aborts and `isDone`. Resolves, once `meanwhile` has ended too, with what that gives. The
 * statuses of all answers go to `statuses`.
 */
async function floodUntil<T = void>(
  readers: Flood,
  signal: AbortSignal,
  statuses: number[],
  { isDone, meanwhile }: { isDone: () => boolean; meanwhile?: Promise<T> },
): Promise<T> {
  const finished = new AbortController();
  const coming = flood(readers, finished.signal, (status) => void statuses.push(status));
  try {
    await over(signal);
    await eventually(isDone, servedWithinMs, { title: 'the answers that all of them wait for' });
    return (await meanwhile) as T;
  } finally {
    finished.abort();
    await coming;
  }
}

test('500 readers of feeds who do not read hold little and slow nobody, and one who reads gets everything', async () => {
  const app = await arena.newApp();
  const text = 'x'.repeat(20_000);
  await app.store('documents', [{ id: 'first' }]);
  const token = await tokenOf(app);
  const path = `/api/apps/${app.appId}/changes`;
  const bytes = () => feedHead(`${path}?since=0&token=${token}`);
  const statuses: number[] = [];
  const countOf = (status: number) => statuses.filter((one) => one === status).length;
  let written = 0;
  const reader = await FeedClient.open({ url: arena.url, path, key: app.key });
  await expectUnharmed(arena, {
    run: async (signal) => {
      const { url } = arena;
      const readers: Flood = { url, connections: stalledReaders, bytes, reads: 'head', from };
      written = await floodUntil(readers, signal, statuses, {
        meanwhile: write(app, signal, text),
        isDone: () => countOf(200) >= stalledReaders,
      });
    },
    memoryBytesMax: stalledReaders * heldBytesMax + 100 * mebibyte,
  });
  const told = await reader.changed(written);
  expect(told.map(({ data }) => data.id)).toEqual(Array.from({ length: written }, (_, n) => `w${n + 1}`));
  reader.close();
});

test('10,000 readers who come back at once are served as far as there is room, and harm nobody', async () => {
  const owners = await Promise.all(Array.from({ length: apps }, () => arena.newApp()));
  const requests = await Promise.all(
    owners.map(async (app) => {
      await app.store('documents', [{ id: 'first' }]);
      const { body } = await app.call<{ cursor: string }>('GET', `/api/apps/${app.appId}/changes?since=0`);
      await app.store('documents', [{ id: 'missed' }]);
      const token = await tokenOf(app);
      return feedHead(`/api/apps/${app.appId}/changes?token=${token}`, `Last-Event-ID: ${body.cursor}`);
    }),
  );
  const statuses: number[] = [];
  const bytes = (connection: number) => requests[connection % apps]!;
  const countOf = (status: number) => statuses.filter((one) => one === status).length;
  await expectUnharmed(arena, {
    // Each waits for its turn.
    run: (signal) =>
      floodUntil({ url: arena.url, connections: reconnects, bytes, reads: true, from }, signal, statuses, {
        isDone: () => countOf(200) >= feedsMax && statuses.includes(429),
      }),
  });
  // They are more than the connections there may be, and those beyond get 503.
  for (const status of new Set(statuses)) expect([200, 429, 503]).toContain(status);
  // Once they have gone, there is room again, and what was missed is there.
  const [app] = owners as [TestApp];
  const path = `/api/apps/${app.appId}/changes?since=1`;
  const reader = await eventually(async () => {
    const client = await FeedClient.open({ url: arena.url, path, key: app.key });
    if (client.status === 200) return client;
    client.close();
    return undefined;
  });
  expect((await reader.changed(1)).map(({ data }) => data.id)).toEqual(['missed']);
  reader.close();
});

test('the dearest filters of as many feeds as a key may have cost others little', async () => {
  const app = await arena.newApp();
  const text = 'abcdefgh '.repeat(20_000);
  // Each shape compares every word of the text with constants that do not occur.
  const findOf = (feed: number) => ({
    or: Array.from({ length: 1 + (feed % shapes) }, (_, n) => ({
      text: { containsCaseInsensitive: `none ${feed} ${n}` },
    })),
  });
  await app.store('documents', [{ id: 'first', n: 0, text }]);
  const path = `/api/apps/${app.appId}/changes?collection=documents&find=`;
  const headers = { 'x-app-key': app.key, accept: 'application/x-ndjson' };
  let feeds = 0;
  const next = () => ({ path: path + encodeURIComponent(JSON.stringify(findOf((feeds += 1)))), headers });
  let statuses = new Map<number, number>();
  let written = 0;
  await expectUnharmed(arena, {
    run: async (signal) => {
      const following = clients(arena.url, feedsOfKey, next, signal);
      written = await write(app, signal, text);
      statuses = await following;
    },
  });
  expect(written).toBeGreaterThan(0);
  expect([...statuses.keys()]).toContain(200);
  for (const status of statuses.keys()) expect([200, 429, 503]).toContain(status);
});
