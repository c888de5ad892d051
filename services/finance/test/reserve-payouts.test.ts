import { transaction } from '@granary/shared/postgres/transaction';
import { transferId } from '@granary/shared/money/transfer-id';
import { postTransfer } from './support/ledger';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import { getWallet } from '../src/wallets/wallet';
import { financePool } from './support/harness';
import { newAddress, openPayoutBench } from './support/payout-copies';

test('of payouts of one wallet that are reserved together, those that are no longer covered are refused by themselves', async () => {
  const { pool } = await financePool(2);
  const bench = await openPayoutBench(pool);
  await getWallet(bench.wallets, 'shop');
  const gift = { id: transferId(new Date(0), 'deposit', 'shop'), kind: 'deposit', ref: '', amount: 1_000n };
  await postTransfer(pool, { ...gift, debitAccount: bench.chainAccount, creditAccount: 'app:shop' });
  const request = (amount: bigint) => ({
    appId: 'shop',
    trigger: 'manual' as const,
    amount,
    destination: newAddress(),
  });
  const reserved = await transaction(pool, (tx) =>
    reservePayouts(tx, [600n, 600n, 400n, 1n].map(request), { floorUtia: 1n, chainAccount: bench.chainAccount }),
  );
  expect(reserved.map((each) => (each instanceof Error ? each.reason : each.amountUtia))).toEqual([
    600n,
    'INSUFFICIENT_FUNDS',
    400n,
    'INSUFFICIENT_FUNDS',
  ]);
  expect(await getWallet(bench.wallets, 'shop')).toMatchObject({ available: 0n, pendingPayouts: 1_000n });
  await pool.end();
});
