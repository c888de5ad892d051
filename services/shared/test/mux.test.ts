import { getEventListeners, setMaxListeners } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
// eslint-disable-next-line no-restricted-imports -- a service of an older release is a plain server of gRPC
import { Server, ServerCredentials, type sendUnaryData } from '@grpc/grpc-js';
import { ServiceError } from '@granary/shared/errors';
import { newCall } from '@granary/shared/rpc/types';
import { eventually } from '@granary/testing/eventually';
import { forkProgram } from '@granary/testing/programs';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { content, dataDefinition, open, serve, stops, tcpProxy, wishes, type DataClient } from './support/mux-fixture';

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

const idle = { waiting: 0, inFlight: 0 };
const idleServer = { calls: 0, answerBytes: 0 };

async function startProcess(file: string, manner: string) {
  const child = await forkProgram(join(__dirname, 'support/mux-process.ts'), [file, manner]);
  stops.push(() => child.kill('SIGKILL'));
  let arrived = 0;
  const address = await new Promise<string>((resolve, reject) => {
    child.on('message', (message: { address?: string; arrived?: number }) => {
      if (message.address) resolve(message.address);
      arrived += message.arrived ?? 0;
    });
    child.on('exit', () => reject(new Error('the service ended')));
  });
  return { child, address, arrived: () => arrived };
}

test('a service killed with 1,000 calls under way fails them as UNAVAILABLE, and what may be repeated happens once', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'granary-stream-'));
  stops.push(() => rmSync(directory, { recursive: true }));
  const file = join(directory, 'tickets');
  writeFileSync(file, '');
  const first = await startProcess(file, 'silent');
  const second = await startProcess(file, 'answering');
  const proxy = await tcpProxy(first.address);
  const { client, counts } = open(proxy.address, { repeatable: ['readCollection', 'store'] });

  const tickets = Array.from({ length: 400 }, (_, at) => `ticket-${at}`);
  const once = tickets.slice(0, 200).map(() => client.listDocuments({ appId: '', body: Buffer.alloc(0) }, call()));
  const reads = tickets.map(() => client.readCollection(readRequest, call()));
  const writes = tickets.map((ticketId) => client.store({ ...storeRequest, ticketId }, call()));
  const settled = Promise.all([once, reads, writes].map((calls) => Promise.allSettled(calls)));
  await eventually(() => first.arrived() === 1_000);
  expect(counts()).toMatchObject({ inFlight: 1_000 });
  proxy.lead(second.address);
  first.child.kill('SIGKILL');

  const [failed, read, written] = await settled;
  expect(failed!.map((result) => result.status === 'rejected' && (result.reason as ServiceError).code)).toEqual(
    Array(200).fill('UNAVAILABLE'),
  );
  expect(read!.filter(({ status }) => status === 'rejected')).toEqual([]);
  expect(written!.filter(({ status }) => status === 'rejected')).toEqual([]);
  expect(readFileSync(file, 'utf8').trim().split('\n').sort()).toEqual([...tickets].sort());
  // Its counts come over another channel than its answers, and may come after them.
  await eventually(() => second.arrived() >= 800);
  expect(counts()).toMatchObject(idle);
});

const call = () => newCall('test', limitMs(20_000));
const readRequest = { appId: '', name: 'films', parameters: [], mayReadPrivate: false };
const storeRequest: Parameters<DataClient['store']>[0] = {
  appId: '',
  appNumber: '1',
  ticketId: '',
  body: Buffer.from('{}'),
  idempotency: null,
};

test('errors arrive on the stream as they do in a unary call', async () => {
  const server = await serve(wishes().implementation);
  const errors: ServiceError[][] = [];
  for (const multiplexed of [['listDocuments'], []]) {
    const { ask } = open(server.address, { multiplexed });
    const wishes = [{ refused: true }, { broken: true }, { bytes: 41 * 1024 * 1024 }];
    const caught = wishes.map((wish) =>
      ask(wish)
        .then(() => undefined)
        .catch((error: unknown) => error),
    );
    errors.push((await Promise.all(caught)) as ServiceError[]);
  }
  const [onStream, unary] = errors;
  expect(onStream).toMatchObject([
    { code: 'FAILED_PRECONDITION', reason: 'NOT_TODAY', message: 'Ask tomorrow', details: { when: ['tomorrow'] } },
    { code: 'INTERNAL', reason: 'INTERNAL', message: 'Internal server error', details: {} },
    { code: 'RESOURCE_EXHAUSTED', reason: 'RESULT_TOO_LARGE' },
  ]);
  for (const field of ['code', 'reason', 'message', 'details'] as const)
    expect(onStream!.map((error) => error[field])).toEqual(unary!.map((error) => error[field]));
});

test('a cancelled request frees its place in the window, and its handler hears of it', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const { ask, counts } = open(server.address);
  const aborted = new AbortController();
  const cancelled = ask({ held: true }, { ...call(), signal: aborted.signal });
  const others = Array.from({ length: 2_047 }, () => ask({ held: true }));
  await eventually(() => service.held.size === 2_048);
  const next = ask({});
  const queued = new AbortController();
  const neverSent = ask({}, { ...call(), signal: queued.signal });
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  expect(counts()).toMatchObject({ waiting: 2, inFlight: 2_048 });

  queued.abort();
  await expect(neverSent).rejects.toMatchObject({ code: 'CANCELLED' });
  expect(counts()).toMatchObject({ waiting: 1, inFlight: 2_048 });
  aborted.abort();
  await expect(cancelled).rejects.toMatchObject({ code: 'CANCELLED' });
  await expect(next).resolves.toEqual({ json: content(10) });
  await eventually(() => service.held.size === 2_047);
  expect(service.seen).toHaveLength(2_049);
  service.releaseAll();
  await Promise.all(others);
  expect(counts()).toMatchObject(idle);
  expect(server.muxCounts()).toMatchObject(idleServer);
});

test('a deadline ends a call on both sides', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const { ask, counts } = open(server.address);
  const late = expect(ask({ held: true }, newCall('test', limitMs(1_000)))).rejects;
  const ended = late.toMatchObject({ code: 'DEADLINE_EXCEEDED' });
  await eventually(() => service.held.size === 1);
  await ended;
  await eventually(() => service.held.size === 0);
  expect(service.seen).toHaveLength(1);
  await eventually(() => server.muxCounts().calls === 0);
  expect(counts()).toMatchObject(idle);
  await expect(ask({}, newCall('test', -1))).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED' });
});

test('a caller that stops reading holds up nobody else, and the service takes no more from it', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const proxy = await tcpProxy(server.address);
  const slow = open(proxy.address, { mux: { streams: 1 } });
  const quick = open(server.address);
  await slow.ask({});
  proxy.block(0);
  const large = Array.from({ length: 24 }, () => slow.ask({ bytes: 1024 * 1024 }));
  await eventually(() => server.muxCounts().answerBytes > 8 * 1024 * 1024);
  const seen = service.seen.length;
  const more = Array.from({ length: 50 }, () => slow.ask({}));
  for (let at = 0; at < 300; at++) await quick.ask({ bytes: 100 });
  expect(service.seen).toHaveLength(seen + 300);
  expect(server.muxCounts().calls).toBeGreaterThan(0);

  proxy.unblock(0);
  for (const { json } of await Promise.all(large)) expect(json.equals(content(1024 * 1024))).toBe(true);
  await Promise.all(more);
  expect(server.muxCounts()).toMatchObject(idleServer);
});

test('requests that a service does not read wait in the client, where they can still be cancelled', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const proxy = await tcpProxy(server.address);
  const { client, ask, counts } = open(proxy.address, { mux: { streams: 1 } });
  await ask({});
  proxy.block(0, 'requests');
  const body = Buffer.from('{}'.padEnd(60_000));
  const aborted = new AbortController();
  const given = { ...call(), signal: aborted.signal };
  setMaxListeners(0, aborted.signal);
  const sent = Array.from({ length: 500 }, () => client.listDocuments({ appId: '', body }, call()));
  const cancelled = Array.from({ length: 200 }, () => client.listDocuments({ appId: '', body }, given));
  await eventually(() => counts().inFlight > 0);
  aborted.abort();
  for (const result of await Promise.allSettled(cancelled)) expect(result).toMatchObject({ status: 'rejected' });
  expect(counts().waiting).toBeGreaterThan(300);
  proxy.unblock(0);
  await Promise.all(sent);
  expect(service.seen).toHaveLength(501);
});

test('a connection that is stalled costs a client hardly more than the calls that were on it', async () => {
  const server = await serve(wishes().implementation);
  const proxy = await tcpProxy(server.address);
  const { ask, counts } = open(proxy.address);
  await Promise.all(Array.from({ length: 4 }, () => ask({})));
  for (let at = 0; proxy.connections() < 2; at++) await ask({});
  await eventually(() => counts().streams === 2);
  proxy.block(0);
  let failed = 0;
  for (let at = 0; at < 200; at++) await ask({}, newCall('test', limitMs(500))).catch(() => failed++);
  expect(failed).toBeGreaterThan(0);
  expect(failed).toBeLessThan(5);
  expect(counts()).toMatchObject(idle);
});

test('answers of 4 MiB let the small ones between them pass', async () => {
  const server = await serve(wishes().implementation);
  const { ask } = open(server.address, { mux: { streams: 1 } });
  const order: string[] = [];
  const large = Array.from({ length: 8 }, () => ask({ bytes: 4 * 1024 * 1024 }).finally(() => order.push('large')));
  const small = Array.from({ length: 200 }, (_, at) => ask({ turns: at % 8 }).finally(() => order.push('small')));
  const middle = ask({ bytes: 200_000 }).finally(() => order.push('middle'));
  await Promise.all([...small, middle]);
  expect(order.sort()).toEqual(['middle', ...Array<string>(200).fill('small')]);
  for (const { json } of await Promise.all(large)) expect(json.equals(content(4 * 1024 * 1024))).toBe(true);
  expect(server.muxCounts()).toMatchObject(idleServer);
});

test('a request that is too large for the stream is a call of its own', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const { client, counts } = open(server.address);
  const body = Buffer.from('{"bytes":5}'.padEnd(3 * 1024 * 1024));
  await expect(client.listDocuments({ appId: 'films', body }, call())).resolves.toEqual({ json: content(5) });
  expect(counts()).toMatchObject({ streams: 0 });
});

const kinds = seedOf('shared/mux');
test(
  `many calls of every kind, by the seed ${kinds}, leave no slot, timer, listener or promise behind`,
  async () => {
    const callsMax = size({ run: 33_000, long: 100_000 });
    const service = wishes();
    const server = await serve(service.implementation);
    const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    const timersBefore = timers();
    const { ask, counts } = open(server.address, { mux: { renewAfterMs: 300 } });
    const shared = new AbortController();
    setMaxListeners(0, shared.signal);
    const outcomes: Record<string, number> = {};
    const next = seededRandom(kinds);
    const random = (below: number) => Math.floor(next() * below);
    const one = async () => {
      const own = new AbortController();
      const appId = `app-${random(7)}`;
      const kind = random(10);
      const turns = random(4);
      if (kind === 0) {
        setImmediate(() => own.abort());
        return ask({ held: true }, { ...call(), signal: own.signal }, appId);
      }
      if (kind === 1) {
        const later = () => (random(3) === 0 ? own.abort() : setImmediate(later));
        later();
        return ask({ turns, bytes: random(200_000) }, { ...call(), signal: own.signal }, appId);
      }
      if (kind === 2) return ask({ held: true }, newCall('test', 1 + random(30)), appId);
      if (kind === 3) return ask({ refused: true, turns }, call(), appId);
      if (kind === 4 && random(10) === 0) return ask({ bytes: random(1024 * 1024) }, call(), appId);
      return ask({ turns, bytes: random(300) }, { ...call(), signal: shared.signal }, appId);
    };
    const count = (outcome: string) => (outcomes[outcome] = (outcomes[outcome] ?? 0) + 1);
    let started = 0;
    const caller = async () => {
      while (started++ < callsMax) {
        await one().then(
          () => count('ok'),
          (error: ServiceError) => count(error.code),
        );
      }
    };
    await Promise.all(Array.from({ length: 200 }, caller));

    expect(Object.keys(outcomes).sort()).toEqual(['CANCELLED', 'DEADLINE_EXCEEDED', 'FAILED_PRECONDITION', 'ok']);
    expect(Object.values(outcomes).reduce((sum, times) => sum + times)).toBe(callsMax);
    expect(outcomes.ok).toBeGreaterThan(callsMax / 2);
    expect(counts()).toMatchObject(idle);
    expect(getEventListeners(shared.signal, 'abort')).toEqual([]);
    await eventually(() => service.running() === 0);
    await eventually(() => server.muxCounts().calls === 0);
    expect(server.muxCounts()).toMatchObject(idleServer);
    await stops.pop()!();
    await eventually(() => counts().streams === 0 && server.muxCounts().streams === 0);
    await eventually(() => timers() <= timersBefore);
  },
  sizedLimitMs(limitMs(240_000)),
);

test('an app that floods is refused beyond its share, and the calls of another go through between its own', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const { ask, counts } = open(server.address);
  const flood = Array.from({ length: 3_000 }, () => ask({ held: true }, call(), 'flood'));
  const flooded = Promise.allSettled(flood);
  await eventually(() => service.held.size === 512);
  expect(counts()).toMatchObject({ inFlight: 512, waiting: 1_536 });
  // There is room for others at once.
  await Promise.all(Array.from({ length: 20 }, () => ask({}, call(), 'quiet')));

  // Three more of the kind take all the room there is; now the calls of the quiet app have to wait for their turn.
  const more = ['b', 'c', 'd'].flatMap((appId) =>
    Array.from({ length: 600 }, () => ask({ held: true }, call(), appId)),
  );
  await eventually(() => service.held.size === 2_048);
  const quiet = Array.from({ length: 5 }, () => ask({}, call(), 'quiet'));
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  service.seen.length = 0;
  for (const one of [...service.held].filter(({ appId }) => appId === 'flood').slice(0, 25)) service.release(one);
  await Promise.all(quiet);
  await eventually(() => service.seen.length >= 25);
  const turns = service.seen.slice(0, 25).map(({ appId }) => appId);
  expect(turns.filter((appId) => appId === 'quiet')).toHaveLength(5);

  while (counts().inFlight > 0 || counts().waiting > 0) {
    service.releaseAll();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(more);
  const refused = (await flooded).flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
  expect(refused).toHaveLength(3_000 - 2_048);
  for (const error of refused) expect(error).toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'TOO_MANY_REQUESTS' });
});

test('a server that stops finishes what is under way, while new calls go elsewhere', async () => {
  const [old, young] = [wishes(), wishes()];
  const stopping = await serve(old.implementation);
  const other = await serve(young.implementation);
  const proxy = await tcpProxy(stopping.address);
  const { ask } = open(proxy.address);
  const underWay = Array.from({ length: 300 }, () => ask({ held: true, bytes: 100_000 }));
  await eventually(() => old.held.size === 300);
  proxy.lead(other.address);
  const stopped = stopping.stop();
  // A stream that does not know of it yet still takes calls, which are answered, too.
  await eventually(async () => {
    const before = young.seen.length;
    await Promise.all(Array.from({ length: 100 }, () => ask({})));
    return young.seen.length === before + 100;
  });
  old.releaseAll();
  for (const { json } of await Promise.all(underWay)) expect(json).toHaveLength(100_000);
  await stopped;
  expect(stopping.muxCounts()).toEqual({ streams: 0, ...idleServer });
});

test('renewing the streams loses nothing', async () => {
  const service = wishes();
  const server = await serve(service.implementation);
  const { ask, counts } = open(server.address, { mux: { renewAfterMs: 15 } });
  let answered = 0;
  const caller = async (at: number) => {
    while (counts().renewals < 30) {
      await ask({ turns: at % 20, bytes: at % 5 === 0 ? 200_000 : 50 });
      answered++;
    }
  };
  await Promise.all(Array.from({ length: 50 }, (_, at) => caller(at)));
  expect(answered).toBe(service.seen.length);
  await eventually(() => server.muxCounts().streams <= 2);
});

test('the streams of a client spread over the addresses of a service', async () => {
  const services = [wishes(), wishes()];
  const servers = [];
  for (const { implementation } of services) servers.push(await serve(implementation));
  const address = `ipv4:${servers.map((server) => server.address).join(',')}`;
  // One that happens to spread would prove nothing.
  for (let clients = 1; clients <= 6; clients++) {
    const { ask } = open(address);
    for (const { seen } of services) seen.length = 0;
    // The client may still be connecting to one of them.
    await eventually(async () => {
      await ask({});
      return services.every(({ seen }) => seen.length >= 5);
    }, 5_000);
  }
});

test('a service of an older release, without streams, is still reached', async () => {
  const server = new Server();
  const listDocuments = (_: unknown, answer: sendUnaryData<unknown>) => answer(null, { json: Buffer.from('[]') });
  server.addService(
    dataDefinition,
    Object.fromEntries(Object.keys(dataDefinition).map((name) => [name, listDocuments])),
  );
  const port = await new Promise<number>((resolve) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (_, bound) => resolve(bound)),
  );
  stops.push(() => server.forceShutdown());
  const { ask } = open(`127.0.0.1:${port}`, { repeatable: ['listDocuments'] });
  for (let at = 0; at < 3; at++) await expect(ask({})).resolves.toEqual({ json: Buffer.from('[]') });
});
