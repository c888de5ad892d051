import { constants, createServer, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { ServiceError } from '@granary/shared/errors';
import { startServer } from '@granary/shared/grpc/server';
import { newCall } from '@granary/shared/rpc/types';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { log, open, serve, stops, tcpProxy, wishes, type DataClient } from './support/mux-fixture';

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** An HTTP/2 server that does what it is given with every stream that a client opens. */
async function http2Server(onStream: (stream: ServerHttp2Stream) => void) {
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer();
  server.on('session', (session) => {
    sessions.add(session);
    session.on('error', () => {});
  });
  server.on('stream', (stream) => {
    stream.on('error', () => {});
    onStream(stream);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Tells clients to open their next stream elsewhere; what they opened meanwhile is refused. */
    goAway: () => {
      for (const session of sessions) if (!session.destroyed) session.goaway(constants.NGHTTP2_NO_ERROR);
    },
  };
}

const call = (timeoutMs = 20_000) => newCall('test', limitMs(timeoutMs));
const storeRequest: Parameters<DataClient['store']>[0] = {
  appId: '',
  appNumber: '1',
  ticketId: '',
  body: Buffer.from('{}'),
  idempotency: null,
};

test('calls that a server refuses to look at, reads and writes, are sent again until one does, and happen once', async () => {
  let refusals = 0;
  const refusing = await http2Server((stream) => {
    refusals++;
    stream.close(constants.NGHTTP2_REFUSED_STREAM);
  });
  const service = wishes();
  const server = await serve(service.implementation);
  const proxy = await tcpProxy(refusing.address);
  // None of them is marked as repeatable: a refused call has not happened.
  const multiplexed = open(proxy.address);
  const unary = open(proxy.address, { multiplexed: [] });
  const startedAtMs = Date.now();
  const answers = Promise.all(
    [multiplexed, unary].flatMap(({ ask, client }) => [ask({}), client.store(storeRequest, call())]),
  );
  // For longer than calls that cannot reach any server are sent again, and more often.
  await eventually(() => refusals > 60 && Date.now() - startedAtMs > 3_000);
  expect(service.seen).toEqual([]);
  proxy.lead(server.address);
  refusing.goAway();
  expect(await answers).toHaveLength(4);
  expect(service.seen).toHaveLength(4);
});

test('a call that is refused until its deadline fails as UNAVAILABLE', async () => {
  const refusing = await http2Server((stream) => stream.close(constants.NGHTTP2_REFUSED_STREAM));
  for (const multiplexed of [[], ['listDocuments']]) {
    const { ask } = open(refusing.address, { multiplexed });
    await expect(ask({}, call(1_000))).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  }
});

test.each(['NO_ERROR', 'INTERNAL_ERROR', 'CANCEL', 'PROTOCOL_ERROR'] as const)(
  'a call whose stream is reset with %s is UNAVAILABLE and sent again only where that is harmless',
  async (code) => {
    let resets = 0;
    const resetting = await http2Server((stream) => {
      resets++;
      stream.close(constants[`NGHTTP2_${code}`]);
    });
    const service = wishes();
    const server = await serve(service.implementation);
    const proxy = await tcpProxy(resetting.address);
    const { ask, client } = open(proxy.address, { multiplexed: [], repeatable: ['listDocuments'] });
    await expect(client.store(storeRequest, call())).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    expect(resets).toBe(1);
    const read = ask({});
    await eventually(() => resets > 2);
    proxy.lead(server.address);
    resetting.goAway();
    await read;
    expect(service.seen).toHaveLength(1);
  },
);

test('a call whose connection breaks is UNAVAILABLE and sent again only where that is harmless', async () => {
  let broken = 0;
  const breaking = await http2Server(() => {
    broken++;
    proxy.cut();
  });
  const service = wishes();
  const server = await serve(service.implementation);
  const proxy = await tcpProxy(breaking.address);
  const { ask, client } = open(proxy.address, { multiplexed: [], repeatable: ['listDocuments'] });
  await expect(client.store(storeRequest, call())).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  expect(broken).toBe(1);
  const read = ask({});
  await eventually(() => broken > 2);
  proxy.lead(server.address);
  await read;
  expect(service.seen).toHaveLength(1);
});

test('a call that outlives the drain of its service is UNAVAILABLE, or sent to another copy where that is harmless', async () => {
  const first = wishes();
  const server = await startServer('127.0.0.1:0', [first.implementation], log, undefined, { drainTimeoutMs: 100 });
  stops.push(() => server.stop());
  const second = wishes();
  const other = await serve(second.implementation);
  const proxy = await tcpProxy(server.address);
  const { ask, client } = open(proxy.address, { multiplexed: [], repeatable: ['listDocuments'] });
  const body = Buffer.from(JSON.stringify({ held: true }));
  const write = client.store({ ...storeRequest, body }, call());
  const failed = write.then(
    () => undefined,
    (error: ServiceError) => error,
  );
  const read = ask({ held: true });
  await eventually(() => first.held.size === 2);
  proxy.lead(other.address);
  await server.stop();
  expect(await failed).toMatchObject({ code: 'UNAVAILABLE' });
  await eventually(() => second.held.size === 1);
  second.releaseAll();
  await read;
});
