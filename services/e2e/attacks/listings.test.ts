import { expectUnharmed, openArena, type Arena } from './arena';

const queries = 16;
const views = 40;
const readersAtOnce = 8;
const pageBytesMax = 1024 * 1024 + 64 * 1024;

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
  const { app } = arena;
  await app.store('docs', [{ id: '1' }]);
  // As much as an app may define.
  const variables = Object.fromEntries(Array.from({ length: 64 }, (_, at) => [`${at}`.padStart(200, 'n'), `f${at}`]));
  for (let at = 0; at < views; at++) {
    const body = { name: `v${at}`, source_collections: ['docs'], query: {}, variables };
    expect((await app.call('POST', `/apps/${app.appId}/views`, body)).status).toBe(202);
  }
  const example = 'x'.repeat(470_000);
  for (let at = 0; at < queries; at++) {
    const body = { name: `q${at}`, source_collection: 'docs', base_query: {}, example_response: example };
    expect((await app.call('POST', `/apps/${app.appId}/queries`, body)).status).toBe(201);
  }
});
afterAll(() => arena.close());

test('strangers who list the queries of an app and read its skills harm no other app', async () => {
  const { appId } = arena.app;
  const sizes: number[] = [];
  const statuses = new Set<number>();
  await expectUnharmed(arena, {
    memoryBytesMax: 300 * 1024 ** 2,
    run: async (signal) => {
      const read = async (path: string) => {
        while (!signal.aborted) {
          const answer = await fetch(arena.url + path);
          statuses.add(answer.status);
          sizes.push((await answer.arrayBuffer()).byteLength);
        }
      };
      const paths = [`/apps/${appId}/queries`, `/api/skills/${appId}/skills.md`];
      await Promise.all(Array.from({ length: readersAtOnce }, (_, at) => read(paths[at % 2]!)));
    },
  });
  expect(sizes.length).toBeGreaterThan(10);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(pageBytesMax);
  for (const status of statuses) expect([200, 503]).toContain(status);
});
