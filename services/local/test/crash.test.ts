import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { eventually, send, type ListAnswer, type StoreAnswer } from './granary';

/** `npm start` without the building: the process that is killed runs the sources of this checkout. */
class Started {
  private constructor(
    private readonly child: ChildProcess,
    readonly url: string,
    readonly app: { appId: string; key: string },
  ) {}

  static async on(dataDir: string): Promise<Started> {
    const source = join(__dirname, '..', 'src', 'main.ts');
    const child = spawn(
      process.execPath,
      ['--conditions', 'source', '--require', join(__dirname, 'from-source.js'), source],
      {
        env: { ...process.env, PORT: '0', DATA_DIR: dataDir, LOG_LEVEL: 'error' },
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const url = await new Promise<string>((resolve, reject) => {
      const lines: string[] = [];
      createInterface({ input: child.stdout }).on('line', (line) => {
        lines.push(line);
        const ready = /^Granary is ready at (\S+)/.exec(line);
        if (ready) resolve(ready[1]!);
      });
      child.once('exit', (code) => reject(new Error(`it ended with ${code} before it was ready: ${lines.join('\n')}`)));
    });
    const app = JSON.parse(await readFile(join(dataDir, 'demo-app.json'), 'utf8')) as { appId: string; key: string };
    return new Started(child, url, app);
  }

  kill(signal: NodeJS.Signals): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return Promise.resolve();
    return new Promise((resolve) => {
      this.child.once('exit', () => resolve());
      this.child.kill(signal);
    });
  }
}

async function postmasterPid(dataDir: string): Promise<number> {
  return Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);
}

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

  constructor(granary: () => Started, round: string) {
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
  let granary: Started;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'granary-crash-'));
    granary = await Started.on(dataDir);
  });
  afterAll(async () => {
    await granary.kill('SIGTERM');
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
        await granary.kill('SIGKILL');
        granary = await Started.on(dataDir);
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
        const gone = granary.kill('SIGKILL');
        process.kill(pid, 'SIGKILL');
        await gone;
        granary = await Started.on(dataDir);
      },
    ],
  ];

  test.each(kills)(
    'of %s: every acknowledged write is there once, the heights have no gap, and writing goes on',
    async (what, kill) => {
      for (let round = 0; round < 2; round++) {
        const writing = new Writing(() => granary, `${what}${round}`);
        await writing.more(100);
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
