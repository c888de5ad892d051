import { GrantPayments, type GrantClient } from '@granary/payments/schemes/cosmos/grant-payments';
import { offerRead } from '@granary/payments/quotes/offers';
import { readPayment, verifyPresented } from '@granary/payments/quotes/presented-payment';
import type { PaidQuote } from '@granary/payments/networks/quoted-network';
import type { Rates } from '@granary/payments/quotes/rates';
import { readExactPayment, type ExactPayment } from '@granary/payments/verify/envelope';
import { Verifier } from '@granary/payments/verify/verifier';
import { randomBytes } from 'node:crypto';
import { fixedQuoteKeys } from './support/quote-keys';
import { readJson, type JsonObject } from '@granary/shared/json/value';
import { cosmosMethod } from '../src/schemes/cosmos/scheme';

const grant = {
  grantId: 'g1',
  address: 'celestia1from',
  limitUtia: '1000000',
  spentUtia: '0',
  allowedApps: [],
  expiresAt: '2100-01-01T00:00:00Z',
};
const chain = { findGrant: () => Promise.resolve({ grant }) } as unknown as GrantClient;
const networkOf = 'cosmos:mocha-4';

/** What is found of a payment by a key, of that amount, where a deduction has to bring in 1,000 utia. */
async function find(amount: number) {
  const payments = new GrantPayments(
    networkOf,
    () => chain,
    () => new Date(),
    1_000n,
  );
  const accepted = {
    scheme: 'exact',
    network: networkOf,
    amount: String(amount),
    asset: 'utia',
    payTo: 'celestia1to',
    maxTimeoutSeconds: 300,
    extra: { app: 'films' },
  };
  const payload = { userKey: `user_${'k'.repeat(43)}`, deductionId: '00000000-0000-4000-8000-000000000001' };
  const read = (value: object) => readJson(Buffer.from(JSON.stringify(value)), { maxDepth: 8 }) as JsonObject;
  const envelope = { payment: read({ x402Version: 2, accepted, payload }), requirement: read(accepted) };
  return payments.verify(readExactPayment(envelope), { id: 'quote', expiresAtSeconds: 4_000_000_000 });
}

test('a deduction that costs more fees than it brings in is refused, unless it was taken already', async () => {
  expect((await find(1_000)).refusal).toBeUndefined();
  const found = await find(999);
  expect(found.proof).toMatchObject({ amount: '999' });
  expect(found.refusal).toMatchObject({
    reason: 'PAYMENT_REFUSED',
    message: 'Grants pay what costs 1000 utia or more',
    details: { reason: 'amount_below_minimum' },
  });
});

test.each([
  ['closed', false, undefined, 'settlement_unavailable'],
  ['not taken by the application', true, { names: ['eip155:8453'] }, 'invalid_network'],
])(
  'on a network that is %s a deduction is found, and refused unless it was taken already',
  async (_, isOpen, networks, reason) => {
    const now = () => new Date();
    const methods = [cosmosMethod({ network: networkOf, address: 'celestia1to' })];
    const verifyKey = (payment: ExactPayment, quote: PaidQuote) =>
      new GrantPayments(networkOf, () => chain, now, 1_000n).verify(payment, quote);
    const rates: Rates = { current: () => Promise.resolve(new Map()), recent: () => Promise.resolve([]) };
    const offers = {
      keys: fixedQuoteKeys(),
      methods: () => methods,
      rates,
      now,
      APP_SHARE_PERCENT: 80,
      networks: new Map([[networkOf, { isOpen: () => isOpen, verifyKey }]]),
    };
    const purchase = {
      appId: 'films',
      requestHash: randomBytes(32),
      amountUtia: '5000',
      isUpfront: false,
      ...(networks && { networks }),
    };
    const about = { purchase, resource: 'https://a.example/films', description: '', error: '' };
    expect(JSON.parse((await offerRead(offers, about)).acceptsJson)).toEqual([]);
    const { acceptsJson } = await offerRead(offers, { ...about, isForGrant: true });
    const [{ extra }] = JSON.parse(acceptsJson) as [{ extra: { quoteId: string } }];
    const payload = { userKey: `user_${'k'.repeat(43)}`, deductionId: '00000000-0000-4000-8000-000000000001' };
    const payment = { x402Version: 1, scheme: 'exact', network: networkOf, quoteId: extra.quoteId, payload };
    const verifier = new Verifier([], now);
    const { verified } = await verifyPresented(
      { offers, verifier },
      purchase,
      readPayment(Buffer.from(JSON.stringify(payment))),
    );
    expect(verified).toMatchObject({ payer: 'celestia1from', refusal: { details: { reason } } });
  },
);
