import { randomBytes, randomUUID } from 'node:crypto';
import { createLogger } from '@granary/shared/logger';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { SettlementNetwork } from '../src/networks/settlement-network';
import type { Claim, TakenClaim } from '../src/settlement/claim';
import { Claims } from '../src/settlement/claims';
import { checkSettlement } from '../src/settlement/observe-settlement';
import { Settler } from '../src/settlement/settler';
import { strandedPayments } from '../src/settlement/stranded-payments';
import { openPaymentsPool } from './support/payments-pool';

const [kept, removed] = ['eip155:8453', 'eip155:137'];

let pool: Pool;
let claims: Claims;
let networks: Map<string, SettlementNetwork>;
let settler: Settler;
beforeAll(async () => {
  const log = createLogger('test', 'silent');
  pool = await openPaymentsPool(2);
  claims = new Claims(pool, randomUUID());
  networks = new Map([[kept, networkOf(kept)]]);
  settler = new Settler({ claims, networks, log, now: () => new Date() });
});
afterAll(async () => {
  await settler.stop();
  await pool.end();
});

const networkOf = (id: string): SettlementNetwork => ({
  id,
  isOpen: () => true,
  plan: () => Promise.reject(new Error('it was planned before')),
  send: () => Promise.resolve({ state: 'sent' }),
  find: () => Promise.resolve({ state: 'included', isFinal: true, hash: 'hash', height: 1n, at: new Date() }),
});

/** The claim of a payment that a process has sent, which has ended. */
async function sent(network: string): Promise<Claim> {
  const ended = new Claims(pool, randomUUID());
  const validUntilSeconds = Math.floor(Date.now() / 1_000) + 60;
  const taken = await ended.take(
    { payer: 'payer', scope: network, key: randomUUID(), proof: {}, validUntilSeconds },
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
  const { id } = (taken as TakenClaim).claim;
  await ended.prepare(id, () => Promise.resolve({ bytes: Buffer.from('tx'), hash: 'hash' }));
  await execute(pool, sql`update claim set owner_until = clock_timestamp() - interval '1 second' where id = ${id}`);
  return (await claims.byId(id))!;
}

const stateOf = async ({ id }: Claim) => (await claims.byId(id))!.state;

test('payments on a network that was removed are counted by health and hold up no others, and are settled once it is back', async () => {
  const [stranded, other] = [await sent(removed), await sent(kept)];
  const stranding = (areKnown = true) => strandedPayments({ claims, networks, areKnown: () => areKnown });
  expect(await settler.resume(100, 60_000)).toBe(1);
  expect([await stateOf(stranded), await stateOf(other)]).toEqual(['settling', 'settled']);
  // A client that repeats its request is not kept waiting for what nothing settles.
  expect((await settler.settle({ claim: stranded }, 600_000)).state).toBe('settling');
  expect(await checkSettlement(pool, () => stranding())).toEqual({
    status: 'DEGRADED',
    message: `payments on networks that are not configured are not settled: 1 on ${removed}`,
  });
  expect(await stranding(false)).toBe('');
  networks.set(removed, networkOf(removed));
  expect(await settler.resume(100, 60_000)).toBe(1);
  expect(await stateOf(stranded)).toBe('settled');
  expect(await stranding()).toBe('');
});
