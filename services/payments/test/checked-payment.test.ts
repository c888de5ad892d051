import { randomBytes, randomUUID } from 'node:crypto';
import { createLogger } from '@granary/shared/logger';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import type { Pool } from '@granary/shared/postgres/pool';
import { newPayer, version2, type Requirement } from '@granary/testing/x402-client';
import { requirementText, validSeconds } from '../src/quotes/offer';
import { offersFor, type OfferSettings } from '../src/quotes/offers';
import { setRates, storedRates } from '../src/quotes/rates';
import { assetKeyOf } from '../src/schemes/evm/assets';
import { evmMethods } from '../src/schemes/evm/methods';
import { EvmExact } from '../src/schemes/evm/verify';
import { SimulatedEvm } from '../src/schemes/simulated/network';
import { simulatedAddress, simulatedAsset } from '../src/schemes/simulated/token';
import { Claims } from '../src/settlement/claims';
import { RequestPayments } from '../src/settlement/payments';
import { Settler } from '../src/settlement/settler';
import { Verifier } from '../src/verify/verifier';
import { openPaymentsPool } from './support/payments-pool';
import { fixedQuoteKeys } from './support/quote-keys';

const log = createLogger('test', 'silent');
const amountUtia = '1000';

let pool: Pool;
let settler: Settler;
let claims: Claims;
let offers: OfferSettings;
let clock = new Date();
let isOpen = true;
beforeAll(async () => {
  pool = await openPaymentsPool(4);
  await setRates(pool, new Map([[assetKeyOf(simulatedAsset), 1_000_000n]]));
  claims = new Claims(pool, randomUUID());
  const now = () => new Date();
  settler = new Settler({ claims, networks: new Map([[playMoneyNetwork, new SimulatedEvm(pool, now)]]), log, now });
  const methods = evmMethods([{ network: playMoneyNetwork, address: simulatedAddress }], [simulatedAsset]);
  offers = {
    keys: fixedQuoteKeys(),
    methods: () => methods,
    rates: storedRates(pool, validSeconds),
    networks: new Map([[playMoneyNetwork, { isOpen: () => isOpen, keepsQuotesSecret: true }]]),
    APP_SHARE_PERCENT: 80,
    now: () => clock,
  };
});
beforeEach(() => {
  clock = new Date();
  isOpen = true;
});
afterAll(async () => {
  await settler.stop();
  await pool.end();
});

/** A copy of the service. One that verifies nothing settles only what it is told by a token. */
const newCopy = (verifier: Verifier) =>
  new RequestPayments({
    presented: { offers, verifier },
    claims,
    settler,
    X402_SETTLE_WAIT_MS: 60_000,
    now: () => clock,
  });
const verifying = () => newCopy(new Verifier([new EvmExact([simulatedAsset])], () => clock));
const blind = () => newCopy(new Verifier([], () => clock));

async function newRequest() {
  const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia, isUpfront: false };
  const [offer] = await offersFor(offers, purchase);
  const requirement = JSON.parse(requirementText(2, offer!)) as Requirement;
  const payer = await newPayer();
  const paymentJson = Buffer.from(JSON.stringify(await version2(payer, requirement)));
  return { request: { purchase, identifier: '', paymentJson }, payer };
}

const unverified = { details: { reason: 'invalid_network' } };

test('what was checked is settled by its token, in another copy too, without being verified again', async () => {
  const { request, payer } = await newRequest();
  const { token, paidUtia } = await verifying().check(request);
  expect(paidUtia).toBe(amountUtia);
  await expect(blind().settle(request)).rejects.toMatchObject(unverified);
  const answer = Buffer.from('{"page":1}');
  const { payment } = await blind().settle({ ...request, answer, token: token! });
  expect(payment).toMatchObject({ payer: payer.address, network: playMoneyNetwork });
  // Its quote is secret, so the answer is kept for the repetition, which the claim answers.
  expect((await blind().settle({ ...request, answer: Buffer.from('{}') })).answer).toEqual(answer);
});

test('without a token a payment is verified, as callers of the release before send it', async () => {
  const { request, payer } = await newRequest();
  expect((await verifying().settle(request)).payment).toMatchObject({ payer: payer.address });
});

test.each<[what: string, change: (given: Awaited<ReturnType<typeof newRequest>>['request'], token: Buffer) => object]>([
  ['another request', ({ purchase }) => ({ purchase: { ...purchase, requestHash: randomBytes(32) } })],
  ['a higher price', ({ purchase }) => ({ purchase: { ...purchase, amountUtia: '1001' } })],
  ['another application', ({ purchase }) => ({ purchase: { ...purchase, appId: 'others' } })],
  ['another Idempotency-Key', () => ({ identifier: 'another' })],
  [
    'the same payment in another text',
    ({ paymentJson }) => ({ paymentJson: Buffer.concat([paymentJson, Buffer.from(' ')]) }),
  ],
  [
    'a token that was altered',
    (_, token) => ({ token: Buffer.from(token.toString('latin1').replace('1000', '9000'), 'latin1') }),
  ],
  ['a token that was cut', (_, token) => ({ token: token.subarray(0, 20) })],
  ['an empty token', () => ({ token: Buffer.alloc(0) })],
])('a token says nothing about %s', async (_what, change) => {
  const { request } = await newRequest();
  const { token } = await verifying().check(request);
  const altered = { ...request, token: token!, ...change(request, token!) };
  await expect(blind().settle(altered)).rejects.toMatchObject({ reason: 'PAYMENT_REFUSED' });
  // The token itself was good.
  expect((await blind().settle({ ...request, token: token! })).payment).toBeDefined();
});

test('a token counts for a minute, and only while its network takes payments', async () => {
  const { request } = await newRequest();
  const { token } = await verifying().check(request);
  const settled = { ...request, token: token! };
  clock = new Date(Date.now() + 61_000);
  await expect(blind().settle(settled)).rejects.toMatchObject(unverified);
  clock = new Date();
  isOpen = false;
  await expect(blind().settle(settled)).rejects.toMatchObject({ details: { reason: 'settlement_unavailable' } });
  isOpen = true;
  expect((await blind().settle(settled)).payment).toBeDefined();
});
