import { GrantPayments, type GrantClient } from '@granary/payments/cosmos/grant-payments';
import { readExactPayment } from '@granary/payments/verify/envelope';
import { readJson, type JsonObject } from '@granary/shared/json/value';

const grant = {
  ...{ grantId: 'g1', address: 'celestia1from', limitUtia: '1000000', spentUtia: '0', allowedApps: [] },
  expiresAt: '2100-01-01T00:00:00Z',
};
const chain = { findGrant: () => Promise.resolve({ grant }) } as unknown as GrantClient;
const networkOf = 'cosmos:mocha-4';

/** What is found of a payment by a key, of that amount, where a deduction has to bring in 1,000 utia. */
async function find(amount: number) {
  const payments = new GrantPayments(
    networkOf,
    () => chain,
    () => new Date(),
    1_000n,
  );
  const accepted = {
    ...{ scheme: 'exact', network: networkOf, amount: String(amount), asset: 'utia', payTo: 'celestia1to' },
    ...{ maxTimeoutSeconds: 300, extra: { app: 'films' } },
  };
  const payload = { userKey: `user_${'k'.repeat(43)}`, deductionId: '00000000-0000-4000-8000-000000000001' };
  const read = (value: object) => readJson(Buffer.from(JSON.stringify(value)), { maxDepth: 8 }) as JsonObject;
  const envelope = { payment: read({ x402Version: 2, accepted, payload }), requirement: read(accepted) };
  return payments.verify(readExactPayment(envelope), { id: 'quote', expiresAtSeconds: 4_000_000_000 });
}

test('a deduction that costs more fees than it brings in is refused, unless it was taken already', async () => {
  expect((await find(1_000)).refusal).toBeUndefined();
  const found = await find(999);
  expect(found.proof).toMatchObject({ amount: '999' });
  expect(found.refusal).toMatchObject({
    reason: 'PAYMENT_REFUSED',
    message: 'Grants pay what costs 1000 utia or more',
    details: { reason: 'amount_below_minimum' },
  });
});
