import { rotateQuoteKeys, storedQuoteKeys } from '@granary/payments/quotes/quote-keys';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { openPaymentsPool } from './support/payments-pool';

let pool: Pool;
beforeAll(async () => {
  pool = await openPaymentsPool(10);
});
afterAll(() => pool.end());

/** What a process that starts now knows. */
const known = () => storedQuoteKeys(pool);
const hex = (keys: readonly Buffer[]) => keys.map((key) => key.toString('hex'));
const dayPasses = (days: number) =>
  execute(pool, sql`update quote_key set valid_from = valid_from - ${days} * interval '1 day'`);

test('processes that start at once agree on one key, which none of them replaces before its time', async () => {
  const keys = await Promise.all(Array.from({ length: 5 }, () => known().current()));
  expect(new Set(hex(keys)).size).toBe(1);
  await Promise.all(Array.from({ length: 5 }, () => rotateQuoteKeys(pool)));
  await dayPasses(29);
  await rotateQuoteKeys(pool);
  expect(hex(await known().accepted())).toEqual(hex(keys.slice(0, 1)));
});

test('an old key is replaced once all processes know the new one, and its quotes are read for two days', async () => {
  const [old] = await known().accepted();
  await dayPasses(2);
  await Promise.all(Array.from({ length: 5 }, () => rotateQuoteKeys(pool)));
  const next = await known().accepted();
  expect(hex(next)).toEqual([old!.toString('hex'), expect.any(String)]);
  await dayPasses(1);
  await rotateQuoteKeys(pool);
  expect(hex(await known().accepted())).toEqual(hex(next).reverse());
  await dayPasses(2);
  await rotateQuoteKeys(pool);
  expect(hex(await known().accepted())).toEqual(hex(next.slice(1)));
});

test('keys that were deleted are replaced by one that counts at once', async () => {
  const [old] = await known().accepted();
  await execute(pool, sql`delete from quote_key`);
  const keys = known();
  expect((await keys.current()).equals(old!)).toBe(false);
  expect(await keys.accepted()).toHaveLength(1);
});
