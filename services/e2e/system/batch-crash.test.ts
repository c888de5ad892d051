import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually } from '@granary/testing/eventually';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { send, type ListAnswer } from '../support/granary';
import { endAllProcesses, OwnGranary } from '../support/own-process';

const run = promisify(execFile);

const kills = size({ run: 10, long: 40 });
const seed = seedOf('system/batch-crash');
const writers = 6;
const creations = 15;
/** A batch is sent again until it has an answer, but every fourth is given up when it gets none. */
const abandonedEvery = 4;

interface Result {
  status: number;
  result?: { id: string; version: number; celestia_height: number };
}

interface Batch {
  name: string;
  key: string;
  body: { operations: object[]; atomic: boolean };
  /** Undefined while it is not known. */
  results?: Result[];
}

/**
 * - `atomic`: documents in two collections and a counter, together.
 * - `separate`: the same with an operation that is refused.
 * - `ordered`: a document is created and updated, in commits of their own.
 */
const kinds = ['atomic', 'separate', 'ordered'] as const;

/** The `n`th batch of a writer, whose counter is at `n` before it. */
function batchOf(kind: (typeof kinds)[number], writer: string, n: number): Batch {
  const name = `${kind}-${writer}-${n}`;
  const create = (collection: string, id: string) => ({ operation: 'create', collection, data: { id, name } });
  const ids = Array.from({ length: creations }, (_, at) => `${name}/${at}`);
  const count = { operation: 'update', collection: 'counters', data: { id: writer, n: n + 1 }, conditions: { n } };
  const refused = { operation: 'update', collection: 'left', data: { id: 'missing', n } };
  const update = { operation: 'update', collection: 'left', data: { id: ids[0], updated: true } };
  const more = kind === 'separate' ? [refused] : kind === 'ordered' ? [update] : [];
  const operations = [...ids.flatMap((id) => [create('left', id), create('right', id)]), ...more, count];
  return { name, key: randomUUID(), body: { operations, atomic: kind === 'atomic' } };
}

/** Documents, or versions of them, by their ids. */
function byId(all: readonly Stored[]): ReadonlyMap<string, readonly Stored[]> {
  const found = new Map<string, Stored[]>();
  for (const one of all) {
    const others = found.get(one.id);
    if (others) others.push(one);
    else found.set(one.id, [one]);
  }
  return found;
}

const isUnavailable = (status: number): boolean => [429, 503, 504].includes(status);

/** Writers that go on until they are stopped. */
class Writing {
  readonly batches: Batch[] = [];
  readonly counters = new Map<string, number>();
  private answered = 0;
  private stopped = false;
  private readonly loops: Array<Promise<void>>;

  constructor(
    private readonly granary: () => OwnGranary,
    round: string,
  ) {
    this.loops = Array.from({ length: writers }, (_, at) => this.write(kinds[at % kinds.length]!, `${round}-${at}`));
  }

  /** Resolves when so many more batches have an answer. */
  async more(count: number): Promise<void> {
    const goal = this.answered + count;
    await eventually(async () => this.answered >= goal, 60_000);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all(this.loops);
  }

  /** Undefined where no answer came, or that the service is not available. */
  async post(path: string, key: string, body: object): Promise<{ status: number; body: unknown } | undefined> {
    const { url, app } = this.granary();
    const headers = { 'Idempotency-Key': key };
    const answer = await send<unknown>(url, 'POST', path, { key: app.key, body, headers }).catch(() => undefined);
    return answer && isUnavailable(answer.status) ? undefined : answer;
  }

  /** Undefined also where operations that are commits of their own have none: a repeated batch completes them. */
  async send(batch: Batch): Promise<{ status: number; body: unknown } | undefined> {
    const answer = await this.post(`/api/apps/${this.granary().app.appId}/batch`, batch.key, batch.body);
    const results = Array.isArray(answer?.body) ? (answer.body as Result[]) : [];
    return results.some(({ status }) => isUnavailable(status)) ? undefined : answer;
  }

  private async write(kind: (typeof kinds)[number], writer: string): Promise<void> {
    const root = `${this.granary().app.appId}::counters`;
    const counter = { root, data: [{ id: writer, n: 0 }] };
    // One key for all attempts: a counter whose answer was lost would be stored twice.
    const key = randomUUID();
    await eventually(async () => (await this.post('/store', key, counter))?.status === 202, 60_000);
    for (let n = 0, sent = 0; !this.stopped; sent++) {
      const isAbandoned = sent % abandonedEvery === abandonedEvery - 1;
      const batch = batchOf(kind, writer, n);
      this.batches.push(batch);
      const answer = await this.sendUntilAnswered(batch, isAbandoned);
      if (!answer) {
        // Whether it was committed is seen at the end; another writer goes on, with a counter of its own.
        if (!this.stopped) await this.write(kind, `${writer}+`);
        return;
      }
      expect(answer).toMatchObject({ status: 200 });
      batch.results = answer.body as Result[];
      n += 1;
      this.counters.set(writer, n);
      this.answered += 1;
    }
  }

  private async sendUntilAnswered(batch: Batch, isAbandoned: boolean) {
    for (;;) {
      const answer = await this.send(batch);
      if (answer || isAbandoned || this.stopped) return answer;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

interface Stored {
  id: string;
  name?: string;
  n?: number;
  updated?: boolean;
}

describe('kill -9 in the middle of batches', () => {
  let dataDir: string;
  let granary: OwnGranary;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'granary-batches-'));
    granary = await OwnGranary.start(dataDir);
  });
  afterAll(async () => {
    await granary.end('SIGTERM');
    await endAllProcesses();
    await rm(dataDir, { recursive: true, force: true });
  });

  const isOfDirectory = (pid: number) =>
    run('ps', ['-o', 'args=', '-p', String(pid)]).then(
      ({ stdout }) => stdout.includes(dataDir),
      () => false,
    );
  /** The Postgres that was killed last. */
  let killedPid = 0;
  const killPostgres = async () => {
    const file = join(dataDir, 'postgres', 'postmaster.pid');
    // Another one than that, which has written its file; ids of processes are used again.
    const pid = await eventually(async () => {
      const found = Number((await readFile(file, 'utf8').catch(() => '')).split('\n')[0]);
      return found !== 0 && found !== killedPid && (await isOfDirectory(found)) && found;
    });
    process.kill(pid, 'SIGKILL');
    killedPid = pid;
  };
  const killNode = async () => {
    await granary.end('SIGKILL');
    granary = await OwnGranary.start(dataDir);
  };

  /** All versions in a collection whose ids begin with that of the round. */
  const versions = async (collection: string, sort: string[]): Promise<Stored[]> => {
    const { url, app } = granary;
    const found: Stored[] = [];
    for (let offset = 0; ; offset += 10_000) {
      const page = { sort, limit: 10_000, offset, include_history: true };
      const body = { root: `${app.appId}::${collection}`, ...page };
      const answer = await send<ListAnswer<Stored>>(url, 'POST', '/list', { key: app.key, body });
      expect(answer.status).toBe(200);
      found.push(...answer.body.records);
      if (answer.body.records.length < 10_000) return found;
    }
  };

  async function checkBatches(writing: Writing): Promise<void> {
    const { batches, counters } = writing;
    const [left, right, counted] = await eventually(
      () =>
        Promise.all([versions('left', ['id']), versions('right', ['id']), versions('counters', ['id', 'n'])]).catch(
          () => undefined,
        ),
      60_000,
    );
    const [leftById, rightById, countedById] = [byId(left), byId(right), byId(counted)];
    for (const { name, results } of batches) {
      const ids = Array.from({ length: creations }, (_, at) => `${name}/${at}`);
      const isThere = [...ids.map((id) => leftById.has(id)), ...ids.map((id) => rightById.has(id))];
      const isOrdered = name.startsWith('ordered');
      // Of an abandoned batch each operation is there or not; of those that commit together all or none.
      if (results) expect([name, isThere]).toEqual([name, isThere.map(() => true)]);
      else if (!isOrdered) expect([name, new Set(isThere).size]).toEqual([name, 1]);
      for (const [at, id] of ids.entries()) {
        const ofLeft = leftById.get(id) ?? [];
        const isUpdated = isOrdered && at === 0;
        if (results && isUpdated) expect(ofLeft.filter(({ updated }) => updated)).toHaveLength(1);
        expect(ofLeft.length).toBeLessThanOrEqual(isUpdated ? 2 : 1);
        for (const stored of ofLeft) expect(stored).toMatchObject({ id, name });
        expect((rightById.get(id) ?? []).length).toBeLessThanOrEqual(1);
      }
    }
    // Each batch counted once, however often it was sent.
    for (const [writer, n] of counters) {
      const values = countedById.get(writer)!.map((stored) => stored.n!);
      expect([writer, values.slice(0, n + 1)]).toEqual([writer, Array.from({ length: n + 1 }, (_, at) => at)]);
      expect(values.length).toBeLessThanOrEqual(n + 2);
    }
    const answered = batches.filter(({ results }) => results);
    for (const batch of answered.slice(-10)) {
      expect(await writing.send(batch)).toMatchObject({ status: 200, body: batch.results! });
    }
  }

  test(
    `after ${kills} times kill -9 by the seed ${seed} operations are there whole or not, atomic batches with all of theirs, and answers stand`,
    async () => {
      const random = seededRandom(seed);
      const writing = new Writing(() => granary, 'round');
      try {
        for (let killed = 1; killed <= kills; killed++) {
          await writing.more(2 + Math.floor(random() * 5));
          // An instance gives up when its Postgres has crashed five times in a minute.
          if (killed % 5 !== 0) await killPostgres();
          else if (killed % 10 !== 0) await killNode();
          else await Promise.all([killPostgres(), killNode()]);
        }
        await writing.more(12);
      } finally {
        await writing.stop();
      }
      await checkBatches(writing);
    },
    sizedLimitMs(limitMs(300_000)),
  );
});
