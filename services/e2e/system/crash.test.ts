import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { send, type StoreAnswer } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';
import { idsOf, postmasterPid, storedIds, Writing } from './acknowledged-writes';

const killsOfEach = size({ run: 1, long: 2 });
const seed = seedOf('system/crash');
const random = seededRandom(seed);
describe('kill -9 in the middle of writes', () => {
  let dataDir: string;
  let granary: OwnGranary;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'granary-crash-'));
    granary = await OwnGranary.start(dataDir);
  });
  afterAll(async () => {
    await granary.end('SIGTERM');
    await endAllProcesses();
    await rm(dataDir, { recursive: true, force: true });
  });

  const kills: Array<[string, () => Promise<void>]> = [
    [
      'Node',
      async () => {
        await granary.end('SIGKILL');
        granary = await OwnGranary.start(dataDir);
      },
    ],
    [
      'Postgres',
      async () => {
        process.kill(await postmasterPid(dataDir), 'SIGKILL');
      },
    ],
    [
      'both',
      async () => {
        const pid = await postmasterPid(dataDir);
        const gone = granary.end('SIGKILL');
        process.kill(pid, 'SIGKILL');
        await gone;
        granary = await OwnGranary.start(dataDir);
      },
    ],
  ];

  test.each(kills)(
    `after kill -9 of %s by the seed ${seed} every acknowledged write exists once, the heights have no gap, and writes continue`,
    async (what, kill) => {
      for (let round = 0; round < killsOfEach; round++) {
        const writing = new Writing(() => granary, `${what}${round}`);
        await writing.more(50 + Math.floor(random() * 100));
        await kill();
        await writing.more(50);
        await writing.stop();
        const ids = await eventually(async () => storedIds(granary).catch(() => undefined));
        expect(new Set(ids).size).toBe(ids.length);
        const writes = new Set(ids.map((id) => id.split('/')[0]!));
        const missing = [...writing.acknowledged].filter((id) => !writes.has(id));
        expect(missing).toEqual([]);
        // All of a bulk is there or nothing.
        expect(ids).toHaveLength([...writes].flatMap(idsOf).length);
        const { url, app } = granary;
        const last = await send<StoreAnswer>(url, 'POST', '/store', {
          key: app.key,
          body: { root: `${app.appId}::writes`, data: [{ id: `${what}${round}-last` }] },
        });
        expect(last.body.results[0]!.celestia_height).toBe(writes.size + 1);
      }
    },
  );
});
