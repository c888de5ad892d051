import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type * as Http from 'node:http';
import { Anvil, anvilNetwork, describeWithAnvil } from '@granary/testing/anvil';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { decoded, encoded, newPayer, version1, version2, type Requirement } from '@granary/testing/x402-client';
import { tokenCall } from '../../payments/test/support/evm-payments';
import { evmSettings, fundGas, payingFetch } from '../support/evm-payments';
import { newApp, send, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

interface Finding {
  isValid: boolean;
  invalidReason?: string;
}

interface Paid {
  success: boolean;
  transaction: string;
  payer: string;
  network: string;
}

const price = 250_000;

/** A server knows version 1 only if the header of version 2 does not arrive. */
const fetchVersion1: typeof fetch = async (...given) => {
  const response = await fetch(...given);
  const headers = new Headers(response.headers);
  headers.delete('payment-required');
  return new Response(response.body, { status: response.status, headers });
};

describeWithAnvil(describe)('payments on an EVM network', () => {
  let anvil: Anvil;
  let granary: Granary;
  let app: TestApp;
  let payTo: string;
  let gasPayer: string;
  beforeAll(async () => {
    anvil = await Anvil.start();
    payTo = (await newPayer()).address;
    const payments = { ...(await evmSettings(anvil, payTo)), X402_SETTLE: 'open' };
    granary = await startGranary('wire', { settings: { payments } });
    gasPayer = await fundGas(granary, anvil);
    app = await newApp(granary);
    await app.store('films', [{ id: 'one', title: 'Alien', year: 1979 }]);
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: price };
    const index = { name: 'by_year', collection: 'films', field_name: 'year', index_type: 'btree', read_price_config };
    expect((await app.call('POST', `/api/apps/${app.appId}/indexes`, index)).status).toBe(201);
    // Without gas the network was closed.
    await eventually(async () => ((await asked()) ? true : undefined));
  }, limitMs(60_000));
  afterAll(async () => {
    await granary.stop();
    await anvil.stop();
  });

  const url = () => `${granary.url}/api/apps/${app.appId}/collections/films/data?year=1979`;
  const asked = async (): Promise<Requirement | undefined> => {
    const { headers } = await fetch(url());
    const header = headers.get('payment-required');
    return header === null ? undefined : decoded<{ accepts: Requirement[] }>(header).accepts[0];
  };
  const newRichPayer = async () => {
    const payer = await newPayer();
    await anvil.mint(payer.address, 1_000_000n);
    return payer;
  };
  const statusOf = async (hash: string): Promise<string> =>
    (await anvil.call<{ status: string }>('eth_getTransactionReceipt', hash)).status;

  test.each([
    [2, fetch, 'payment-response'],
    [1, fetchVersion1, 'x-payment-response'],
  ] as const)(
    'a read is paid by the official client in version %i, and the money arrives',
    async (_, inner, header) => {
      const payer = await newRichPayer();
      const before = await anvil.tokenBalance(payTo);
      const earned = async () =>
        (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
      const earnedBefore = await earned();
      const response = await (await payingFetch(payer, inner))(url());
      expect([response.status, await response.text()]).toEqual([200, expect.stringContaining('Alien')]);
      const paid = decoded<Paid>(response.headers.get(header));
      expect(paid).toMatchObject({ success: true, payer: payer.address });
      expect(await statusOf(paid.transaction)).toBe('0x1');
      expect(await anvil.tokenBalance(payTo)).toBe(before + BigInt(price));
      // By default two blocks have to follow before the credit.
      await anvil.mine(2);
      await eventually(async () => ((await earned()) === earnedBefore + (price * 4) / 5 ? true : undefined));
    },
  );

  /** While there is a block every `seconds`; 0: none but those that are mined by hand. */
  const withBlocksEvery = async (seconds: number, work: () => Promise<void>) => {
    await anvil.call('evm_setAutomine', false);
    await anvil.call('evm_setIntervalMining', seconds);
    try {
      await work();
    } finally {
      await anvil.call('evm_setIntervalMining', 0);
      await anvil.call('evm_setAutomine', true);
    }
  };

  test.each([
    [2, 2, fetch],
    [2, 1, fetchVersion1],
    [12, 2, fetch],
  ] as const)(
    'with a block every %i seconds the official client gets the data in one call, in version %i',
    async (seconds, _, inner) => {
      const payer = await newRichPayer();
      const before = await anvil.tokenBalance(payTo);
      await withBlocksEvery(seconds, async () => {
        const response = await (await payingFetch(payer, inner))(url());
        expect([response.status, await response.text()]).toEqual([200, expect.stringContaining('Alien')]);
      });
      expect(await anvil.tokenBalance(payTo)).toBe(before + BigInt(price));
    },
  );

  test('a client that gives up and repeats gets the answer, by the same payment or by another one under its key, and pays once', async () => {
    const payer = await newRichPayer();
    const before = await anvil.tokenBalance(payTo);
    const payment = async () => ({ 'payment-signature': encoded(await version2(payer, (await asked())!)) });
    const key = { 'idempotency-key': 'a-read' };
    const [first, second] = [await payment(), await payment()];
    const calls = () => anvil.call<string>('eth_getTransactionCount', gasPayer, 'pending').then(Number);
    const sentBefore = await calls();
    await withBlocksEvery(0, async () => {
      const givingUp = new AbortController();
      const given = fetch(url(), { headers: { ...first, ...key }, signal: givingUp.signal });
      await eventually(async () => (await calls()) === sentBefore + 1);
      givingUp.abort();
      await expect(given).rejects.toThrow();
      await anvil.mine();
    });
    const answers = [];
    for (const headers of [first, second, first]) {
      const answer = await fetch(url(), { headers: { ...headers, ...key } });
      answers.push([answer.status, answer.headers.get('idempotency-replayed'), await answer.text()]);
    }
    const page = expect.stringContaining('Alien') as string;
    expect(answers).toEqual([
      [200, null, page],
      [200, 'true', page],
      [200, 'true', page],
    ]);
    expect(await anvil.tokenBalance(payTo)).toBe(before + BigInt(price));
  });

  test('payments at once are all settled, each once, and a repetition gets the answer of the first', async () => {
    const before = await anvil.tokenBalance(payTo);
    const payments: string[] = [];
    for (let at = 0; at < 8; at++) payments.push(encoded(await version2(await newRichPayer(), (await asked())!)));
    const answers = await Promise.all(
      [...payments, ...payments].map((payment) => fetch(url(), { headers: { 'payment-signature': payment } })),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array<number>(16).fill(200));
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === 'true')).toHaveLength(8);
    expect(await anvil.tokenBalance(payTo)).toBe(before + 8n * BigInt(price));
  });

  test('a server with the official middleware uses this service as its facilitator', async () => {
    const { default: express } = await import('express');
    const { paymentMiddleware, x402ResourceServer } = await import('@x402/express');
    const { HTTPFacilitatorClient } = await import('@x402/core/server');
    const { ExactEvmScheme } = await import('@x402/evm/exact/server');
    const key = () => Promise.resolve({ 'x-app-key': app.key });
    const createAuthHeaders = async () => ({ verify: await key(), settle: await key(), supported: await key() });
    const facilitator = new HTTPFacilitatorClient({ url: `${granary.url}/x402`, createAuthHeaders });
    const resources = new x402ResourceServer(facilitator).register(anvilNetwork, new ExactEvmScheme());
    const seller = (await newPayer()).address;
    const accepts = { scheme: 'exact', price: '$0.10', network: anvilNetwork, payTo: seller } as const;
    const shop = express();
    let sold = 0;
    shop.use(paymentMiddleware({ 'GET /thing': { accepts, description: 'A thing' } }, resources));
    shop.get('/thing', (_, response) => {
      sold += 1;
      response.json({ thing: 'yours' });
    });
    const server: Http.Server = createServer(shop).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    try {
      const thing = `http://127.0.0.1:${(server.address() as AddressInfo).port}/thing`;
      const payer = await newRichPayer();
      let payment: string | null = null;
      const observed: typeof fetch = async (input, init) => {
        const request = new Request(input, init);
        payment ??= request.headers.get('payment-signature');
        return fetch(request);
      };
      const response = await (await payingFetch(payer, observed))(thing);
      expect([response.status, await response.json()]).toEqual([200, { thing: 'yours' }]);
      const paid = decoded<Paid>(response.headers.get('payment-response'));
      expect([paid.success, await statusOf(paid.transaction)]).toEqual([true, '0x1']);
      expect(await anvil.tokenBalance(seller)).toBe(100_000n);
      // The same payment once more is not valid, so that a shop which hands out before it settles hands out nothing.
      const again = await fetch(thing, { headers: { 'payment-signature': payment! } });
      expect(again.status).toBe(402);
      expect([await anvil.tokenBalance(seller), sold]).toEqual([100_000n, 1]);
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  test('a payment is valid while its payer has the money and has not used it, as the chain and what was settled here say', async () => {
    const requirement = (await asked())!;
    const { network, extra } = requirement;
    const others = {
      ...requirement,
      payTo: (await newPayer()).address,
      extra: { name: extra.name, version: extra.version },
    };
    const verify = async (payment: object, paymentRequirements: object) => {
      const body = { x402Version: 2, paymentPayload: payment, paymentRequirements };
      const found = await send<Finding>(granary.url, 'POST', '/x402/verify', { body });
      return found.body.invalidReason ?? (found.body.isValid ? 'valid' : 'invalid');
    };
    const poor = await newPayer();
    expect(await verify(await version2(poor, requirement), requirement)).toBe('insufficient_funds');
    await anvil.mint(poor.address, BigInt(price));
    // Of each of several times it is asked nothing is left behind.
    const payment = await version2(poor, requirement);
    for (const _ of [1, 2]) expect(await verify(payment, requirement)).toBe('valid');
    expect((await fetch(url(), { headers: { 'payment-signature': encoded(payment) } })).status).toBe(200);
    expect(await verify(payment, requirement)).toBe('payment_already_used');
    const elsewhere = await version2(await newRichPayer(), others as unknown as Requirement);
    expect(await verify(elsewhere, others)).toBe('valid');
    await anvil.receipt(await anvil.transact(await tokenCall('transferWithAuthorization', elsewhere.payload)));
    // The latest block may be a moment old.
    const reason = await eventually(async () => {
      const found = await verify(elsewhere, others);
      return found === 'valid' ? undefined : found;
    });
    expect(reason).toBe('invalid_exact_evm_nonce_already_used');
    const { body } = await send<{ kinds: Array<{ network: string }> }>(granary.url, 'GET', '/x402/supported');
    expect(body.kinds.map((kind) => kind.network)).toEqual([network, 'base-sepolia']);
  });

  test('what costs less than its settlement is neither offered nor settled for others, and the answer says from which price on', async () => {
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: 999 };
    await app.store('songs', [{ id: 'one', title: 'Heroes' }]);
    expect((await app.call('PUT', `/api/apps/${app.appId}/collections/songs`, { read_price_config })).status).toBe(200);
    const path = `/api/apps/${app.appId}/collections/songs/data`;
    const cheap = (headers: Record<string, string> = {}) =>
      send<{ error: string; accepts: Requirement[]; details: { message?: string } }>(granary.url, 'GET', path, {
        headers,
      });
    const asked402 = await cheap();
    expect([asked402.status, asked402.body.accepts, asked402.headers.get('payment-required')]).toEqual([402, [], null]);
    const why = `Payments are taken on ${anvilNetwork} from 1000 utia on`;
    expect(asked402.body.error).toBe(`The read costs 999 utia. ${why}`);
    const requirement = { ...(await asked())!, payTo: (await newPayer()).address };
    const { name, version } = requirement.extra;
    const others = (amount: string) => ({ ...requirement, amount, extra: { name, version } }) as unknown as Requirement;
    const payer = await newRichPayer();
    const paid = await cheap({
      'x-payment': encoded(await version1(payer, { ...others('999'), network: 'base-sepolia' }, { withQuote: false })),
    });
    expect([paid.status, paid.body.details]).toEqual([402, expect.objectContaining({ reason: 'invalid_network' })]);
    expect(paid.body.details.message).toContain(why);
    const settle = async (amount: string) => {
      const paymentRequirements = others(amount);
      const body = { x402Version: 2, paymentPayload: await version2(payer, paymentRequirements), paymentRequirements };
      const options = { body, key: app.key };
      return (await send<{ success: boolean; errorMessage?: string }>(granary.url, 'POST', '/x402/settle', options))
        .body;
    };
    expect(await settle('999')).toMatchObject({
      success: false,
      errorMessage: 'Payments in this asset are settled from 1000 units on',
    });
    expect(await settle('1000')).toMatchObject({ success: true });
    expect(await anvil.tokenBalance(requirement.payTo)).toBe(1_000n);
  });

  test('without a key the requirements of others are not settled', async () => {
    const { extra, ...own } = (await asked())!;
    const requirement = {
      ...own,
      payTo: (await newPayer()).address,
      extra: { name: extra.name, version: extra.version },
    };
    const payment = await version2(await newRichPayer(), requirement as unknown as Requirement);
    const body = { x402Version: 2, paymentPayload: payment, paymentRequirements: requirement };
    const answer = await send<{ success: boolean; errorReason: string }>(granary.url, 'POST', '/x402/settle', { body });
    expect(answer.body).toMatchObject({ success: false, errorReason: 'invalid_payment_requirements' });
  });

  test('requirements of others that pay the address of this service are not settled, however that is written', async () => {
    const { extra, ...own } = (await asked())!;
    const payer = await newRichPayer();
    const before = await anvil.tokenBalance(payTo);
    for (const ours of [payTo, payTo.toLowerCase()]) {
      const requirement = { ...own, payTo: ours, extra: { name: extra.name, version: extra.version } };
      const payment = await version2(payer, requirement as unknown as Requirement);
      const body = { x402Version: 2, paymentPayload: payment, paymentRequirements: requirement };
      const answer = await send<{ success: boolean }>(granary.url, 'POST', '/x402/settle', { body, key: app.key });
      expect(answer.body).toMatchObject({
        success: false,
        errorReason: 'invalid_payment_requirements',
        errorMessage: 'payTo is the address of this service, which sells by its own quotes only',
      });
    }
    expect(await anvil.tokenBalance(payTo)).toBe(before);
  });

  test('health names the network', async () => {
    const { text } = await send(granary.url, 'GET', '/health');
    expect(text).toContain(anvilNetwork);
  });
});
