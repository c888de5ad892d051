import { newCall } from '@granary/shared/rpc/types';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { open, serve, stops, wishes } from './support/mux-fixture';

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

test('calls whose requests wait for more bytes than allowed are refused, and those that wait are answered', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const { client, counts } = open(server.address, { mux: { waitingBytesMax: 1_000_000 } });
  // 60 KB each: the windows of two streams take 16 MiB, then the queue its megabyte.
  const ask = () =>
    client.listDocuments(
      { appId: '', body: Buffer.from('{"held":true}'.padEnd(60_000)) },
      newCall('test', limitMs(20_000)),
    );
  const outcomes: unknown[] = [];
  const asked = Array.from({ length: 500 }, () => ask().catch((error: unknown) => outcomes.push(error)));
  await eventually(() => outcomes.length > 0 && service.held.size > 0);
  expect(outcomes[0]).toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'TOO_MANY_REQUESTS' });
  expect(counts().waiting * 60_000).toBeLessThanOrEqual(1_060_000);
  const answered = 500 - outcomes.length;
  let done = false;
  const all = Promise.all(asked).then(() => (done = true));
  await eventually(() => {
    service.releaseAll();
    return done;
  });
  await all;
  expect(service.seen).toHaveLength(answered);
});
