import { row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { Anvil, describeWithAnvil, NodeProxy } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import {
  amount,
  log,
  newCopy,
  newPayment,
  openNetwork,
  openPlace,
  type Copy,
  type Place,
} from './support/evm-payments';

describeWithAnvil(describe)('several nodes of an EVM network', () => {
  let place: Place;
  let copy: Copy;
  const ends: Array<() => Promise<void>> = [];
  beforeEach(async () => (place = await openPlace()));
  afterEach(async () => {
    await copy.settler.stop();
    for (const end of ends.splice(0)) await end();
    await place.stop();
  });

  test('a transfer that one node has and another one has not counts for nothing', async () => {
    const honest = await Anvil.start();
    ends.push(() => honest.stop());
    const warned = jest.spyOn(log, 'warn');
    const network = await openNetwork(place, { secondUrl: honest.url });
    copy = newCopy(place, network, { waitMs: 500 });
    // The chain of the first node is one of its own, on which the payer is rich.
    const payment = await newPayment(place, copy);
    expect((await copy.payments.settle(payment.request)).payment).toBeUndefined();
    await eventually(async () => (await place.anvil.tokenBalance(place.payTo)) === amount);
    await Promise.all([place.anvil.mine(3), honest.mine(3)]);
    expect((await copy.payments.settle(payment.request)).payment).toBeUndefined();
    const claim = await row(place.pool, sql`select state, included_at from claim`);
    expect(claim).toEqual({ state: 'settling', included_at: null });
    const facts = expect.objectContaining({ by: 'node 1', notBy: 'node 2' }) as object;
    expect(warned).toHaveBeenCalledWith(facts, 'a node tells of a transfer that another node does not have');
    warned.mockRestore();
  });

  test('a transfer that two nodes have counts; while one of two is away nothing new is taken, and what was taken waits', async () => {
    const second = await NodeProxy.start(place.anvil.url);
    ends.push(() => second.stop());
    const network = await openNetwork(place, { secondUrl: second.url });
    copy = newCopy(place, network, { waitMs: 500 });
    const settle = async ({ request }: Awaited<ReturnType<typeof newPayment>>) =>
      (await copy.payments.settle(request)).payment ?? undefined;
    const first = await newPayment(place, copy);
    expect(await eventually(() => settle(first))).toBeDefined();
    const waiting = await newPayment(place, copy);
    second.failsBefore = () => true;
    expect(await settle(waiting)).toBeUndefined();
    await network.watch();
    const message =
      'eip155:84532: only one of its nodes answers, and a second one has to confirm payments: none are taken';
    expect([network.isOpen(), network.health()]).toEqual([false, { status: 'DEGRADED', message }]);
    second.failsBefore = () => false;
    await network.watch();
    expect([network.isOpen(), await eventually(() => settle(waiting))]).toEqual([true, expect.anything()]);
  });
});
