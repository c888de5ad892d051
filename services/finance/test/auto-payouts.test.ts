import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { eventually } from '@granary/testing/eventually';
import { transferId } from '@granary/shared/money/transfer-id';
import { postTransfer } from './support/ledger';
import { startAutoPayouts } from '../src/payouts/auto-payouts';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import { getWallet } from '../src/wallets/wallet';
import { financePool } from './support/harness';
import { newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

let pool: Pool;
let bench: PayoutBench;
beforeEach(async () => {
  ({ pool } = await financePool(4));
  bench = await openPayoutBench(pool);
  await getWallet(bench.wallets, 'shop');
  const deposit = { id: transferId(new Date(0), 'deposit', 'shop'), kind: 'deposit', ref: '', amount: 100_000n };
  await postTransfer(pool, { ...deposit, debitAccount: bench.chainAccount, creditAccount: 'app:shop' });
  await execute(pool, sql`update wallet set auto_payout_enabled = true, payout_destination = ${newAddress()}`);
});
afterEach(() => pool.end());

const pauseLock = 4_711;

/** Lets `startAutoPayouts` wait in its first statement: after the statement has begun, before it locks wallets. */
async function pauseBeforeLocks(): Promise<void> {
  await pool.query('alter table deleted_app rename to closed_app');
  await pool.query(`create function pause() returns boolean language plpgsql volatile as $$
    begin perform pg_advisory_xact_lock_shared(${pauseLock}); return false; end $$`);
  await pool.query(`create view deleted_app as select app_id from closed_app union all select 'none' where pause()`);
}

const isPaused = async (): Promise<boolean> =>
  (await row(pool, sql`select from pg_locks where locktype = 'advisory' and objid = ${pauseLock} and not granted`)) !==
  undefined;

test('an automatic payout that another process starts and ends meanwhile counts: the interval is looked at again', async () => {
  const rules = { floorUtia: 1n, chainAccount: bench.chainAccount };
  await pauseBeforeLocks();
  const { started } = await transaction(pool, async (tx) => {
    await execute(tx, sql`select pg_advisory_xact_lock(${pauseLock})`);
    const starting = startAutoPayouts({ pool, rules, intervalMs: 3_600_000 });
    await eventually(isPaused);
    await transaction(pool, (other) =>
      reservePayouts(other, [{ appId: 'shop', trigger: 'auto', amount: 1_000n }], rules),
    );
    await execute(pool, sql`update payout set status = 'confirmed'`);
    return { started: starting };
  });
  expect(await started).toBe(0);
  expect(await rows(pool, sql`select amount from payout`)).toEqual([{ amount: 1_000n }]);
  // Without an interval there is nothing that keeps the next one.
  expect(await startAutoPayouts({ pool, rules, intervalMs: 0 })).toBe(1);
});
