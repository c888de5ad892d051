import { randomBytes, randomUUID } from 'node:crypto';
import { createLogger } from '@granary/shared/logger';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { newPayer, version2, type Requirement } from '@granary/testing/x402-client';
import { assetKeyOf } from '../src/schemes/evm/assets';
import { requirementText, validSeconds } from '../src/quotes/offer';
import { offersFor } from '../src/quotes/offers';
import { setRates, storedRates } from '../src/quotes/rates';
import type { TakenClaim } from '../src/settlement/claim';
import { Claims } from '../src/settlement/claims';
import { RequestPayments } from '../src/settlement/payments';
import { Settler } from '../src/settlement/settler';
import { SimulatedEvm } from '../src/schemes/simulated/network';
import { simulatedAddress, simulatedAsset } from '../src/schemes/simulated/token';
import { Verifier } from '../src/verify/verifier';
import { fixedQuoteKeys } from './support/quote-keys';
import { openPaymentsPool } from './support/payments-pool';
import { EvmExact } from '../src/schemes/evm/verify';
import { evmMethods } from '../src/schemes/evm/methods';

const now = () => new Date();
const log = createLogger('test', 'silent');
/** An account of the simulated network has 1,000 TIA. */
const amountUtia = '600000000';

let pool: Pool;
let claims: Claims;
let settler: Settler;
beforeAll(async () => {
  pool = await openPaymentsPool(4);
  await setRates(pool, new Map([[assetKeyOf(simulatedAsset), 1_000_000n]]));
  claims = new Claims(pool, randomUUID());
  settler = new Settler({ claims, networks: new Map([[playMoneyNetwork, new SimulatedEvm(pool, now)]]), log, now });
});
afterAll(async () => {
  await settler.stop();
  await pool.end();
});

const requestPayments = () => {
  const methods = evmMethods([{ network: playMoneyNetwork, address: simulatedAddress }], [simulatedAsset]);
  const offers = {
    keys: fixedQuoteKeys(),
    methods: () => methods,
    rates: storedRates(pool, validSeconds),
    now,
    networks: new Map([[playMoneyNetwork, { isOpen: () => true }]]),
    APP_SHARE_PERCENT: 80,
  };
  const verifier = new Verifier([new EvmExact([simulatedAsset])], now);
  const presented = { offers, verifier };
  const payments = new RequestPayments({
    presented,
    claims,
    settler,
    X402_SETTLE_WAIT_MS: 60_000,
    now,
  });
  return { payments, offers };
};

test('a quote whose payment was refused is paid by a fresh one, and by no third', async () => {
  const { payments, offers } = requestPayments();
  const quote = async () => {
    const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia, isUpfront: false };
    const [offer] = await offersFor(offers, purchase);
    const requirement = JSON.parse(requirementText(2, offer!)) as Requirement;
    return async (payer: Awaited<ReturnType<typeof newPayer>>) => {
      const paymentJson = Buffer.from(JSON.stringify(await version2(payer, requirement)));
      return (await payments.settle({ purchase, identifier: '', paymentJson })).payment?.payer;
    };
  };
  const [poor, rich] = [await newPayer(), await newPayer()];
  const [first, second] = [await quote(), await quote()];
  expect(await first(poor)).toBe(poor.address);
  await expect(second(poor)).rejects.toMatchObject({ details: { reason: 'insufficient_funds' } });
  expect(await second(rich)).toBe(rich.address);
  await expect(second(await newPayer())).rejects.toMatchObject({ details: { reason: 'quote_used' } });
});

test('a payment whose block is old when it is noticed pays for its write, which can be repeated for 23 hours from its beginning', async () => {
  const { payments, offers } = requestPayments();
  const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia, isUpfront: true };
  const [offer] = await offersFor(offers, purchase);
  const requirement = JSON.parse(requirementText(2, offer!)) as Requirement;
  const paymentJson = Buffer.from(JSON.stringify(await version2(await newPayer(), requirement)));
  const request = { purchase, identifier: '', paymentJson };
  const { ticketId } = await payments.settle(request);
  const change = (set: Sql) => execute(pool, sql`update claim set ${set} where ticket_id = ${ticketId}`);
  const used = { details: { reason: 'payment_already_used' } };

  await change(sql`settled_at = settled_at - interval '30 hours', begun_at = null`);
  expect((await payments.check(request)).settlement).toMatchObject({ ticketId });
  expect(await payments.settle(request)).toMatchObject({ ticketId, payment: expect.anything() as unknown });
  await change(sql`begun_at = begun_at - interval '22 hours'`);
  expect(await payments.settle(request)).toMatchObject({ ticketId });
  await payments.redeem(ticketId);
  expect(await payments.settle(request)).toMatchObject({ ticketId });
  await change(sql`begun_at = begun_at - interval '1 hour'`);
  await expect(payments.settle(request)).rejects.toMatchObject(used);
  // Of a release that did not store the beginning.
  await change(sql`begun_at = null`);
  await expect(payments.settle(request)).rejects.toMatchObject(used);
});

const take = (quoteId: string, key = randomUUID(), identifier: Buffer | null = null) =>
  claims.take(
    { payer: key, scope: 'network', key, proof: {}, validUntilSeconds: Math.floor(Date.now() / 1_000) + 60 },
    {
      appId: 'films',
      requestHash: randomBytes(32),
      quoteId,
      amountUtia: 1n,
      appSharePpm: 0,
      network: 'network',
      asset: 'asset',
      amount: 1n,
      fingerprint: randomBytes(32),
      identifier,
    },
  );

/** Refuses a claim at the end of the next statement that would store one, after that was in conflict with it. */
async function refuseDuringInsert({ claim: { id } }: TakenClaim): Promise<void> {
  await pool.query(`create or replace function refuse_rival() returns trigger language plpgsql as $$ begin
      update claim set state = 'refused', refused_because = 'insufficient_funds', quote_id = null, identifier = null,
        key = key || '|' || id where id = '${id}' and state = 'claimed';
      return null;
    end $$`);
  await pool.query(
    'create or replace trigger refuse_rival after insert on claim for each statement execute function refuse_rival()',
  );
}

test.each(['quote', 'proof', 'identifier'])(
  'a payment whose rival for the same %s is refused while it is presented is taken',
  async (shared) => {
    const [quoteId, key, identifier] = [randomUUID(), randomUUID(), randomBytes(32)];
    const rival = (await take(quoteId, key, identifier)) as TakenClaim;
    await refuseDuringInsert(rival);
    const taken = await (shared === 'quote'
      ? take(quoteId)
      : shared === 'proof'
        ? take(randomUUID(), key)
        : take(randomUUID(), randomUUID(), identifier));
    expect(taken).toMatchObject({ isNew: true });
    expect((await claims.byId(rival.claim.id))!.state).toBe('refused');
  },
);

test('a conflict with another payment is about its quote, or its identifier', async () => {
  const [quoteId, identifier] = [randomUUID(), randomBytes(32)];
  await take(quoteId, randomUUID(), identifier);
  expect(await take(quoteId)).toBe('quote_used');
  expect(await take(randomUUID(), randomUUID(), identifier)).toBe('identifier_used');
});
