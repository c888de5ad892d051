import { limitMs } from '@granary/testing/speed';
import { eventually } from '@granary/testing/eventually';
import { FeedClient, type FeedOptions } from '../support/feed-client';
import { newApp, send, transports, type TestApp } from '../support/granary';
import { startGateway, startGranary, type MeasuredGranary } from '../support/own-granary';

describe.each(transports)('limits and ends of change feeds (%s)', (transport) => {
  let granary: MeasuredGranary;
  let app: TestApp;
  let path: string;
  const clients: FeedClient[] = [];
  beforeAll(async () => {
    granary = await startGateway(transport, {
      FEED_STREAMS: '12',
      FEED_STREAMS_PER_APP: '6',
      FEED_STREAMS_PER_KEY: '4',
      FEED_STREAMS_PER_CLIENT: '2',
      // Long enough for slow machines: for feeds to outlive a test, and for a page to answer before it counts as idle.
      FEED_STREAM_AGE_MS: '30000',
      IDLE_TIMEOUT_MS: '10000',
    });
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/changes`;
    await app.store('books', [{ id: 'first' }]);
  });
  afterEach(async () => {
    for (const client of clients) client.close();
    for (const client of clients.splice(0)) await client.closed();
  });

  const open = async (query = '', options: Partial<FeedOptions> = {}): Promise<FeedClient> => {
    const client = await FeedClient.open({ url: granary.url, path: path + query, key: app.key, ...options });
    clients.push(client);
    return client;
  };
  const metric = async (name: string): Promise<number> => {
    for (const address of granary.metricsAddresses) {
      const text = await (await fetch(`http://${address}/metrics`)).text();
      const line = text.split('\n').find((one) => one.startsWith(`${name} `));
      if (line !== undefined) return Number(line.split(' ')[1]);
    }
    throw new Error(`there is no ${name}`);
  };

  test('beyond the feeds of a key, of an address and of an app there is 429, which names the limit; an end makes room', async () => {
    const byKey = [await open(), await open(), await open(), await open()];
    expect(byKey.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const fifth = await open();
    expect([fifth.status, JSON.parse(fifth.rest)]).toEqual([
      429,
      expect.objectContaining({ code: 'TOO_MANY_STREAMS', details: { limit: 'feeds of a key', max: 4 } }),
    ]);
    expect(fifth.headers['retry-after']).toBe('1');
    expect((await send(granary.url, 'GET', `${path}?wait=1`, { key: app.key })).status).toBe(429);
    // A page that does not wait holds nothing.
    expect((await send(granary.url, 'GET', path, { key: app.key })).status).toBe(200);
    const nobody = { key: undefined };
    const anonymous = [await open('?collection=books', nobody), await open('?collection=books', nobody)];
    expect(anonymous.map(({ status }) => status)).toEqual([200, 200]);
    const full = await open('?collection=books', nobody);
    expect(JSON.parse(full.rest)).toMatchObject({ details: { limit: 'feeds of an app', max: 6 } });
    byKey[0]!.close();
    await byKey[0]!.closed();
    await eventually(async () =>
      (await open('?collection=books', nobody)).rest.includes('of an address without a key'),
    );
    await eventually(async () => (await open()).status === 200);
    expect(await metric('granary_feed_streams')).toBe(6);
    expect(await metric('granary_feed_streams_limit')).toBe(12);
  });

  test('a client that does not read slows nobody and holds little, and gets everything once it reads', async () => {
    const text = 'x'.repeat(20_000);
    const [slow, quick] = [await open('?since=0'), await open('?since=0')];
    await Promise.all([slow.changed(1), quick.changed(1)]);
    const before = await metric('granary_feed_fallen_behind_total');
    slow.pause();
    const count = 500;
    for (let offset = 0; offset < count; offset += 10) {
      await app.store(
        'books',
        Array.from({ length: 10 }, (_, index) => ({ id: `b${offset + index}`, text })),
      );
    }
    await quick.changed(1 + count);
    await eventually(async () => (await metric('granary_feed_fallen_behind_total')) > before);
    slow.resume();
    const [told, whole] = [await slow.changed(1 + count), quick.changes];
    expect(told).toEqual(whole);
  });

  test('a feed without changes lives longer than a connection that is idle, and ends at its age with a time to come again', async () => {
    const feed = await open();
    const waiting = send<{ changes: unknown[] }>(granary.url, 'GET', `${path}?wait=60`, { key: app.key });
    const end = await feed.told('end');
    expect(end.data).toMatchObject({ code: 'STREAM_AGE', retry: true });
    expect(end.data['retry_after_ms']).toBeGreaterThanOrEqual(500);
    await feed.closed();
    expect((await waiting).body.changes).toEqual([]);
  });

  test('of a revoked key nothing comes a second later, while others go on', async () => {
    let isWriting = true;
    let written = 0;
    const writing = (async () => {
      while (isWriting) await app.store('books', [{ id: `n${(written += 1)}` }]);
    })();
    const other = await open();
    for (let round = 0; round < 5; round += 1) {
      const made = await app.call<{ key_id: string; app_key: string }>('POST', `/api/apps/${app.appId}/keys`, {
        name: `reader ${round}`,
        permissions: ['Read'],
      });
      const feed = await open('', { key: made.body.app_key });
      await feed.changed(1);
      await app.call('DELETE', `/api/apps/${app.appId}/keys/${made.body.key_id}`);
      const revokedAtMs = performance.now();
      await feed.closed();
      expect(feed.events.at(-1)).toMatchObject({ event: 'end', data: { code: 'UNAUTHENTICATED', retry: false } });
      expect(feed.lastByteAtMs - revokedAtMs).toBeLessThan(limitMs(1_000));
    }
    isWriting = false;
    await writing;
    await eventually(() => other.changes.at(-1)?.data.id === `n${written}`);
    const heights = other.changes.map(({ data }) => data.height!);
    expect(heights).toEqual(heights.map((_, index) => heights[0]! + index));
  });
});

test('a restart ends feeds with a time to come again, and a cursor goes on after it', async () => {
  const granary = await startGranary('direct');
  try {
    const app = await newApp(granary);
    const path = `/api/apps/${app.appId}/changes`;
    await app.store('books', [{ id: 'a' }]);
    const feed = await FeedClient.open({ url: granary.url, path: `${path}?since=0`, key: app.key });
    const { id: cursor } = (await feed.changed(1))[0]!;
    await granary.restart();
    expect((await feed.told('end')).data).toMatchObject({ code: 'SHUTTING_DOWN', retry: true });
    await send(granary.url, 'POST', '/store', {
      key: app.key,
      body: { root: `${app.appId}::books`, data: [{ id: 'b' }] },
    });
    const again = await FeedClient.open({ url: granary.url, path: `${path}?since=${cursor}`, key: app.key });
    expect((await again.changed(1)).map(({ data }) => data.id)).toEqual(['b']);
    again.close();
  } finally {
    await granary.stop();
  }
});
