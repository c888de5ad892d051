import { randomUUID } from 'node:crypto';
import { execute, rows } from '@granary/shared/postgres/pool';
import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { renderMetrics } from '@granary/shared/telemetry/metrics';
import { eventuallyResolves } from '@granary/testing/eventually';
import { openAccounts } from '../src/ledger/accounts';
import { holdTransfer, postHold, postTransfer } from './support/ledger';
import { arePayoutsPaused } from '../src/payouts/pause';
import { resumePayouts, verifyLedger } from '../src/reconciliation/verify-ledger';
import { call, startTestFinance, type TestFinance } from './support/harness';

let finance: TestFinance;
let wallet: string;
let other: string;
beforeEach(async () => {
  finance = await startTestFinance();
  [wallet, other] = [`app:a${randomUUID().slice(0, 8)}`, `app:b${randomUUID().slice(0, 8)}`];
  await openAccounts(finance.pool, [
    { id: 'chain:test', unit: 'utia', mayOverdraw: true },
    { id: wallet, unit: 'utia', mayOverdraw: false },
    { id: other, unit: 'utia', mayOverdraw: false },
  ]);
  await postTransfer(finance.pool, movement('chain:test', wallet, 1_000n, 'deposit'));
  await postTransfer(finance.pool, movement(wallet, other, 300n, 'spend'));
  await holdTransfer(finance.pool, movement(wallet, other, 100n, 'spend'));
});
afterEach(() => finance.stop());

const movement = (debitAccount: string, creditAccount: string, amount: bigint, kind: string) => ({
  id: randomUUID(),
  debitAccount,
  creditAccount,
  amount,
  kind,
  ref: '',
});

const verified = () => verifyLedger(finance.pool, () => undefined);
const ledgerHealth = async () => (await finance.health.check({}, call())).parts.find(({ name }) => name === 'ledger')!;
const openDifferences = () =>
  rows<{ kind: string; subject: string; expected: string; found: string }>(
    finance.pool,
    sql`select kind, subject, expected, found from difference where resolved_at is null order by kind, subject`,
  );

/** Changes what no code may change, as a defect or a person in the database could. */
async function tamper(statement: Sql): Promise<void> {
  const run = (text: string) => execute(finance.pool, trusted(text));
  await run('grant update on transfer to current_user');
  for (const table of ['account', 'transfer']) await run(`alter table ${table} disable trigger user`);
  await execute(finance.pool, statement);
  for (const table of ['account', 'transfer']) await run(`alter table ${table} enable trigger user`);
  await run('revoke update on transfer from current_user');
}

/** Resolves once reconciliation has run over everything that is there now. */
async function reconciled(): Promise<void> {
  const last = async () =>
    (await rows<{ at: Date | null }>(finance.pool, sql`select ended_at as at from reconciliation`))[0]!.at?.getTime() ??
    0;
  // The run that is under way may have begun before.
  for (let run = 0; run < 2; run++) {
    const before = await last();
    await eventuallyResolves(async () => expect(await last()).toBeGreaterThan(before));
  }
}

const counters = [
  'debits_pending',
  'debits_posted',
  'credits_pending',
  'credits_posted',
  'payouts_pending',
  'payouts_posted',
];

test.each(counters)('a wrong %s pauses payouts, degrades health, and is found by both ways', async (counter) => {
  await reconciled();
  expect(await ledgerHealth()).toMatchObject({ status: 'HEALTHY' });
  expect((await verified()).differences).toEqual([]);
  expect(await arePayoutsPaused(finance.pool)).toBe(false);

  await tamper(sql`update account set ${trusted(counter)} = ${trusted(counter)} + 7 where id = ${wallet}`);
  const subject = `${wallet} ${counter}`;
  await eventuallyResolves(async () =>
    expect(await openDifferences()).toContainEqual(expect.objectContaining({ kind: 'counter', subject })),
  );
  const [found] = (await openDifferences()).filter((each) => each.subject === subject && each.kind === 'counter');
  expect(BigInt(found!.found) - BigInt(found!.expected)).toBe(7n);
  expect(await arePayoutsPaused(finance.pool)).toBe(true);
  await eventuallyResolves(async () =>
    expect(await ledgerHealth()).toMatchObject({
      status: 'DEGRADED',
      message: expect.stringContaining('counter (1)') as string,
    }),
  );
  // Everybody may read health.
  expect((await ledgerHealth()).message).not.toContain(wallet);
  expect(await renderMetrics()).toContain('granary_ledger_differences{kind="counter"} 1');

  const verification = await verified();
  expect(verification.differences).toContainEqual({
    kind: 'counter',
    subject,
    expected: BigInt(found!.expected),
    found: BigInt(found!.found),
  });
  expect(await resumePayouts(finance.pool, verification)).toBe(0);
  expect(await arePayoutsPaused(finance.pool)).toBe(true);

  await tamper(sql`update account set ${trusted(counter)} = ${trusted(counter)} - 7 where id = ${wallet}`);
  await reconciled();
  // Whether it is right again is for a person to say.
  expect(await arePayoutsPaused(finance.pool)).toBe(true);
  expect(await resumePayouts(finance.pool, await verified())).toBeGreaterThan(0);
  await reconciled();
  expect(await arePayoutsPaused(finance.pool)).toBe(false);
  await eventuallyResolves(async () => expect(await ledgerHealth()).toMatchObject({ status: 'HEALTHY' }));
});

const rowsThatAreWrong: Array<[what: string, kind: string, plant: () => Sql]> = [
  ['a hold that is missing from the open ones', 'hold', () => sql`delete from open_hold`],
  [
    'an entry that the counters do not have',
    'counter',
    () => sql`insert into transfer (id, debit_account, credit_account, amount, phase, kind, ref)
      values (${randomUUID()}, ${wallet}, ${other}, 5, 'posted', 'spend', '')`,
  ],
  [
    'a payout that nothing is held for',
    'payout',
    () => sql`with w as (
        insert into wallet (app_id, address_index, address, account_id) values ('someone', 1000, 'address', ${other}) returning app_id
      ) insert into payout (id, app_id, amount, destination, trigger, status)
        select ${randomUUID()}, app_id, 5, 'somewhere', 'manual', 'pending' from w`,
  ],
];

test.each(rowsThatAreWrong)('%s is found by both ways', async (_, kind, plant) => {
  await reconciled();
  await tamper(plant());
  await eventuallyResolves(async () =>
    expect(await openDifferences()).toContainEqual(expect.objectContaining({ kind })),
  );
  expect((await verified()).differences).toContainEqual(expect.objectContaining({ kind }));
});

test('an entry of the past that was changed is found when all entries are added again, and by the command', async () => {
  await reconciled();
  await tamper(sql`update transfer set amount = amount + 1 where kind = 'deposit'`);
  await reconciled();
  expect(await openDifferences()).toEqual([]);
  expect((await verified()).differences).toHaveLength(2);
  await execute(finance.pool, sql`update reconciliation set complete_at = now() - interval '25 hours'`);
  await eventuallyResolves(async () =>
    expect(await openDifferences()).toMatchObject([
      { kind: 'counter', subject: `${wallet} credits_posted`, expected: '1001', found: '1000' },
      { kind: 'counter', subject: 'chain:test debits_posted', expected: '1001', found: '1000' },
    ]),
  );
});

test('beside transfers and holds under way nothing is found, however often it is looked', async () => {
  const accounts = [wallet, other];
  let isOver = false;
  const spender = async (at: number) => {
    for (let round = 0; round < 150; round++) {
      const [debit, credit] = [accounts[(at + round) % 2]!, accounts[(at + round + 1) % 2]!];
      if (round % 3 !== 0)
        await postTransfer(finance.pool, movement(debit, credit, 1n, 'spend')).catch(() => undefined);
      else {
        const hold = movement(debit, credit, 2n, 'spend');
        await holdTransfer(finance.pool, hold)
          .then(() => postHold(finance.pool, { id: randomUUID(), kind: 'spend', holdId: hold.id, amount: 1n }))
          .catch(() => undefined);
      }
    }
  };
  const looking = (async () => {
    while (!isOver) expect((await verified()).differences).toEqual([]);
  })();
  await Promise.all([0, 1, 2].map(spender)).finally(() => (isOver = true));
  await looking;
  await reconciled();
  expect(await openDifferences()).toEqual([]);
  const { accounts: count } = await verified();
  expect(count).toBeGreaterThanOrEqual(3);
});
