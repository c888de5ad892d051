import { ServiceError } from '@granary/shared/errors';
import type { Pool } from '@granary/shared/postgres/pool';
import { renderMetrics } from '@granary/shared/telemetry/metrics';
import { eventually } from '@granary/testing/eventually';
import { newApp, storeRequest, type App, type DataService } from './support/data-service';
import { fields, startCopy, startTwoCopies } from './support/write-fixture';

const padding = 'x'.repeat(1_000);
const small = (name: string) => [{ id: name }];
const bulk = (name: string) => Array.from({ length: 150 }, (_, n) => ({ id: `${name}-${n}`, padding }));

interface Answer {
  /** `stored`, or why not. */
  outcome: string;
  height?: number;
  hasCreated?: boolean;
  details?: object;
}

const readWaitingBytes = async (): Promise<number> =>
  Number(/^granary_commit_waiting_bytes (\d+)$/m.exec(await renderMetrics())![1]);

describe('writes that wait for the same head', () => {
  let url: string;
  let pool: Pool;
  let one: DataService;
  let app: App;
  let stop: () => Promise<void>;
  beforeAll(async () => {
    ({ url, pool, one, stop } = await startTwoCopies());
  });
  afterAll(() => stop());
  beforeEach(async () => {
    app = await newApp(one);
  });
  // The memory budget of waiting writes is whole again, whatever became of them.
  afterEach(async () => expect(await readWaitingBytes()).toBe(0));

  async function store(copy: DataService, collection: string, data: object[], more: object = {}): Promise<Answer> {
    try {
      const { createdCollection, resultsJson } = await copy.methods.store(storeRequest(app, collection, data, more));
      const [first] = JSON.parse(resultsJson.toString()) as Array<{ celestia_height: number }>;
      return { outcome: 'stored', height: first!.celestia_height, hasCreated: Boolean(createdCollection) };
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return { outcome: error.reason, details: error.details };
    }
  }

  /** Submits writes while a first one waits for the head, and releases the head once `bytes` wait. */
  async function behindOne(
    copy: DataService,
    bytes: number,
    submit: () => Array<Promise<Answer>>,
    onWaiting = () => {},
  ): Promise<Answer[]> {
    // The head and the collection are cached from here on, so that bulks are preloaded.
    await store(copy, 'films', small('seed-1'));
    await store(copy, 'films', small('seed-2'));
    const holder = await pool.connect();
    await holder.query('begin');
    await holder.query('select from head where app_number = $1 for update', [app.number]);
    const first = store(copy, 'films', small('first'));
    await eventually(async () => {
      const { rowCount } = await pool.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%head%'`,
      );
      return rowCount === 1;
    });
    const answers = submit();
    await eventually(async () => (await readWaitingBytes()) >= bytes);
    onWaiting();
    await holder.query('commit');
    holder.release();
    expect((await first).outcome).toBe('stored');
    return Promise.all(answers);
  }

  /** The heights of the app have no gap; gives the last. */
  async function lastHeight(): Promise<number> {
    const { rows } = await pool.query<{ height: number }>(
      `select height::int as height from a_${app.number}.commits order by ordinal`,
    );
    expect(rows.map(({ height }) => height)).toEqual(rows.map((_, at) => at + 1));
    return rows.length;
  }

  const repeat = (count: number, write: (n: number) => Promise<Answer>) =>
    Array.from({ length: count }, (_, n) => write(n));

  test('of the writes that wait for a new collection the first says that it was created', async () => {
    const answers = await behindOne(one, 300_000, () => [
      ...repeat(10, (n) => store(one, 'new', small(`${n}`))),
      ...repeat(10, (n) => store(one, 'newer', small(`${n}`))),
      store(one, 'newest', bulk('a')),
      store(one, 'newest', bulk('b')),
    ]);
    expect(answers.map(({ outcome }) => outcome)).toEqual(answers.map(() => 'stored'));
    const creators = (from: number, to: number) => answers.slice(from, to).filter(({ hasCreated }) => hasCreated);
    expect([creators(0, 10), creators(10, 20), creators(20, 22)].map(({ length }) => length)).toEqual([1, 1, 1]);
    expect(await lastHeight()).toBe(3 + 22);
  });

  test('a refused write affects no other of its batch', async () => {
    const schemaJson = fields({ email: { type: 'string', unique: true } });
    await one.methods.createCollection({ appId: app.appId, name: 'users', schemaJson, readAccess: 'public' });
    const answers = await behindOne(one, 100, () => [
      store(one, 'new', small('a')),
      store(one, 'users', [{ id: 'a', email: 'same' }]),
      store(one, 'users', [{ id: 'b' }, { id: 'c', email: 'same' }]),
      store(one, 'users', [{ id: 'd', email: 3 }]),
      store(one, 'new', small('b')),
    ]);
    const outcomes = answers.map(({ outcome }) => outcome);
    expect(outcomes).toEqual(['stored', 'stored', 'UNIQUE_VIOLATION', 'SCHEMA_VIOLATION', 'stored']);
    expect(answers[2]!.details).toHaveProperty(['data[1].email']);
    expect(await lastHeight()).toBe(3 + 3);
  });

  test.each([
    ['small writes', () => small('k'), 100],
    ['bulks', () => bulk('k'), 1_200_000],
    ['small writes and bulks', (n: number) => (n % 2 === 0 ? bulk('k') : small('k')), 600_000],
  ])('of %s with one Idempotency-Key one is stored, and the others get its answer', async (name, data, bytes) => {
    const keyed = (content: string) => ({
      idempotency: { caller: 'test', method: 'POST', path: '/store', key: name, contentHash: Buffer.from(content) },
    });
    const answers = await behindOne(one, bytes, () => [
      ...repeat(4, (n) => store(one, 'films', data(n), keyed('same'))),
      ...repeat(4, (n) => store(one, 'new', data(n), keyed('same'))),
      store(one, 'films', small('other'), keyed('other')),
    ]);
    const heights = new Set(answers.flatMap(({ height }) => height ?? []));
    expect(heights.size).toBe(1);
    const refused = answers.filter(({ outcome }) => outcome !== 'stored');
    expect(refused.every(({ outcome }) => outcome === 'IDEMPOTENCY_KEY_REUSED')).toBe(true);
    expect([1, 8]).toContain(refused.length);
    expect(await lastHeight()).toBe(4);
  });

  test('a service that stops answers those that wait, preloaded bulks and what is blocked by them among them', async () => {
    const copy = await startCopy(url, 6);
    let stopped: Promise<void> | undefined;
    const answers = await behindOne(
      copy,
      900_000,
      () =>
        repeat(18, (n) => {
          const name = `b${Math.floor(n / 3)}`;
          if (n % 3 === 0) return store(copy, 'films', bulk(name));
          return store(copy, n % 3 === 1 ? 'films' : name, small(`${name}-7`));
        }),
      () => {
        stopped = copy.stop();
      },
    );
    await stopped;
    expect(answers.map(({ outcome }) => outcome)).toEqual(answers.map(() => 'stored'));
    expect(await lastHeight()).toBe(3 + 18);
  });
});
