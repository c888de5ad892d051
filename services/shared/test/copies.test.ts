import { grpcAddress } from '@granary/shared/config';
import { startServer, type GrpcServer } from '@granary/shared/grpc/server';
import { newCall } from '@granary/shared/rpc/types';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { log, open, stops, multiplexed, tcpProxy, wishes } from './support/mux-fixture';

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** A copy of a service, which can be replaced by another at the same address. */
async function copy() {
  const service = wishes();
  const start = (listen: string) => startServer(listen, [service.implementation], log);
  let server = await start('127.0.0.1:0');
  const { address } = server;
  stops.push(() => server.stop());
  return {
    service,
    address,
    stop: () => server.stop(),
    start: async () => {
      server = await start(address);
    },
  };
}

const ways: Array<[string, readonly string[]]> = [
  ['calls of their own', []],
  ['calls on a stream', multiplexed],
];

test.each(ways)('%s go to all copies whose addresses are given', async (_, multiplexedMethods) => {
  const copies = [await copy(), await copy()];
  const { ask } = open(copies.map(({ address }) => address).join(','), { multiplexed: multiplexedMethods });
  // The client may still be connecting to one of them.
  await eventually(async () => {
    await ask({});
    return copies.every(({ service }) => service.seen.length >= 5);
  });
});

test('a setting of addresses is one name, or several addresses with ports, and nothing else', () => {
  const good = ['data:4000', '127.0.0.1:4000', 'dns:///data:4000', '10.0.0.1:4000,10.0.0.2:4000'];
  const bad = ['', 'data', ':4000', 'data:4000,blobs:4000', '10.0.0.1:4000,', '10.0.0.1:4000,10.0.0.2', 'data :4000'];
  const isTaken = (text: string) => grpcAddress.safeParse(text).success;
  expect([good.filter((text) => !isTaken(text)), bad.filter(isTaken)]).toEqual([[], []]);
});

test('all addresses of a name are used', async () => {
  const { service, address } = await copy();
  // A name of this machine; where it also has an address of IPv6, nobody listens there.
  const { ask } = open(`dns:///localhost:${address.split(':')[1]}`, { multiplexed: [] });
  for (let at = 0; at < 10; at++) await ask({});
  expect(service.seen).toHaveLength(10);
});

test('a write for which no copy was there is sent once one is, and happens once', async () => {
  const one = await copy();
  await one.stop();
  const { ask } = open(one.address, { multiplexed: [] });
  const asked = ask({});
  await one.start();
  await asked;
  expect(one.service.seen).toHaveLength(1);
});

test('a write that a copy has taken is not sent again when that copy dies', async () => {
  const one = await copy();
  const proxy = await tcpProxy(one.address);
  const { ask } = open(proxy.address, { multiplexed: [] });
  const asked = ask({ held: true }).catch((error: unknown) => error);
  await eventually(() => one.service.held.size === 1);
  proxy.cut();
  expect(await asked).toMatchObject({ code: 'UNAVAILABLE' });
  expect(one.service.seen).toHaveLength(1);
});

test.each(ways)(
  '%s are all answered, and happen once, while each copy is replaced in turn',
  async (_, multiplexedMethods) => {
    const copies = [await copy(), await copy()];
    // On a stream only what may be repeated is called, and is then told from the first time by its ticket.
    const options = { multiplexed: multiplexedMethods, repeatable: multiplexedMethods, mux: { renewAfterMs: 100 } };
    const { ask, counts } = open(copies.map(({ address }) => address).join(','), options);
    let answered = 0;
    let replaced = false;
    const caller = async () => {
      while (!replaced) await ask({ turns: answered++ % 10 });
    };
    const replace = async () => {
      try {
        for (let round = 0; round < 6; round++) {
          const { stop, start, service } = copies[round % 2]!;
          await stop();
          await start();
          const before = service.seen.length;
          await eventually(() => service.seen.length > before + 50);
        }
      } finally {
        replaced = true;
      }
    };
    await Promise.all([replace(), ...Array.from({ length: 20 }, caller)]);
    const seen = copies[0]!.service.seen.length + copies[1]!.service.seen.length;
    if (multiplexedMethods.length === 0) expect(seen).toBe(answered);
    else expect(counts()).toMatchObject({ waiting: 0, inFlight: 0 });
  },
);

test.each(ways)('%s are all answered, however often connections are given up for their age', async (_, methods) => {
  const service = wishes();
  const server: GrpcServer = await startServer('127.0.0.1:0', [service.implementation], log, undefined, {
    connectionAgeMs: 50,
  });
  stops.push(() => server.stop());
  const proxy = await tcpProxy(server.address);
  const { ask } = open(proxy.address, { multiplexed: methods, repeatable: methods, mux: { renewAfterMs: 100 } });
  let answered = 0;
  const caller = async () => {
    while (answered < 1_000 || proxy.connections() < 20) {
      await ask({ turns: 3 }, newCall('test', limitMs(20_000)));
      answered++;
    }
  };
  await Promise.all(Array.from({ length: 10 }, caller));
  expect(service.seen).toHaveLength(answered);
});
