import { randomUUID } from 'node:crypto';
import { eventually } from '@granary/testing/eventually';
import type { TestApp } from '../support/granary';
import { expectUnharmed, openArena, type Arena } from './arena';
import { clients, flood } from './sockets';

const mebibyte = 1024 ** 2;

describe('clients that hold what others need', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena();
  });
  afterAll(() => arena.close());

  const head = (line: string, ...headers: string[]) => `${[line, 'Host: x', ...headers].join('\r\n')}\r\n\r\n`;
  const halfBody = (path: string, ...headers: string[]) => `${head(`POST ${path} HTTP/1.1`, ...headers)}{`;

  test('600 connections that send half a body to a public route take nothing from others', async () => {
    const bytes = () => halfBody('/x402/verify', 'Content-Length: 60000');
    await expectUnharmed(arena, {
      run: (signal) => flood({ url: arena.url, connections: 600, bytes, reads: true }, signal),
      memoryBytesMax: 100 * mebibyte,
    });
  });

  test('600 connections that send half a body with the key of an app take nothing from others', async () => {
    const bytes = () => halfBody('/store', `X-App-Key: ${arena.app.key}`, 'Content-Length: 60000');
    const statuses = new Set<number>();
    await expectUnharmed(arena, {
      run: (signal) =>
        flood({ url: arena.url, connections: 600, bytes, reads: true }, signal, (status) => statuses.add(status)),
      memoryBytesMax: 100 * mebibyte,
    });
    // Those that gave way, and those that were too slow.
    expect([...statuses].sort()).toEqual([408, 503]);
  });

  test('200 clients that ask for apps that do not exist cost others nothing', async () => {
    const next = () => ({ path: `/api/apps/${randomUUID()}/collections/n/data` });
    let statuses = new Map<number, number>();
    await expectUnharmed(arena, {
      run: async (signal) => void (statuses = await clients(arena.url, 200, next, signal)),
      memoryBytesMax: 100 * mebibyte,
    });
    expect([...statuses.keys()].sort()).toEqual(expect.arrayContaining([404]));
  });

  test('200 clients with keys that do not exist cost others nothing', async () => {
    const next = () => ({ path: '/api/apps/x/indexes', headers: { 'x-app-key': `app_${randomUUID()}` } });
    let statuses = new Map<number, number>();
    await expectUnharmed(arena, {
      run: async (signal) => void (statuses = await clients(arena.url, 200, next, signal)),
      memoryBytesMax: 100 * mebibyte,
    });
    expect([...statuses.keys()].sort()).toEqual(expect.arrayContaining([401]));
  });

  describe('with large public answers', () => {
    let other: TestApp;
    beforeAll(async () => {
      other = await arena.newApp();
      const document = (n: number) => ({ id: `d${n}`, text: 'x'.repeat(100_000) });
      for (const app of [arena.app, other]) {
        for (let n = 0; n < 320; n += 40) {
          await app.store(
            'big',
            Array.from({ length: 40 }, (_, of) => document(n + of)),
          );
        }
      }
    });
    const read = (limit: number, app = arena.app) =>
      head(`GET /api/apps/${app.appId}/collections/big/data?limit=${limit} HTTP/1.1`);

    test('readers who do not read, and half bodies in the rest of the memory, take nothing from others', async () => {
      // Of two apps and from two addresses, since each may take no more than half of the memory, which this fills.
      const from = (connection: number) => `127.0.0.${2 + (connection % 2)}`;
      const appOf = (connection: number) => (connection % 2 === 0 ? arena.app : other);
      const large = (connection: number) => read(connection < 8 ? 319 : 62, appOf(connection));
      // From 64 KiB, which a small body may have, down to 5 bytes, so that they leave no byte of the rest.
      const half = (connection: number) =>
        head('POST /store HTTP/1.1', `X-App-Key: ${appOf(connection).key}`, 'Content-Length: 65536') +
        ' '.repeat(Math.max(5, Math.floor(65_000 * 0.93 ** connection)));
      const { url } = arena;
      let holding: Promise<void> | undefined;
      const occupy = async (signal: AbortSignal) => {
        let answered = 0;
        const onAnswer = () => void (answered += 1);
        holding = flood({ url, connections: 10, bytes: large, reads: 'head', from }, signal, onAnswer);
        await eventually(() => answered >= 10);
      };
      const run = async (signal: AbortSignal) => {
        await flood({ url, connections: 134, bytes: half, reads: true, from }, signal);
        await holding;
      };
      await expectUnharmed(arena, { occupy, run, memoryBytesMax: 600 * mebibyte });
    });

    test('requests pipelined by the thousand for answers that are not read take little memory', async () => {
      const bytes = () => read(2).repeat(1_100);
      await expectUnharmed(arena, {
        run: (signal) => flood({ url: arena.url, connections: 40, bytes, reads: false }, signal),
        memoryBytesMax: 300 * mebibyte,
      });
    });
  });
});
