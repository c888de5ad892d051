import { ServiceError, unavailable } from '@granary/shared/errors';
import type { CompleteSpendRequest } from '@granary/shared/gen/granary/payments/v1/CompleteSpendRequest';
import type { ReserveSpendRequest } from '@granary/shared/gen/granary/payments/v1/ReserveSpendRequest';
import { AgentSpending, type Spend } from './agent-spending';

const refused = new ServiceError('FAILED_PRECONDITION', 'PAYMENT_REFUSED', 'no', { details: { reason: 'x' } });

/** A payments service that reserves up to a sum, and what it was asked. */
function fixture({ available = Infinity, completes = () => Promise.resolve({}) } = {}) {
  const log: string[] = [];
  let left = available;
  const payments = {
    reserveSpend: ({ paymentId, atMs, amountsUtia }: ReserveSpendRequest) => {
      log.push(`reserve ${amountsUtia.join()}`);
      const sum = amountsUtia.reduce((total, amount) => total + Number(amount), 0);
      if (sum > left) return Promise.reject(refused);
      left -= sum;
      return Promise.resolve({ paymentId, atMs, kinds: [], appSharePpm: 0 });
    },
    completeSpend: ({ amountsUtia }: CompleteSpendRequest) => {
      log.push(`complete ${amountsUtia.join()}`);
      return completes();
    },
    cancelSpend: () => {
      log.push('cancel');
      return Promise.resolve({});
    },
    resolveSpend: ({ amountsUtia }: CompleteSpendRequest) => {
      log.push(`resolve ${amountsUtia.join()}`);
      return Promise.reject(unavailable('not known yet'));
    },
  };
  const spending = new AgentSpending(payments, 10_000);
  const spend = (amountUtia: string, keyId = 'k'): Spend => ({
    agent: { keyId, appId: 'a' },
    targetAppId: 't',
    amountUtia,
    appSharePpm: undefined,
    requestId: 'r',
  });
  return {
    log,
    reserve: (amount: string, keyId?: string) => spending.reserve(spend(amount, keyId)),
    hold: (amount: string) => spending.hold({ ...spend(amount), lastsMs: 5_000, ticketId: 'c1-t' }),
  };
}

test('payments of a key at one time share a reservation, and move together once all are ready', async () => {
  const { log, reserve } = fixture();
  const [one, two, three, other] = await Promise.all([reserve('1'), reserve('2'), reserve('3'), reserve('4', 'l')]);
  expect(log.sort()).toEqual(['reserve 1,2,3', 'reserve 4']);
  await Promise.all([one.complete(), three.cancel(), two.complete(), other.complete()]);
  expect(log.slice(2).sort()).toEqual(['complete 1,2', 'complete 4']);
});

test('one that is not ready soon after the others delays none, and is reserved again by itself', async () => {
  const { log, reserve } = fixture();
  const [one, two, slow, failing] = await Promise.all([reserve('1'), reserve('2'), reserve('3'), reserve('4')]);
  await Promise.all([one.complete(), two.complete()]);
  await Promise.all([slow.complete(), failing.cancel()]);
  expect(log).toEqual(['reserve 1,2,3,4', 'complete 1,2', 'reserve 3', 'complete 3']);
});

test('what a write costs is held until that is done, whatever is paid beside it', async () => {
  const { log, reserve, hold } = fixture({ available: 3 });
  const [one, held] = await Promise.all([reserve('1'), hold('2')]);
  await one.complete();
  await expect(reserve('1')).rejects.toBe(refused);
  await held.complete();
  expect(log.slice(0, 2).sort()).toEqual(['reserve 1', 'reserve 2']);
  expect(log.slice(2)).toEqual(['complete 1', 'reserve 1', 'complete 2']);
});

test('what is held for a write is not released where it may not have been paid', async () => {
  const { log, hold } = fixture({ completes: () => Promise.reject(unavailable('unknown')) });
  const held = await hold('2');
  await expect(held.complete()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  held.resolve();
  expect(log).toEqual(['reserve 2', 'complete 2', 'resolve 2']);
});

test('what is refused together is reserved singly, as far as it goes', async () => {
  const { log, reserve } = fixture({ available: 5 });
  const results = await Promise.allSettled([reserve('3'), reserve('9'), reserve('2'), reserve('1')]);
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'rejected']);
  expect(log).toEqual(['reserve 3,9,2,1', 'reserve 3', 'reserve 9', 'reserve 2', 'reserve 1']);
});

test('what nobody completes is released, and so is what may not have been paid, with the error', async () => {
  const unpaid = fixture();
  await Promise.all((await Promise.all([unpaid.reserve('1'), unpaid.reserve('2')])).map((one) => one.cancel()));
  expect(unpaid.log).toEqual(['reserve 1,2', 'cancel']);
  const unknown = fixture({ completes: () => Promise.reject(unavailable('unknown')) });
  const both = await Promise.all([unknown.reserve('1'), unknown.reserve('2')]);
  const ended = await Promise.allSettled(both.map((one) => one.complete()));
  expect(ended.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(unknown.log).toEqual(['reserve 1,2', 'complete 1,2', 'cancel']);
  await both[0].cancel();
  expect(unknown.log).toHaveLength(3);
});
