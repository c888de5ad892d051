import { randomBytes, randomUUID } from 'node:crypto';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Claim, TakenClaim } from '@granary/payments/settlement/claim';
import { Claims } from '@granary/payments/settlement/claims';
import { openPaymentsPool } from './support/payments-pool';

const daySeconds = 86_400;

let pool: Pool;
let claims: Claims;
beforeAll(async () => {
  pool = await openPaymentsPool(1);
  claims = new Claims(pool, randomUUID());
});
afterAll(() => pool.end());

/** A claim whose payment could not be settled any more since then. */
async function claimed(overSeconds: number): Promise<Claim> {
  const validUntilSeconds = Math.floor(Date.now() / 1_000) - overSeconds;
  const taken = await claims.take(
    { payer: 'payer', scope: 'network', key: randomUUID(), proof: {}, validUntilSeconds },
    {
      appId: 'films',
      requestHash: randomBytes(32),
      quoteId: randomUUID(),
      amountUtia: 1n,
      appSharePpm: 0,
      network: 'network',
      asset: 'asset',
      amount: 1n,
      fingerprint: randomBytes(32),
      identifier: null,
    },
  );
  return (taken as TakenClaim).claim;
}

async function settled(overSeconds: number): Promise<Claim> {
  const claim = await claimed(overSeconds);
  await claims.prepare(claim.id, () => Promise.resolve({ bytes: Buffer.from('tx'), hash: 'hash' }));
  await claims.settled(claim.id, { hash: 'hash', height: 1n, at: new Date(Date.now() - overSeconds * 1_000) });
  return claim;
}

test('a claim is kept until nobody can present its payment: a day after it could be settled, and after it was', async () => {
  const [recent, over, late, uncredited] = [
    await claimed(daySeconds - 60),
    await claimed(2 * daySeconds),
    await settled(2 * daySeconds),
    await settled(2 * daySeconds),
  ];
  await claims.credited([late.id]);
  const kept = async () => {
    while ((await claims.forget(100)) > 0);
    const all = [recent, over, late, uncredited];
    const found = await Promise.all(all.map(({ id }) => claims.byId(id)));
    return found.map((claim) => claim !== undefined);
  };
  expect(await kept()).toEqual([true, false, true, true]);
  await execute(pool, sql`update claim set updated_at = updated_at - interval '1 day'`);
  expect(await kept()).toEqual([true, false, false, true]);
});

test('a claim that was refused is kept for an hour, however long its payment could be settled', async () => {
  const [recent, old, claim] = [await claimed(-daySeconds), await claimed(-daySeconds), await claimed(-daySeconds)];
  for (const { id } of [recent, old]) expect(await claims.refused(id, 'insufficient_funds')).toBe(true);
  await execute(pool, sql`update claim set updated_at = updated_at - interval '1 hour' where id <> ${recent.id}`);
  expect(await claims.forgetRefused(100)).toBe(1);
  const found = await Promise.all([recent, old, claim].map(({ id }) => claims.byId(id)));
  expect(found.map((each) => each !== undefined)).toEqual([true, false, true]);
});
