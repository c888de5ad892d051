import { randomUUID } from 'node:crypto';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { openAccounts } from '../src/ledger/accounts';
import { listMovements } from '../src/ledger/movements';
import { financePool } from './support/harness';
import { holdTransfer, postHold, postTransfer, voidHold } from './support/ledger';

let pool: Pool;
beforeAll(async () => {
  ({ pool } = await financePool(2));
});
afterAll(() => pool.end());

/** An account with its world. */
async function newAccount(): Promise<{ world: string; account: string }> {
  const [world, account] = [`chain:${randomUUID()}`, `app:${randomUUID()}`];
  await openAccounts(pool, [
    { id: world, unit: 'utia', mayOverdraw: true },
    { id: account, unit: 'utia', mayOverdraw: false },
  ]);
  return { world, account };
}

const movement = (debitAccount: string, creditAccount: string, amount: bigint) => ({
  id: randomUUID(),
  debitAccount,
  creditAccount,
  amount,
  kind: 'test',
  ref: `for ${amount}`,
});

/** The pages of an account, of signed amounts. */
async function pagesOf(account: string, limit: number): Promise<bigint[][]> {
  const pages: bigint[][] = [];
  for (let cursor = ''; ;) {
    const { entries, nextCursor } = await listMovements(pool, account, { limit, cursor });
    pages.push(entries.map(({ amount, isCredit }) => (isCredit ? amount : -amount)));
    if (nextCursor === '') return pages;
    cursor = nextCursor;
  }
}

test('what has moved is listed from both sides, the newest first; holds, releases and amounts of 0 are not', async () => {
  const { world, account } = await newAccount();
  expect(await pagesOf(account, 3)).toEqual([[]]);
  await postTransfer(pool, { ...movement(account, world, 9n), atMost: true });
  await postTransfer(pool, movement(world, account, 100n));
  const [posted, voided] = [movement(account, world, 30n), movement(account, world, 20n)];
  for (const hold of [posted, voided]) await holdTransfer(pool, hold);
  expect(await pagesOf(account, 3)).toEqual([[100n]]);
  await postHold(pool, { id: randomUUID(), kind: 'test', holdId: posted.id, amount: 25n });
  await voidHold(pool, { id: randomUUID(), kind: 'test', holdId: voided.id });
  await postTransfer(pool, movement(account, world, 7n));
  const all = [-7n, -25n, 100n];
  for (const limit of [1, 2, 3, 4]) expect((await pagesOf(account, limit)).flat()).toEqual(all);
  expect(await pagesOf(account, 3)).toEqual([all]);
  expect(await pagesOf(world, 2)).toEqual([[7n, 25n], [-100n]]);
  const { entries } = await listMovements(pool, account, { limit: 1, cursor: '' });
  expect(entries).toMatchObject([{ kind: 'test', ref: 'for 7', isCredit: false, createdAt: expect.any(Date) as Date }]);
});

test('any number of holds between two movements ends a page early, and hides nothing', async () => {
  const { world, account } = await newAccount();
  for (const amount of [1n, 2n, 3n]) await postTransfer(pool, movement(world, account, amount));
  const release = (count: number) =>
    execute(
      pool,
      sql`insert into transfer (id, debit_account, credit_account, amount, phase, kind, ref, pending_id)
          select gen_random_uuid(), ${account}, ${world}, 1, 'void', 'test', '', gen_random_uuid()
          from generate_series(1, ${count})`,
    );
  await release(4_999);
  expect(await pagesOf(account, 2)).toEqual([[3n], [2n, 1n]]);
  await postTransfer(pool, movement(world, account, 4n));
  await release(12_000);
  for (const limit of [1, 2, 1_000]) expect((await pagesOf(account, limit)).flat()).toEqual([4n, 3n, 2n, 1n]);
  expect((await pagesOf(account, 1_000)).map(({ length }) => length)).toEqual([0, 0, 1, 3]);
});

test('a cursor of something else is refused', async () => {
  for (const key of [[], [1], ['x'], ['1', '2'], ['1'.repeat(19)]]) {
    const cursor = Buffer.from(JSON.stringify(key)).toString('base64url');
    await expect(listMovements(pool, 'app:a', { limit: 1, cursor })).rejects.toMatchObject({
      reason: 'INVALID_CURSOR',
    });
  }
});
