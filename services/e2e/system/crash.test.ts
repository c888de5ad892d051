import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { send, type ListAnswer, type StoreAnswer } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';

async function postmasterPid(dataDir: string): Promise<number> {
  return Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

const killsOfEach = size({ run: 1, long: 2 });
const seed = seedOf('system/crash');
const random = seededRandom(seed);
const writers = 6;
/** Of them so many write bulks, which are copied while others are under way. */
const bulkWriters = 3;
const bulkCount = 150;
const padding = 'x'.repeat(1_000);

/** The ids of one write: of a bulk, those of its documents. */
const idsOf = (write: string): string[] =>
  write.startsWith('bulk') ? Array.from({ length: bulkCount }, (_, n) => `${write}/${n}`) : [write];

/** Writers that go on until told to stop; what was answered with 202 must be there for ever. */
class Writing {
  readonly acknowledged = new Set<string>();
  private stopped = false;
  private readonly loops: Array<Promise<void>>;

  constructor(granary: () => OwnGranary, round: string) {
    this.loops = Array.from({ length: writers }, async (_, writer) => {
      for (let n = 0; !this.stopped; n++) {
        const id = `${writer < bulkWriters ? 'bulk' : 'one'}-${round}-${writer}-${n}`;
        const { url, app } = granary();
        // A connection that is refused or cut has no answer: nothing is known of that write.
        const answer = await send<StoreAnswer>(url, 'POST', '/store', {
          key: app.key,
          body: { root: `${app.appId}::writes`, data: idsOf(id).map((one) => ({ id: one, n, padding })) },
        }).catch(() => undefined);
        if (answer?.status === 202) this.acknowledged.add(id);
        else await new Promise((resolve) => setTimeout(resolve, 10));
      }
    });
  }

  /** Resolves when so many more writes were acknowledged. */
  async more(count: number): Promise<void> {
    const goal = this.acknowledged.size + count;
    await eventually(async () => this.acknowledged.size >= goal, 30_000);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.loops);
  }
}

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

  const all = async (): Promise<string[]> => {
    const { url, app } = granary;
    const ids: string[] = [];
    for (let offset = 0; ; offset += 10_000) {
      const answer = await send<ListAnswer<{ id: string }>>(url, 'POST', '/list', {
        key: app.key,
        body: {
          root: `${app.appId}::writes`,
          include_history: true,
          sort: ['id'],
          select: ['id'],
          limit: 10_000,
          offset,
        },
      });
      expect(answer.status).toBe(200);
      ids.push(...answer.body.records.map(({ id }) => id));
      if (answer.body.records.length < 10_000) return ids;
    }
  };

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
        const ids = await eventually(async () => all().catch(() => undefined));
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
