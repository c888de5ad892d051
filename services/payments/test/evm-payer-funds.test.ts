import { pause } from '@granary/shared/concurrency/backoff';
import { ServiceError } from '@granary/shared/errors';
import { rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import {
  amount,
  anotherPayment,
  counted,
  newCopy,
  newPayment,
  openNetwork,
  openPlace,
  tokenCall,
  type Copy,
  type Payment,
  type Place,
} from './support/evm-payments';

/** What a payment comes to when its request is repeated until that is definite: `settled`, or why it is refused. */
async function outcomeOf({ payments }: Copy, { request }: Payment): Promise<string> {
  return eventually(async () => {
    try {
      return (await payments.settle(request)).payment ? 'settled' : undefined;
    } catch (error) {
      if (error instanceof ServiceError && error.reason === 'PAYMENT_REFUSED') return String(error.details['reason']);
      throw error;
    }
  });
}

describeWithAnvil(describe)('payers that have too little for what they present', () => {
  let place: Place;
  let copy: Copy;
  beforeEach(async () => {
    place = await openPlace();
    copy = newCopy(place, await openNetwork(place), { waitMs: 300 });
  });
  afterEach(async () => {
    await copy.settler.stop();
    await place.stop();
  });

  const mining = (is: boolean) => place.anvil.call('evm_setAutomine', is);
  const sent = async (count: number) => {
    const statement = sql`select 1 from evm_transaction where sent_at is not null`;
    await eventually(async () => (await rows(place.pool, statement)).length === count);
  };
  const claimed = async (count: number) => {
    const statement = sql`select 1 from claim where state = 'claimed'`;
    await eventually(async () => (await rows(place.pool, statement)).length === count);
  };
  const newPayments = async (count: number): Promise<Payment[]> => {
    const payments: Payment[] = [];
    for (const _ of counted(count)) payments.push(await newPayment(place, copy));
    return payments;
  };
  /** Beside those for the latest block, which are made as long as anything waits. */
  const calls = () =>
    [...place.proxy.calls]
      .filter(([method]) => method !== 'eth_getBlockByNumber')
      .reduce((sum, [, count]) => sum + count, 0);

  test('the calls to the node grow with the blocks, not with the payments that wait', async () => {
    let total = 0;
    /** How many calls five blocks take that do not have these payments, beside those of the calls before. */
    const callsOf = async (count: number): Promise<number> => {
      await mining(true);
      const payments = await newPayments(count);
      await mining(false);
      for (const { request } of payments) expect((await copy.payments.settle(request)).payment).toBeUndefined();
      total += count;
      await sent(total);
      await place.anvil.call('anvil_dropAllTransactions');
      const before = calls();
      for (const _ of counted(5)) {
        await place.anvil.mine();
        await pause(500);
      }
      return calls() - before;
    };
    expect(await callsOf(1)).toBeGreaterThan(0);
    expect(await callsOf(40)).toBeLessThan(40);
  });

  test('a payer whose transfer has failed has one payment under way beside it, and its others are refused within blocks', async () => {
    const [first, ...others] = await newPayments(4);
    const more: Payment[] = [];
    for (const _ of counted(22)) more.push(await anotherPayment(place, copy, first!));
    await mining(false);
    expect((await copy.payments.settle(first!.request)).payment).toBeUndefined();
    await sent(1);
    await place.anvil.takeAway(first!.payer.address, amount);
    const refused = Promise.all(more.slice(0, 20).map((payment) => outcomeOf(copy, payment)));
    await claimed(20);
    await place.anvil.mine();
    // One whose first refusal nobody has read is presented anew.
    const reasons = ['insufficient_funds', 'too_many_payments'];
    expect((await refused).filter((reason) => !reasons.includes(reason))).toEqual([]);
    const failed = sql`select 1 from claim where state = 'settling' and failed_at is not null`;
    await eventually(async () => (await rows(place.pool, failed)).length === 1);

    // Those of others are settled, and one of this payer at a time, once it has money again.
    await mining(true);
    await place.anvil.mint(first!.payer.address, 2n * amount);
    expect(await Promise.all(others.map((payment) => outcomeOf(copy, payment)))).toEqual(others.map(() => 'settled'));
    await mining(false);
    expect((await copy.payments.settle(more[20]!.request)).payment).toBeUndefined();
    expect(await outcomeOf(copy, more[21]!)).toBe('too_many_payments');
    await mining(true);
    await place.anvil.mine();
    expect(await outcomeOf(copy, more[20]!)).toBe('settled');
    expect(await outcomeOf(copy, more[21]!)).toBe('settled');
    // Nothing was sent for what was refused.
    expect(await place.anvil.transactionCount(place.key.address)).toBe(1 + others.length + 2);
  });

  test('a payment that its payer has sent itself meanwhile is settled by that, though the balance does not cover it any more', async () => {
    const [first] = await newPayments(1);
    const second = await anotherPayment(place, copy, first!);
    await mining(false);
    expect((await copy.payments.settle(first!.request)).payment).toBeUndefined();
    await sent(1);
    const settling = outcomeOf(copy, second);
    await claimed(1);
    await place.anvil.transactFirst(await tokenCall('transferWithAuthorization', second.payload));
    await place.anvil.mine();
    expect(await settling).toBe('settled');
    expect(await place.anvil.tokenBalance(place.payTo)).toBe(amount);
  });
});
