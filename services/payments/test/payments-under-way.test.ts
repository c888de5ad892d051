import { randomBytes, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { leaseTable } from '@granary/shared/postgres/lease';
import { migrate } from '@granary/shared/postgres/migrate';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/shared/testing/database';
import type { FindResult, SettlementNetwork } from '../src/networks/settlement-network';
import { Claims, type TakenClaim } from '../src/settlement/claims';
import { Settler } from '../src/settlement/settler';

const underWayMax = 100;
const log = createLogger('test', 'silent');

let pool: Pool;
let claims: Claims;
beforeAll(async () => {
  const { url } = await testDatabase();
  pool = createPool({ url, size: 2, applicationName: 'test', log });
  await pool.query(leaseTable);
  await migrate(pool, join(__dirname, '..', 'migrations'));
  claims = new Claims(pool, randomUUID());
});
afterAll(() => pool.end());

const take = (payer: string, network = 'one') =>
  claims.take(
    { payer, scope: network, key: randomUUID(), proof: {}, validUntilSeconds: Math.floor(Date.now() / 1_000) + 60 },
    {
      ...{ appId: 'films', requestHash: randomBytes(32), quoteId: randomUUID(), amountUtia: 1n, appSharePpm: 0 },
      ...{ network, asset: 'asset', amount: 1n, fingerprint: randomBytes(32), identifier: null },
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

test('a process that works on as many payments as it may takes no further one until one of them has ended', async () => {
  let found: FindResult = { state: 'absent' };
  const network: SettlementNetwork = {
    id: 'one',
    isOpen: () => true,
    plan: () =>
      Promise.resolve({ state: 'ready', sign: () => Promise.resolve({ bytes: Buffer.from('tx'), hash: 'tx' }) }),
    send: () => Promise.resolve({ state: 'sent' }),
    find: () => Promise.resolve(found),
  };
  const networks = new Map([['one', network]]);
  const settler = new Settler({ claims, networks, log, now: () => new Date(), runningMax: 2 });
  const waits: Array<Promise<unknown>> = [];
  for (let at = 0; at < 2; at += 1) {
    settler.assertFree();
    waits.push(settler.settle((await take(randomUUID())) as TakenClaim, 60_000));
  }
  expect(() => settler.assertFree()).toThrow('Too many payments are being settled');
  found = { state: 'included', hash: 'tx', height: 1n, at: new Date() };
  await Promise.all(waits);
  settler.assertFree();
  await settler.stop();
});
