import { eventually } from '@granary/testing/eventually';
import { send } from '../support/granary';
import { expectUnharmed, openArena, type Arena } from './arena';

const documents = 24_000;
const storedAtOnce = 3_000;
const strangers = 64;

let arena: Arena;
beforeAll(async () => {
  // A scan of the end of the attack must be answered on a slow machine too.
  arena = await openArena({ PUBLIC_READ_TIMEOUT_MS: '10000' });
  const { app } = arena;
  for (let at = 0; at < documents; at += storedAtOnce) {
    await app.store(
      'rows',
      Array.from({ length: storedAtOnce }, (_, i) => ({ id: `${at + i}`, n: at + i, text: `${at + i}-`.repeat(40) })),
    );
  }
  await app.store('few', [{ id: '1', text: 'one' }]);
  const view = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, {
    name: 'all',
    query: {},
    source_collections: ['rows'],
  });
  await app.ended(view.body.ticket_id);
});
afterAll(() => arena.close());

/** A read of every row with an expensive filter that matches none; each is another one. */
function scanPath(number: number): string {
  const or = Array.from({ length: 40 }, (_, at) => ({ text: { contains: `no ${number} ${at}` } }));
  return `/api/views/${arena.app.appId}/all/data?filter=${encodeURIComponent(JSON.stringify({ or }))}&sort=text,-n`;
}

test('scans by strangers harm no other app, not the owner of the view, and are over when the strangers have gone', async () => {
  let scans = 0;
  let ownersScans = 0;
  await expectUnharmed(arena, {
    run: async (signal) => {
      const scan = async () => {
        while (!signal.aborted) {
          const answer = fetch(arena.url + scanPath(scans++), { signal });
          await answer.then((found) => found.arrayBuffer()).catch(() => undefined);
        }
      };
      const ownersScan = async () => {
        while (!signal.aborted) {
          const { status } = await arena.app.list('few', { find: { text: { contains: 'o' } } });
          expect(status).toBe(200);
          ownersScans += 1;
        }
      };
      await Promise.all([...Array.from({ length: strangers }, scan), ownersScan()]);
    },
  });
  expect(scans).toBeGreaterThanOrEqual(strangers);
  expect(ownersScans).toBeGreaterThan(5);
  // Right after them, without a wait for anything that they had asked for.
  const read = await eventually(async () => {
    const answer = await send(arena.url, 'GET', scanPath(scans++).replace('/api', ''));
    return answer.status === 200 && answer;
  }, 8_000);
  expect(read.body).toMatchObject({ total: 0 });
});
