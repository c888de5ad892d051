import { idempotencyMigrations } from '@granary/shared/idempotency/migrations';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { once } from '@granary/shared/idempotency/once';
import { trimAnswers } from '@granary/shared/idempotency/trim';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { createLogger } from '@granary/shared/logger';
import { testDatabase } from '@granary/testing/database';

let pool: Pool;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 4, applicationName: 'idempotency', log: createLogger('test', 'silent') });
  await applyMigrations(pool, 'idempotency', idempotencyMigrations);
});
afterAll(() => pool.end());

const keyOf = (caller: string, key: string, content = 'a') => ({
  caller,
  key,
  method: 'POST',
  path: '/x',
  contentHash: Buffer.from(content),
});
interface Changed {
  n: number;
  replayed?: boolean;
}
const change = (key: ReturnType<typeof keyOf>, answer: Changed) =>
  transaction(pool, (tx) => once(tx, key, () => Promise.resolve(answer)));
const usage = () =>
  rows(
    pool,
    sql`select owner, keys::int, answer_bytes::int as bytes from idempotency_usage where keys > 0 order by owner`,
  );
const age = () => pool.query(`update idempotency set at = at - interval '25 hours'`);

test('answers are counted for all keys of an app together, and trimmed with their counts after 24 hours', async () => {
  expect(await change(keyOf('app/7/default', 'a'), { n: 1 })).toEqual({ n: 1 });
  expect(await change(keyOf('app/7/default', 'a'), { n: 2 })).toEqual({ n: 1, replayed: true });
  await change(keyOf('app/7/a/name', 'a'), { n: 1 });
  await change(keyOf('operator', 'a'), { n: 1 });
  const one = { keys: 1, bytes: 7 };
  expect(await usage()).toEqual([
    { owner: 'app/7', keys: 2, bytes: 14 },
    { owner: 'operator', ...one },
  ]);

  await age();
  expect(await change(keyOf('app/7/default', 'a', 'other'), { n: 23 })).toEqual({ n: 23 });
  expect(await usage()).toEqual([
    { owner: 'app/7', keys: 2, bytes: 15 },
    { owner: 'operator', ...one },
  ]);
  await trimAnswers(pool);
  expect(await usage()).toEqual([{ owner: 'app/7', keys: 1, bytes: 8 }]);
  expect(await change(keyOf('app/7/default', 'a', 'other'), { n: 3 })).toEqual({ n: 23, replayed: true });
});

test('a change that is rolled back leaves neither an answer nor a count', async () => {
  const before = await usage();
  const failing = transaction(pool, async (tx) => {
    await once<Changed>(tx, keyOf('app/8/default', 'a'), () => Promise.resolve({ n: 1 }));
    throw new Error('later');
  });
  await expect(failing).rejects.toThrow('later');
  expect(await usage()).toEqual(before);
  expect(await change(keyOf('app/8/default', 'a', 'other'), { n: 2 })).toEqual({ n: 2 });
});

test('answers that a running change has locked are left out of a trim, which does not wait for them', async () => {
  await change(keyOf('app/9/default', 'a'), { n: 1 });
  await change(keyOf('app/9/default', 'b'), { n: 1 });
  await age();
  await transaction(pool, async (tx) => {
    await once<Changed>(tx, keyOf('app/9/default', 'a'), async () => {
      await trimAnswers(pool);
      return { n: 2 };
    });
  });
  const { rows: left } = await pool.query<{ key: string }>(
    `select key from idempotency where caller = 'app/9/default'`,
  );
  expect(left).toEqual([{ key: 'a' }]);
  expect(await usage()).toContainEqual({ owner: 'app/9', keys: 1, bytes: 7 });
});
