import { connect, type Socket } from 'node:net';
import { slowness } from '@granary/testing/speed';
import type { TestApp } from '../support/granary';
import { expectUnharmed, openArena, type Arena } from './arena';

const attackers = 300;
const exportedDocuments = 200;
const blobBytes = 20 * 1024 * 1024;
/** Downloads of one address at once: a quarter of the 256 there may be. */
const placesOfAddress = 64;
const ndjson = { 'content-type': 'application/x-ndjson' };
const png = { 'content-type': 'image/png' };
/** An address of the loopback interface that is not the victim's. */
const attackerAddress = '127.0.0.2';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());

/** Holds so many connections until the signal aborts; one that is closed is opened again. */
async function hold(signal: AbortSignal, request: string, onOpen: (socket: Socket) => void): Promise<void> {
  const { hostname, port } = new URL(arena.url);
  const sockets = new Set<Socket>();
  const openOne = () => {
    const socket = connect({ port: Number(port), host: hostname, localAddress: attackerAddress });
    sockets.add(socket);
    socket
      .on('error', () => {})
      .on('close', () => {
        sockets.delete(socket);
        if (!signal.aborted) setTimeout(openOne, 1_000);
      });
    socket.write(request);
    onOpen(socket);
  };
  for (let at = 0; at < attackers; at++) openOne();
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  for (const socket of sockets) socket.destroy();
}

/** Transfers of another app: the statuses of one round of them. */
type Transfers = (victim: TestApp, round: number) => Promise<number[]>;

const blobTransfers: Transfers = async (victim, round) => {
  const path = `/api/apps/${victim.appId}/blobs/files`;
  const stored = await victim.call<{ blob_id: string }>('POST', path, `${round}`, png);
  if (stored.status !== 202) return [stored.status];
  return [stored.status, (await victim.call('GET', `${path}/${stored.body.blob_id}`)).status];
};

const collectionTransfers: Transfers = async (victim, round) => {
  const path = `/api/apps/${victim.appId}/collections/rows`;
  const imported = await victim.call('POST', `${path}/import`, `{"id":"${round}"}\n`, ndjson);
  return [imported.status, (await victim.call('GET', `${path}/export`)).status];
};

/** Makes transfers one after the other until the signal aborts. */
async function transfersOf(victim: TestApp, transfers: Transfers, signal: AbortSignal): Promise<number[]> {
  const statuses: number[] = [];
  for (let round = 0; !signal.aborted; round += 1) {
    statuses.push(...(await transfers(victim, round)));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return statuses;
}

async function expectTransfers(
  attack: (signal: AbortSignal) => Promise<void>,
  transfers: Transfers = blobTransfers,
): Promise<void> {
  const victim = await arena.newApp();
  await victim.store('rows', [{ id: 'first' }]);
  let statuses: number[] = [];
  await expectUnharmed(arena, {
    run: async (signal) => {
      const attacking = attack(signal);
      statuses = await transfersOf(victim, transfers, signal);
      await attacking;
    },
  });
  const served = statuses.filter((status) => status === 200 || status === 202);
  expect(statuses.length).toBeGreaterThan(2 / slowness());
  expect(served.length / statuses.length).toBeGreaterThanOrEqual(0.9);
}

test('300 uploads of one app that drip leave transfers to others', async () => {
  const { appId, key } = arena.app;
  const headers = ['Host: x', `X-App-Key: ${key}`, 'Content-Type: image/png', 'Content-Length: 1000000', '', ''];
  const request = `POST /api/apps/${appId}/blobs/b HTTP/1.1\r\n${headers.join('\r\n')}x`;
  await expectTransfers((signal) =>
    hold(signal, request, (socket) => {
      const dripping = setInterval(() => socket.write('x'), 1_000);
      socket.on('close', () => clearInterval(dripping));
    }),
  );
});

test('300 anonymous readers of a public blob who do not read leave transfers to others', async () => {
  const { app } = arena;
  const path = `/api/apps/${app.appId}/blobs/b`;
  const stored = await app.call<{ blob_id: string }>('POST', path, Buffer.alloc(blobBytes, 'abcdefgh'), png);
  expect(stored.status).toBe(202);
  // What malloc keeps after as many ordinary downloads is not counted as the attack's.
  const downloads = Array.from({ length: placesOfAddress }, () => app.call('GET', `${path}/${stored.body.blob_id}`));
  for (const { text } of await Promise.all(downloads)) expect(text).toHaveLength(blobBytes);
  const request = `GET ${path}/${stored.body.blob_id} HTTP/1.1\r\nHost: x\r\n\r\n`;
  await expectTransfers((signal) => hold(signal, request, (socket) => socket.pause()));
});

test('300 imports of one app that drip leave imports and exports to others', async () => {
  const { appId, key } = arena.app;
  await arena.app.store('big', [{ id: 'first' }]);
  const head = ['Host: x', `X-App-Key: ${key}`, 'Content-Type: application/x-ndjson', 'Content-Length: 1000000'];
  const request = `POST /api/apps/${appId}/collections/big/import HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n{`;
  await expectTransfers(
    (signal) =>
      hold(signal, request, (socket) => {
        const dripping = setInterval(() => socket.write(' '), 1_000);
        socket.on('close', () => clearInterval(dripping));
      }),
    collectionTransfers,
  );
});

test('300 exports of one app that nobody reads leave imports and exports to others', async () => {
  const { app } = arena;
  const text = 'x'.repeat(100_000);
  for (let first = 0; first < exportedDocuments; first += 40) {
    await app.store(
      'big',
      Array.from({ length: 40 }, (_, index) => ({ id: `d${first + index}`, text })),
    );
  }
  const head = `GET /api/apps/${app.appId}/collections/big/export HTTP/1.1`;
  const request = [head, 'Host: x', `X-App-Key: ${app.key}`, '', ''].join('\r\n');
  await expectTransfers((signal) => hold(signal, request, (socket) => socket.pause()), collectionTransfers);
});
