import { createLogger } from '@granary/shared/logger';
import { CommitUnknownError, isConnectionError } from '@granary/shared/postgres/errors';
import { createPool, rows, type Pool, type PoolOptions } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { singleRoundTripTransaction, transaction } from '@granary/shared/postgres/transaction';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { startPostgresProxy, type PostgresProxy } from '@granary/testing/postgres-proxy';
import { openMultiplexer, readOne } from './support/multiplexer-fixture';

let url: string;
const cleanUps: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  url = (await testDatabase()).url;
});

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function proxied(options: Partial<PoolOptions> = {}): Promise<{ proxy: PostgresProxy; pool: Pool }> {
  const proxy = await startPostgresProxy(url, () => 'pass');
  cleanUps.push(() => proxy.stop());
  const log = createLogger('test', 'silent');
  const pool = createPool({ url: proxy.url, size: 2, applicationName: 'silent-test', log, ...options });
  cleanUps.push(async () => {
    if (!pool.ending) await pool.end();
  });
  return { proxy, pool };
}

/** Long enough for a statement that only waits for a processor. */
const impatient = { statementTimeoutMs: limitMs(400), graceMs: limitMs(200) };

const failure = (answer: Promise<unknown>) =>
  answer.then(
    () => undefined,
    (error: unknown) => error,
  );

const backend = async (pool: Pool) => (await rows<{ pid: number }>(pool, sql`select pg_backend_pid() as pid`))[0]!.pid;

test('when Postgres falls silent, the statements under way fail and the whole pool serves when it answers again', async () => {
  const { proxy, pool } = await proxied(impatient);
  await Promise.all([backend(pool), backend(pool)]);
  expect(pool.totalCount).toBe(2);
  proxy.freeze();
  const errors = await Promise.all([failure(backend(pool)), failure(backend(pool))]);
  expect(errors.filter(isConnectionError)).toHaveLength(2);
  expect(pool.totalCount).toBe(0);
  proxy.thaw();
  expect(await Promise.all([backend(pool), backend(pool)])).toHaveLength(2);
});

test('a commit without an answer has an unknown outcome, and gives its connection back', async () => {
  const { proxy, pool } = await proxied({ ...impatient, size: 1 });
  const committing = failure(
    transaction(pool, async (tx) => {
      await tx.query('select 1');
      proxy.freeze();
    }),
  );
  expect(await committing).toBeInstanceOf(CommitUnknownError);
  proxy.thaw();
  expect(await backend(pool)).toBeGreaterThan(0);
});

test('a connection that is given up while Postgres is silent is closed, and does not stay half open', async () => {
  const { proxy, pool } = await proxied({ size: 1 });
  const connection = await pool.connect();
  let isClosed = false;
  connection.once('end', () => (isClosed = true));
  connection.release();
  proxy.freeze();
  await pool.end();
  await eventually(() => Promise.resolve(isClosed || undefined), 8_000);
});

test('a connection is kept as long as its statements may take, in a transaction with its own timeout or in a pipeline', async () => {
  const { pool } = await proxied({ ...impatient, size: 1 });
  const before = await backend(pool);
  // In all longer than a single statement may take and be silent, each far less than it may take.
  const longMs = Math.round(1.2 * (impatient.statementTimeoutMs + impatient.graceMs));
  await transaction(pool, (tx) => tx.query(`select pg_sleep(${longMs / 1_000})`), { statementTimeoutMs: 20 * longMs });
  const steps = Array.from({ length: 12 }, () => sql`select pg_sleep(${longMs / 12_000})`);
  await singleRoundTripTransaction(pool, steps);
  expect(await backend(pool)).toBe(before);
});

test('a connection is replaced after its lifetime, in a pool as in a multiplexer', async () => {
  const { pool } = await proxied({ size: 1, lifetimeMs: 200 });
  const { multiplexer, logged } = openMultiplexer(url, { size: 1, lifetimeMs: 200 });
  cleanUps.push(() => multiplexer.end());
  const first = { pool: await backend(pool), multiplexer: await readOne(multiplexer, 'select pg_backend_pid()') };
  await eventually(async () => (await backend(pool)) !== first.pool || undefined);
  await eventually(
    async () => (await readOne(multiplexer, 'select pg_backend_pid()')) !== first.multiplexer || undefined,
  );
  expect(logged).toEqual([]);
});

test('no statement fails while connections of a multiplexer are replaced', async () => {
  const { multiplexer } = openMultiplexer(url, { size: 2, lifetimeMs: 40 });
  cleanUps.push(() => multiplexer.end());
  const pids = new Set<string | null | undefined>();
  await eventually(async () => {
    const answers = Array.from({ length: 50 }, () => readOne(multiplexer, 'select pg_backend_pid()'));
    for (const pid of await Promise.all(answers)) pids.add(pid);
    return pids.size > 6 || undefined;
  });
});
