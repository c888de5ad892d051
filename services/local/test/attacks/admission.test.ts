import { randomUUID } from 'node:crypto';
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
    beforeAll(async () => {
      const document = (n: number) => ({ id: `d${n}`, text: 'x'.repeat(100_000) });
      for (let n = 0; n < 320; n += 40) {
        await arena.app.store(
          'big',
          Array.from({ length: 40 }, (_, of) => document(n + of)),
        );
      }
    });
    const read = (limit: number) =>
      head(`GET /api/apps/${arena.app.appId}/collections/big/data?limit=${limit} HTTP/1.1`);

    test('readers of 31 MiB who do not read take nothing from others', async () => {
      const connections = 9;
      await expectUnharmed(arena, {
        run: (signal) => flood({ url: arena.url, connections, bytes: () => read(319), reads: false }, signal),
        memoryBytesMax: 600 * mebibyte,
      });
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
