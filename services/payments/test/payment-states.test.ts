import { describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import type { Requirement } from '@granary/testing/x402-client';
import { settleRequirements } from '../src/settlement/facilitator';
import { amount, newCopy, newPayment, openNetwork, openPlace, verifier, type Copy } from './support/evm-payments';

/** As a facilitator settles it. */
const facilitate = ({ offers, claims, settler }: Copy, paymentPayload: object, paymentRequirements: Requirement) => {
  const options = { presented: { offers, verifier }, claims, settler };
  const body = Buffer.from(JSON.stringify({ x402Version: 2, paymentPayload, paymentRequirements }));
  return settleRequirements({ ...options, X402_SETTLE: 'own', X402_SETTLE_WAIT_MS: 300 }, body, false);
};

describeWithAnvil(describe)('a payment that takes long to be settled', () => {
  test('its task shows each step, a facilitator that it is pending, and it is settled for one request', async () => {
    const place = await openPlace();
    const { anvil, proxy } = place;
    const copy = newCopy(place, await openNetwork(place), { waitMs: 300 });
    try {
      const { request, requirement, payment } = await newPayment(place, copy, {}, amount, { isUpfront: true });
      const other = await newPayment(place, copy);
      const shows = async (status: string) =>
        eventually(async () => (await copy.payments.state(ticketId)).status === status);
      proxy.failsBefore = () => true;
      const { ticketId, payment: none } = await copy.payments.settle(request);
      expect([none, (await copy.payments.state(ticketId)).status]).toEqual([undefined, 'Pending']);

      await anvil.call('evm_setAutomine', false);
      proxy.failsBefore = (method) => method === 'eth_sendRawTransaction';
      await shows('PaymentBroadcast');
      proxy.failsBefore = () => false;
      await shows('PaymentConfirming');
      const pending = await facilitate(copy, payment, requirement);
      expect(pending).toMatchObject({ success: false, errorReason: 'settlement_pending' });
      expect(pending.transaction).toMatch(/^0x[0-9a-f]{64}$/);
      expect((await copy.payments.settle(request)).payment).toBeUndefined();

      await anvil.mine();
      await shows('PaymentConfirmed');
      const { transaction } = pending;
      for (const _ of [0, 1]) {
        expect(await facilitate(copy, payment, requirement)).toMatchObject({ success: true, transaction });
      }
      const elsewhere = { ...payment, accepted: other.requirement };
      const duplicate = { success: false, errorReason: 'duplicate_settlement', transaction: '' };
      expect(await facilitate(copy, elsewhere, other.requirement)).toMatchObject(duplicate);
      await shows('PaymentConfirmed');

      expect((await copy.payments.settle(request)).payment).toMatchObject({ transaction });
      await shows('StoringData');
      await copy.payments.redeem(ticketId);
      await shows('Completed');
      expect(await anvil.tokenBalance(place.payTo)).toBe(amount);
    } finally {
      await copy.settler.stop();
      await place.stop();
    }
  });
});
