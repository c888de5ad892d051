import { randomBytes, randomUUID } from 'node:crypto';
import type { ApplyRequest } from '@granary/shared/gen/granary/finance/v1/ApplyRequest';
import { createLogger } from '@granary/shared/logger';
import { playMoneyNetwork } from '@granary/shared/money/play-money';
import { type Pool } from '@granary/shared/postgres/pool';
import { newPayer, version2, type Requirement } from '@granary/testing/x402-client';
import { assetKeyOf } from '../src/schemes/evm/assets';
import { requirementText, validSeconds } from '../src/quotes/offer';
import { offersFor } from '../src/quotes/offers';
import { setRates, storedRates } from '../src/quotes/rates';
import { Claims } from '../src/settlement/claims';
import { creditIncome } from '../src/settlement/income';
import { RequestPayments } from '../src/settlement/payments';
import { Settler } from '../src/settlement/settler';
import { SimulatedEvm } from '../src/schemes/simulated/network';
import { simulatedAddress, simulatedAsset } from '../src/schemes/simulated/token';
import { Verifier } from '../src/verify/verifier';
import { fixedQuoteKeys } from './support/quote-keys';
import { openPaymentsPool } from './support/payments-pool';
import { EvmExact } from '../src/schemes/evm/verify';
import { evmMethods } from '../src/schemes/evm/methods';

const log = createLogger('rates-test', 'silent');
const now = () => new Date();
const assetKey = assetKeyOf(simulatedAsset);
const keys = fixedQuoteKeys();
const verifier = new Verifier([new EvmExact([simulatedAsset])], now);

/** A process of the service, with the rates that are stored now. */
function newCopy(pool: Pool, claims: Claims) {
  const networks = new Map([[playMoneyNetwork, new SimulatedEvm(pool, now)]]);
  const methods = evmMethods([{ network: playMoneyNetwork, address: simulatedAddress }], [simulatedAsset]);
  const rates = storedRates(pool, validSeconds);
  const offers = { keys, methods: () => methods, rates, networks, APP_SHARE_PERCENT: 80, now };
  const settler = new Settler({ claims, networks, log, now });
  const options = { presented: { offers, verifier }, claims, settler, now };
  const payments = new RequestPayments({ ...options, X402_SETTLE_WAIT_MS: 60_000 });
  /** A payment for a new request, and in which amount of the token. */
  const quoted = async () => {
    const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia: '1001' };
    const [offer] = await offersFor(offers, purchase);
    const requirement = JSON.parse(requirementText(2, offer!)) as Requirement;
    const payment = await version2(await newPayer(), requirement);
    return {
      amount: requirement.amount,
      request: { purchase, identifier: '', paymentJson: Buffer.from(JSON.stringify(payment)) },
    };
  };
  return { payments, quoted, stop: () => settler.stop() };
}

/** What a ledger was asked to credit, by account. */
function newLedger() {
  const credited: Record<string, bigint> = {};
  const apply = ({ groups }: Pick<ApplyRequest, 'groups'>) => {
    for (const { transfer } of groups.flatMap(({ commands }) => commands)) {
      const { creditAccount, amount } = transfer!;
      credited[creditAccount] = (credited[creditAccount] ?? 0n) + BigInt(amount);
    }
    const result = { outcome: 'applied' as const, reason: '', amount: '0' };
    return Promise.resolve({ groups: groups.map(({ commands }) => ({ results: commands.map(() => result) })) });
  };
  return { credited, ledger: () => ({ apply }) };
}

test('a quote is paid and credited at its own rate, whatever the rate has become since', async () => {
  const pool = await openPaymentsPool(4);
  const claims = new Claims(pool, randomUUID());
  const copies: Array<ReturnType<typeof newCopy>> = [];
  const quotes: Array<Awaited<ReturnType<(typeof copies)[number]['quoted']>>> = [];
  for (const unitsPerTia of [1_000_000n, 2_500_000n, 300_000n]) {
    await setRates(pool, new Map([[assetKey, unitsPerTia]]));
    copies.push(newCopy(pool, claims));
    quotes.push(await copies.at(-1)!.quoted());
  }
  expect(quotes.map(({ amount }) => amount)).toEqual(['1001', '2503', '301']);
  // The copy that knows the latest rate settles them all.
  for (const { amount, request } of quotes) {
    expect((await copies.at(-1)!.payments.settle(request)).payment).toMatchObject({ amount });
  }
  const { credited, ledger } = newLedger();
  expect(await creditIncome({ claims, ledger, log })).toBe(quotes.length);
  expect(credited).toEqual({
    'app:films': 3n * 800n,
    'platform:fees': 3n * 201n,
    [`asset:${assetKey}`]: 1_001n + 2_503n + 301n,
  });
  await Promise.all(copies.map((copy) => copy.stop()));
  await pool.end();
});
