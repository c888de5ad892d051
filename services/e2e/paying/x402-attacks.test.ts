import { connect } from 'node:net';
import { secp256k1 } from '@noble/curves/secp256k1';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import {
  authorize,
  decoded,
  encoded,
  newPayer,
  version1,
  version2,
  type Requirement,
} from '@granary/testing/x402-client';
import { CosmosWallet } from '../support/cosmos-wallet';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { isPaymentPending } from '../support/priced-app';
import { startGranary } from '../support/own-granary';

/**
 * Attacks on x402 payments that were seen in the field, each through the front door. Some need more than a request: 3
 * (sent again after a restart) is in operations/restart.test.ts; 12, 13 (transactions of Solana) are in
 * x402-solana.test.ts and payments/test; 15 (money moved, or the authorization cancelled, after the check), 16 (settled
 * by an observer), 18 (a receipt without a transfer) and 24 (nonces of the relayer) in
 * payments/test/evm-settlement.test.ts, the last one in x402-evm.test.ts too.
 */

interface Body extends Record<string, unknown> {
  accepts: Requirement[];
  code: string;
  error: string;
  details: { reason?: string };
}
type Headers = Record<string, string>;
type Payer = Awaited<ReturnType<typeof newPayer>>;

const price = 250_000;
const appShare = 200_000;
const order = secp256k1.CURVE.n;

describe.each(transports)('attacks on payments (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let wallet: CosmosWallet;
  let payer: Payer;
  /** What the apps of a test have sold honestly. */
  let sold: number;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: {
        payments: { X402_PAY_TO: 'simulated,wallets', X402_SETTLE_WAIT_MS: String(Math.min(limitMs(3_000), 20_000)) },
        finance: { SIMULATED_BLOCK_MS: '100' },
      },
    });
    wallet = await CosmosWallet.open(granary, 10_000_000);
    payer = await newPayer();
  });
  afterAll(async () => {
    await wallet?.close();
    await granary.stop();
  });
  beforeEach(async () => {
    sold = 0;
    app = await pricedApp();
  });
  // Whatever was tried, each app has earned what was paid to it, and no more.
  afterEach(async () => {
    await eventually(async () => (await earned()) === sold * appShare);
  });

  const pricedApp = async () => {
    const made = await newApp(granary);
    await made.store('films', [{ id: 'one', title: 'Alien' }]);
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: price };
    const collection = `/api/apps/${made.appId}/collections/films`;
    expect((await made.call('PUT', collection, { read_price_config })).status).toBe(200);
    return made;
  };
  const earned = async (): Promise<number> =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const path = (of = app) => `/api/apps/${of.appId}/collections/films/data`;
  const get = (headers: Headers = {}, to = path()) => send<Body>(granary.url, 'GET', to, { headers });
  const asked = async (network = 'granary-simulated', to = path()): Promise<Requirement> =>
    eventually(async () => (await get({}, to)).body.accepts.find((each) => each.network.startsWith(network)));
  const asked2 = async () => {
    const { accepts } = decoded<{ accepts: Requirement[] }>((await get()).headers.get('payment-required'));
    return accepts.find(({ network }) => network.startsWith('eip155'))!;
  };
  const pay = (payment: object): Headers => ({ 'x-payment': encoded(payment) });
  const pay2 = (payment: object): Headers => ({ 'payment-signature': encoded(payment) });
  /** What a request got: `served`, the reason why its payment was refused, or the code of the error. */
  const outcome = async (headers: Headers, to = path()) => {
    // A settlement may take longer than its request, and goes on with the next one; and a chain may not answer for a
    // moment.
    const { status, body } = await eventually(async () => {
      const answer = await get(headers, to);
      const isClosed = answer.status === 402 && answer.body.details.reason === 'settlement_unavailable';
      return isPaymentPending(answer) || isClosed ? undefined : answer;
    });
    if (status === 200) return 'served';
    return body.details.reason ?? `${status} ${body.code}`;
  };
  const serve = async (headers: Headers, to = path()) => {
    expect(await outcome(headers, to)).toBe('served');
    sold += 1;
  };
  /** A payment whose signature is right for what it says. */
  const signedWith = async (changes: object, payment: object = {}) => ({
    ...(await version1(payer, await asked(), { changes })),
    ...payment,
  });

  /** A payment, and whether a repetition gets the answer of the first: what can be read on the chain does not. */
  const repeatable: Array<[name: string, withQuote: boolean]> = [
    ['that names its quote', true],
    ['that could be read on the chain', false],
  ];
  test.each(repeatable)('1: a payment %s is sent again, when there is more to read', async (_, withQuote) => {
    const payment = pay(await version1(payer, await asked(), { withQuote }));
    await serve(payment);
    const first = (await get(payment)).text;
    await app.store('films', [{ id: 'new', title: 'Aliens' }]);
    const again = await get(payment);
    if (withQuote) expect([again.text, first.includes('Aliens')]).toEqual([first, false]);
    else expect(again.body.details.reason).toBe('payment_already_used');
  });

  test.each(repeatable)('2: a payment %s is sent many times at once', async (_, withQuote) => {
    const payment = pay(await version1(payer, await asked(), { withQuote }));
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => outcome(payment)));
    sold = 1;
    const others = withQuote ? 'served' : 'payment_already_used';
    expect(outcomes.sort()).toEqual(['served', ...Array<string>(19).fill(others)].sort());
  });

  test('4: a payment for one request is sent with another one, at the same price', async () => {
    const requirement = await asked();
    const other = await pricedApp();
    const payment = pay(await version1(payer, requirement));
    for (const elsewhere of [path(other), `${path()}?id=one`]) {
      expect(await outcome(payment, elsewhere)).toBe('quote_invalid');
    }
    await serve(payment);
    // A question mark within the query string is part of it.
    const marked = pay(await version1(payer, await asked(undefined, `${path()}?id=one?a`)));
    expect(await outcome(marked, `${path()}?id=one?b`)).toBe('quote_invalid');
    await serve(marked, `${path()}?id=one?a`);
  });

  test('5: the quote, or what it asks, is another one', async () => {
    const requirement = await asked2();
    const changed: Array<[Partial<Requirement>, string]> = [
      [{ amount: '1' }, 'invalid_payment_requirements'],
      [{ payTo: payer.address }, 'invalid_payment_requirements'],
      [{ extra: { ...requirement.extra, quoteId: `${requirement.extra.quoteId.slice(0, -1)}_` } }, 'quote_invalid'],
      [{ extra: { ...requirement.extra, quoteId: '' } }, 'quote_invalid'],
    ];
    for (const [changes, reason] of changed) {
      expect(await outcome(pay2(await version2(payer, { ...requirement, ...changes })))).toBe(reason);
    }
    expect(await outcome(pay(await signedWith({ value: '1' })))).toBe('invalid_exact_evm_payload_authorization_value');
  });

  test('6: a facilitator is asked to settle what its caller has made up', async () => {
    const requirement = await asked2();
    for (const changes of [{ amount: '1' }, { payTo: (await newPayer()).address }]) {
      const changed = { ...requirement, ...changes };
      const body = { x402Version: 2, paymentPayload: await version2(payer, changed), paymentRequirements: changed };
      const { body: result } = await send(granary.url, 'POST', '/x402/settle', { body });
      expect(result).toMatchObject({ success: false, errorReason: 'invalid_payment_requirements' });
    }
  });

  test('7: the hash of what somebody else has paid is named', async () => {
    const requirement = await asked('cosmos:');
    const outputs = [{ address: requirement.payTo, amount: BigInt(price) }] as const;
    const others = [
      await wallet.send(wallet.sign({ outputs, memo: '' })),
      await wallet.send(wallet.sign({ outputs, memo: (await asked('cosmos:')).extra.quoteId })),
    ];
    for (const txHash of others) {
      const { network, extra } = requirement;
      const payment = { x402Version: 1, scheme: 'exact', network, quoteId: extra.quoteId, payload: { txHash } };
      expect(await outcome(pay(payment))).toBe('invalid_exact_cosmos_payload_memo_mismatch');
    }
  });

  test('8, 9: another EIP-712 domain, another token', async () => {
    const requirement = await asked();
    const { extra } = requirement;
    const changes: Array<Partial<Requirement>> = [
      { extra: { ...extra, name: 'USDC' } },
      { extra: { ...extra, version: '1' === extra.version ? '2' : '1' } },
      { asset: payer.address },
      { network: 'base-sepolia' },
    ];
    for (const change of changes) {
      const payment = { ...(await version1(payer, { ...requirement, ...change })), network: requirement.network };
      expect(await outcome(pay(payment))).toBe('invalid_exact_evm_payload_signature');
    }
  });

  test('10: too little, too much, and numbers that are read in two ways', async () => {
    const amounts = [String(price - 1), String(price + 1)];
    for (const value of amounts) {
      expect(await outcome(pay(await signedWith({ value })))).toBe('invalid_exact_evm_payload_authorization_value');
    }
    const payment = await version1(payer, await asked());
    for (const value of ['25e4', '0x3d090', '250000.0', ' 250000', '0250000', '', '-250000', price]) {
      const { payload } = payment;
      const spelled = { ...payload, authorization: { ...payload.authorization, value } };
      expect(await outcome(pay({ ...payment, payload: spelled }))).toBe('invalid_payload');
    }
    await serve(pay(payment));
  });

  test('11, 14: a used payment in another spelling, and signatures of wallets that are contracts', async () => {
    const payment = await version1(payer, await asked());
    await serve(pay(payment));
    const { signature } = payment.payload;
    const [r, s, v] = [
      signature.slice(2, 66),
      BigInt(`0x${signature.slice(66, 130)}`),
      parseInt(signature.slice(130), 16),
    ];
    const hex = (value: bigint) => value.toString(16).padStart(64, '0');
    const spellings: Array<[string, string]> = [
      [`0x${r}${hex(order - s)}${v === 27 ? '1c' : '1b'}`, 'invalid_exact_evm_payload_signature'],
      [`0x${r}${hex(s)}${v === 27 ? '00' : '01'}`, 'invalid_exact_evm_payload_signature'],
      [`0x${r}${hex(s | (BigInt(v - 27) << 255n))}`, 'invalid_exact_evm_payload_signature'],
      [`0x${r}${hex(s)}${v.toString(16)}${'6492'.repeat(16)}`, 'invalid_exact_evm_payload_undeployed_smart_wallet'],
      [signature.toUpperCase().replace('0X', '0x'), 'payment_already_used'],
    ];
    for (const [spelled, reason] of spellings) {
      expect(await outcome(pay({ ...payment, payload: { ...payment.payload, signature: spelled } }))).toBe(reason);
    }
    expect(await outcome(pay({ ...payment, note: 'new' }))).toBe('payment_already_used');
  });

  test('17: an answer is lost and asked for again, or its key used with another payment', async () => {
    const requirement = await asked();
    const identified = { 'idempotency-key': 'order-1' };
    const payment = { ...identified, ...pay(await version1(payer, requirement, { withQuote: false })) };
    await serve(payment);
    const { headers } = await get(payment);
    expect(headers.get('idempotency-replayed')).toBe('true');
    const other = { ...identified, ...pay(await version1(payer, await asked(), { withQuote: false })) };
    const again = await get(other);
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([200, 'true']);
    expect(await outcome(other, `${path()}?select=title`)).toBe('422 IDEMPOTENCY_KEY_REUSED');
  });

  test('19, 21, 29: headers that are too long, too deep, twice there, or JSON that is read in two ways', async () => {
    const payment = await version1(payer, await asked());
    const text = JSON.stringify(payment);
    const base64 = (json: string) => Buffer.from(json).toString('base64');
    const refused: Headers[] = [
      { 'x-payment': base64(text.padEnd(7_000)) },
      { 'x-payment': base64(`${'['.repeat(40)}${']'.repeat(40)}`) },
      { 'x-payment': base64(text.replace('"scheme":"exact"', '"scheme":"exact","scheme":"exact"')) },
      { 'x-payment': base64('{"x402Version":1,"x402Version":2}') },
      { 'x-payment': base64(`{"__proto__":{"x402Version":1},${text.slice(1)}`) },
      { 'x-payment': Buffer.from(text.replace('exact', '\u00ff\u00fe\u00ff')).toString('base64url') },
      { 'x-payment': 'not base64!' },
      { 'x-payment': base64(text), 'payment-signature': base64(text) },
      { 'x-payment': base64(text), 'x-agent-key': 'app_unknown' },
      { 'payment-signature': base64(text) },
    ];
    for (const headers of refused) expect(await outcome(headers)).toBe('400 VALIDATION_FAILED');
    const repeated = await rawGet(`x-payment: ${base64(text)}\r\nx-payment: ${base64(text)}\r\n`);
    expect(repeated).toMatch(/^HTTP\/1.1 400 /);
    const html = await get({ 'x-payment': base64('{"x402Version":1,"scheme":"<script>","network":"<script>"}') });
    expect([html.status, html.text.includes('<script>')]).toEqual([402, false]);
  });

  const rawGet = (headers: string) =>
    new Promise<string>((resolve, reject) => {
      const { hostname, port } = new URL(granary.url);
      const socket = connect(Number(port), hostname, () =>
        socket.write(`GET ${path()} HTTP/1.1\r\nhost: ${hostname}\r\nconnection: close\r\n${headers}\r\n`),
      );
      let text = '';
      socket.on('data', (chunk) => (text += chunk.toString()));
      socket.on('end', () => resolve(text)).on('error', reject);
    });

  test('20: a cache keeps a price, or what somebody has paid for', async () => {
    const unpaid = await get();
    expect([unpaid.status, unpaid.headers.get('cache-control')]).toEqual([402, 'no-store']);
    const paid = await get(
      pay(
        await version1(
          payer,
          unpaid.body.accepts.find(({ network }) => network === 'granary-simulated')!,
        ),
      ),
    );
    sold += 1;
    expect([paid.status, paid.headers.get('cache-control'), paid.headers.get('etag')]).toEqual([200, 'no-store', null]);
  });

  test('22: other spellings of the path', async () => {
    const spelled = [
      '//data',
      '/%64ata',
      '/data/',
      '/data%2f',
      '/./data',
      '/data;a=b',
      '/data%0a',
      '/DATA',
      '/data%00',
    ];
    for (const spelling of spelled) {
      const answer = await get({}, path().replace('/data', spelling));
      expect([spelling, [400, 402, 404].includes(answer.status), answer.text.includes('Alien')]).toEqual([
        spelling,
        true,
        false,
      ]);
    }
  });

  test('23: too early, too late, valid for too long', async () => {
    const now = Math.floor(Date.now() / 1_000);
    const windows: Array<[object, string]> = [
      [{ validBefore: String(now - 1) }, 'invalid_exact_evm_payload_authorization_valid_before'],
      [{ validBefore: String(now + 31_536_000) }, 'invalid_exact_evm_payload_authorization_valid_before'],
      [{ validAfter: String(now + 120) }, 'invalid_exact_evm_payload_authorization_valid_after'],
    ];
    for (const [changes, reason] of windows) expect(await outcome(pay(await signedWith(changes)))).toBe(reason);
  });

  test('25: many payments at once that would be refused leave one that is good its turn', async () => {
    const requirement = await asked();
    const { authorization } = await authorize(await newPayer(), requirement);
    const bad = { x402Version: 1, scheme: 'exact', network: requirement.network };
    const forged = pay({ ...bad, payload: { authorization, signature: `0x${'11'.repeat(65)}` } });
    const flood = Array.from({ length: 100 }, () => get(forged));
    await serve(pay(await version1(payer, requirement)));
    for (const { status } of await Promise.all(flood)) expect([402, 429, 503]).toContain(status);
  });

  test('26: a payment up to an amount, whose scheme is not offered', async () => {
    const { accepts } = (await get()).body;
    expect(accepts.map(({ scheme }) => scheme)).toEqual(accepts.map(() => 'exact'));
    expect((await send(granary.url, 'GET', '/x402/supported')).text).not.toContain('upto');
    const requirement = await asked2();
    const upTo = { ...requirement, scheme: 'upto', amount: String(10 * price) };
    const old = { ...(await signedWith({})), scheme: 'upto' };
    const payment = await version2(payer, upTo, { changes: { value: upTo.amount } });
    for (const headers of [pay(old), pay2(payment)]) expect(await outcome(headers)).toBe('invalid_scheme');
    const body = { x402Version: 2, paymentPayload: payment, paymentRequirements: upTo };
    const settled = await send(granary.url, 'POST', '/x402/settle', { body });
    expect(settled.body).toMatchObject({ success: false, errorReason: 'unsupported_scheme' });
  });

  test('27: a payment on another network', async () => {
    const { quoteId } = (await asked()).extra;
    for (const network of ['base', 'base-sepolia']) {
      expect(await outcome(pay({ ...(await signedWith({})), quoteId, network }))).toBe('invalid_network');
    }
  });

  test('28: two transactions with the same sequence', async () => {
    const [one, other] = [await asked('cosmos:'), await asked('cosmos:')];
    const signed = wallet.signAtOnce(
      [one, other].map(({ payTo, extra }) => ({
        outputs: [{ address: payTo, amount: BigInt(price) }],
        memo: extra.quoteId,
      })),
    );
    const outcomes = await Promise.all(
      signed.map((bytes, at) => {
        const payload = { signedTx: bytes.toString('base64'), accountNumber: wallet.accountNumber().toString() };
        return outcome(pay({ x402Version: 1, scheme: 'exact', network: [one, other][at]!.network, payload }));
      }),
    );
    sold = 1;
    expect(outcomes.sort()).toEqual(['payment_already_used', 'served']);
  });

  test('a key of the app reads free, and no payment is taken with it', async () => {
    const payment = pay(await version1(payer, await asked()));
    const operator = { 'x-operator-key': operatorKey };
    for (const key of [{ 'x-app-key': app.key }, operator])
      expect(await outcome({ ...payment, ...key })).toBe('served');
    await serve(payment);
  });
});
