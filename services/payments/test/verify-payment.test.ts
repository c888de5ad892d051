import { describeWithAnvil } from '@granary/testing/anvil';
import type { EvmNetwork } from '../src/schemes/evm/network';
import { PaymentVerification } from '../src/settlement/verify-payment';
import type { Finding } from '../src/verify/verifier';
import {
  amount,
  anotherPayment,
  newCopy,
  newPayment,
  openNetwork,
  openPlace,
  verifier,
  type Copy,
  type Payment,
  type Place,
} from './support/evm-payments';

describeWithAnvil(describe)('verification on an EVM network', () => {
  let place: Place;
  let network: EvmNetwork;
  let copy: Copy;
  beforeEach(async () => {
    place = await openPlace();
    network = await openNetwork(place, { depthBlocks: 2n });
    copy = newCopy(place, network, { waitMs: 300 });
  });
  afterEach(async () => {
    await copy.settler.stop();
    await place.stop();
  });

  const find = ({ payment, requirement }: Payment): Promise<Finding> => {
    const body = { x402Version: 2, paymentPayload: payment, paymentRequirements: requirement };
    const verification = new PaymentVerification({ presented: { offers: copy.offers, verifier }, claims: copy.claims });
    return verification.verify(Buffer.from(JSON.stringify(body)));
  };
  const unknown = { isValid: false, invalidReason: 'settlement_unavailable' };

  test('a payment is not valid while its network is closed, and where its node fails or is silent', async () => {
    const payment = await newPayment(place, copy);
    const valid = { isValid: true, payer: payment.payer.address };
    expect(await find(payment)).toEqual(valid);
    place.proxy.failsBefore = (method) => method === 'eth_call';
    expect(await find(payment)).toMatchObject(unknown);
    place.proxy.failsBefore = () => false;
    let answer = () => {};
    const silence = new Promise<void>((resolve) => (answer = resolve));
    place.proxy.before = (method) => (method === 'eth_call' ? silence : Promise.resolve());
    expect(await find(payment)).toMatchObject(unknown);
    answer();
    expect(await find(payment)).toEqual(valid);
    await place.anvil.setBalance(place.key.address, 0n);
    await network.watch();
    expect(await find(payment)).toMatchObject(unknown);
  });

  test('the balance counts less what is under way, and a payment that is under way is valid for what it was presented for', async () => {
    const payment = await newPayment(place, copy);
    const other = await anotherPayment(place, copy, payment);
    await place.anvil.call('evm_setAutomine', false);
    expect((await find(other)).isValid).toBe(true);
    expect((await copy.payments.settle(payment.request)).payment).toBeUndefined();
    expect((await find(payment)).isValid).toBe(true);
    const ofOther = { ...payment.requirement, extra: other.requirement.extra };
    const forOther = { payment: { ...payment.payment, accepted: ofOther }, requirement: ofOther };
    expect(await find({ ...payment, ...forOther })).toMatchObject({ invalidReason: 'payment_already_used' });
    expect(await find(other)).toMatchObject({ isValid: false, invalidReason: 'insufficient_funds' });
    expect(await place.anvil.tokenBalance(payment.payer.address)).toBe(amount);
  });
});
