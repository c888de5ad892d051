import { randomBytes, randomUUID } from 'node:crypto';
import { createLogger } from '@granary/shared/logger';
import { type Pool } from '@granary/shared/postgres/pool';
import type { FindResult, SettlementNetwork } from '../src/networks/settlement-network';
import type { TakenClaim } from '../src/settlement/claim';
import { Claims } from '../src/settlement/claims';
import { Settler } from '../src/settlement/settler';
import { openPaymentsPool } from './support/payments-pool';

const underWayMax = 100;
const log = createLogger('test', 'silent');

let pool: Pool;
let claims: Claims;
beforeAll(async () => {
  pool = await openPaymentsPool(2);
  claims = new Claims(pool, randomUUID());
});
afterAll(() => pool.end());

const take = (payer: string, network = 'one') =>
  claims.take(
    { payer, scope: network, key: randomUUID(), proof: {}, validUntilSeconds: Math.floor(Date.now() / 1_000) + 60 },
    {
      appId: 'films',
      requestHash: randomBytes(32),
      quoteId: randomUUID(),
      amountUtia: 1n,
      appSharePpm: 0,
      network,
      asset: 'asset',
      amount: 1n,
      fingerprint: randomBytes(32),
      identifier: null,
    },
  );

test(`a payer has ${underWayMax} payments under way on a network, and another one once one has ended`, async () => {
  const [payer, other] = [randomUUID(), randomUUID()];
  const taken: TakenClaim[] = [];
  for (let at = 0; at < underWayMax; at += 1) {
    taken.push((await take(payer)) as TakenClaim);
    expect(taken[at]).toMatchObject({ isNew: true });
  }
  expect(await take(payer)).toBe('payer_busy');
  expect(await take(other)).toMatchObject({ isNew: true });
  expect(await take(payer, 'two')).toMatchObject({ isNew: true });
  await claims.refused(taken[0]!.claim.id, 'insufficient_funds');
  expect(await take(payer)).toMatchObject({ isNew: true });
  expect(await take(payer)).toBe('payer_busy');
});

/** A network that settles each payment by the same transaction, which these calls send and look for. */
const networkWith = (id: string, calls: Pick<SettlementNetwork, 'send' | 'find'>): SettlementNetwork => ({
  id,
  isOpen: () => true,
  plan: () =>
    Promise.resolve({ state: 'ready', sign: () => Promise.resolve({ bytes: Buffer.from('tx'), hash: 'tx' }) }),
  ...calls,
});
const included = (): FindResult => ({ state: 'included', isFinal: true, hash: 'tx', height: 1n, at: new Date() });

/** Networks on which payments end once `end` is called, and a process that works on a few at a time. */
function newSettler(ids: string[], runningMax: number) {
  let found: FindResult = { state: 'absent' };
  const calls: Parameters<typeof networkWith>[1] = {
    send: () => Promise.resolve({ state: 'sent' }),
    find: () => Promise.resolve(found),
  };
  const networks = new Map(ids.map((id) => [id, networkWith(id, calls)]));
  const settler = new Settler({ claims, networks, log, now: () => new Date(), runningMax });
  const waits: Array<Promise<unknown>> = [];
  const settle = async (network: string) => {
    settler.assertFree(network);
    waits.push(settler.settle((await take(randomUUID(), network)) as TakenClaim, 60_000));
  };
  const end = async () => {
    found = included();
    await Promise.all(waits);
  };
  return { settler, settle, end };
}

test('a process that works on as many payments as it may takes no further one until one of them has ended', async () => {
  const { settler, settle, end } = newSettler(['one'], 2);
  for (let at = 0; at < 2; at += 1) await settle('one');
  await expect(settle('one')).rejects.toThrow('Too many payments are being settled');
  await end();
  settler.assertFree('one');
  await settler.stop();
});

test('one network of several takes half of the payments on which a process works, and leaves the others theirs', async () => {
  const { settler, settle, end } = newSettler(['one', 'two'], 4);
  for (let at = 0; at < 2; at += 1) await settle('one');
  await expect(settle('one')).rejects.toThrow('Too many payments on this network are being settled');
  for (let at = 0; at < 2; at += 1) await settle('two');
  await expect(settle('two')).rejects.toThrow('Too many payments are being settled');
  await end();
  for (const network of ['one', 'two']) settler.assertFree(network);
  await settler.stop();
});

test('a transaction is sent for the first time once, although nobody learned whether it was sent', async () => {
  let found: FindResult = { state: 'absent' };
  const sends: boolean[] = [];
  const network = networkWith('one', {
    send: (_claim, _transaction, isFirst) => {
      sends.push(isFirst);
      if (sends.length === 1) return Promise.reject(new Error('the answer was lost'));
      found = included();
      return Promise.resolve({ state: 'sent' });
    },
    find: () => Promise.resolve(found),
  });
  const settler = new Settler({ claims, networks: new Map([['one', network]]), log, now: () => new Date() });
  await settler.settle((await take(randomUUID())) as TakenClaim, 60_000);
  expect(sends).toEqual([true, false]);
  await settler.stop();
});
