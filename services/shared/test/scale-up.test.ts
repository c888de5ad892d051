import { promises as dns } from 'node:dns';
import { startServer } from '@granary/shared/grpc/server';
import { eventually } from '@granary/testing/eventually';
import { log, multiplexed, open, stops, wishes } from './support/mux-fixture';

afterEach(async () => {
  jest.restoreAllMocks();
  for (const stop of stops.splice(0).reverse()) await stop();
});

const connectionAgeMs = 2_000;
/** How long a new copy may be idle, by the issue that asked for this. */
const noticedWithinMs = 90_000;

/** Copies of a service on one port of several addresses, behind a name. */
async function copiesBehindName(count: number) {
  const addresses: string[] = [];
  const copies: Array<{ seen: unknown[]; stop: () => Promise<void> }> = [];
  let port = 0;
  const add = async () => {
    const host = `127.0.0.${10 + copies.length}`;
    const service = wishes();
    const server = await startServer(`${host}:${port}`, [service.implementation], log, undefined, { connectionAgeMs });
    port = Number(server.address.split(':')[1]);
    stops.push(() => server.stop());
    addresses.push(host);
    copies.push({
      seen: service.seen,
      stop: async () => {
        addresses.splice(addresses.indexOf(host), 1);
        await server.stop();
      },
    });
  };
  for (let at = 0; at < count; at++) await add();
  const found = (): never => addresses.map((address) => ({ address, family: 4 })) as never;
  jest.spyOn(dns, 'lookup').mockImplementation(() => Promise.resolve(found()));
  return { copies, add, address: `dns:///copies.test:${port}` };
}

const callsOfRound = 1_400;

/** The share of each copy in the calls of two callers, as a part of what would be fair. */
async function shares(asks: Array<() => Promise<unknown>>, copies: Array<{ seen: unknown[] }>): Promise<number[]> {
  for (const { seen } of copies) seen.length = 0;
  let left = callsOfRound;
  const caller = async (ask: () => Promise<unknown>) => {
    while (left-- > 0) await ask();
  };
  await Promise.all(asks.flatMap((ask) => Array.from({ length: 4 }, () => caller(ask))));
  return copies.map(({ seen }) => (seen.length * copies.length) / callsOfRound);
}

test.each<[string, readonly string[]]>([
  ['calls on streams', multiplexed],
  ['calls of their own', []],
])(
  '%s: with two callers each of six copies has half its share or more, and soon a seventh too',
  async (_, methods) => {
    const { copies, add, address } = await copiesBehindName(6);
    const options = { multiplexed: methods, repeatable: multiplexed };
    const asks = [open(address, options), open(address, options)].map(
      ({ ask }) =>
        () =>
          ask({ turns: 2 }),
    );
    const areShared = async () => Math.min(...(await shares(asks, copies))) >= 0.5;
    await eventually(areShared);
    expect(Math.min(...(await shares(asks, copies)))).toBeGreaterThanOrEqual(0.5);
    await add();
    await eventually(areShared, noticedWithinMs);
    expect(Math.min(...(await shares(asks, copies)))).toBeGreaterThanOrEqual(0.5);
    // One that goes leaves its share to the others.
    await copies.shift()!.stop();
    await eventually(areShared);
  },
  noticedWithinMs * 3,
);
