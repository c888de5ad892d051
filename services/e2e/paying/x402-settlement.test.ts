import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { isLong, size } from '@granary/testing/size';
import { repository, runProgram } from '../clients/generated';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import {
  decoded,
  encoded,
  newPayer,
  simulatedName,
  simulatedNetwork,
  version1,
  version2,
  type Requirement,
} from '@granary/testing/x402-client';

interface Body extends Record<string, unknown> {
  accepts: Requirement[];
  code: string;
  details: { reason?: string; message?: string };
}
interface SettleResult {
  success: boolean;
  errorReason?: string;
  transaction: string;
  network: string;
  payer: string;
  amount?: string;
}

const price = 250_000;
/** 80 %, rounded down. */
const appShare = 200_000;
/** In groups of five. */
const payments = 5 * size({ run: 1, long: 10 });
const uses = isLong ? 200 : 40;

describe.each(transports)('settlement of x402 payments (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let pool: Pool;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
    const log = createLogger('test', 'silent');
    pool = createPool({ url: granary.databaseUrls.payments, size: 1, applicationName: 'test', log });
  });
  afterAll(async () => {
    await pool?.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('films', [{ id: 'one', title: 'Alien', year: 1979 }]);
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: price };
    const index = { name: 'by_year', collection: 'films', field_name: 'year', index_type: 'btree', read_price_config };
    expect((await app.call('POST', `/api/apps/${app.appId}/indexes`, index)).status).toBe(201);
  });

  const path = () => `/api/apps/${app.appId}/collections/films/data?year=1979`;
  /** Again while the payment is being settled, or there is too much to do. */
  const get = async (headers: Record<string, string> = {}, to = path()) => {
    for (;;) {
      const answer = await send<Body>(granary.url, 'GET', to, { headers });
      if (answer.status !== 503) return answer;
      await delay(100);
    }
  };
  const asked = async (to = path()): Promise<Requirement> => {
    const { status, body } = await get({}, to);
    expect([status, body.accepts.length]).toEqual([402, 1]);
    expect(body['error']).toMatch(/ costs /);
    return body.accepts[0]!;
  };
  const asked2 = async (to = path()): Promise<Requirement> => {
    const { headers } = await get({}, to);
    return decoded<{ accepts: Requirement[] }>(headers.get('payment-required')).accepts[0]!;
  };
  const earned = async (): Promise<number> =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const settle = async (payment: object, requirement: object, headers: Record<string, string> = {}) => {
    const body = { x402Version: 2, paymentPayload: payment, paymentRequirements: requirement };
    const answer = await send<SettleResult>(granary.url, 'POST', '/x402/settle', { body, headers });
    expect(answer.status).toBe(200);
    return answer.body;
  };

  test('a read is paid by a payment of version 1, with and without its quote, and the money arrives', async () => {
    const payer = await newPayer();
    const requirement = await asked();
    expect(requirement).toMatchObject({ network: simulatedName, maxAmountRequired: '250000' });
    const plain = await get({ 'x-payment': encoded(await version1(payer, requirement)) });
    expect([plain.status, plain.text]).toEqual([200, expect.stringContaining('Alien')]);
    expect([plain.headers.get('cache-control'), plain.headers.get('etag')]).toEqual(['no-store', null]);
    const answer = JSON.parse(plain.headers.get('x-payment-response')!) as Record<string, unknown>;
    expect(answer).toEqual({
      success: true,
      network: simulatedNetwork,
      payer: payer.address,
      amount: '250000',
      txHash: expect.stringMatching(/^0x[0-9a-f]{64}$/) as string,
      transaction: answer['txHash'],
      blockHeight: expect.any(Number) as number,
      confirmedAt: expect.any(String) as string,
    });
    // An official client does not send the quote, and reads base64.
    const official = await get({ 'x-payment': encoded(await version1(payer, requirement, { withQuote: false })) });
    expect(official.status).toBe(200);
    expect(decoded(official.headers.get('x-payment-response'))).toMatchObject({ success: true, payer: payer.address });
    await eventually(async () => ((await earned()) === 2 * appShare ? true : undefined));
  });

  test('a read is paid by a payment of version 2', async () => {
    const payer = await newPayer();
    const payment = await version2(payer, await asked2());
    const answer = await get({ 'payment-signature': encoded(payment) });
    expect(answer.status).toBe(200);
    expect(decoded(answer.headers.get('payment-response'))).toEqual({
      success: true,
      network: simulatedNetwork,
      payer: payer.address,
      amount: '250000',
      transaction: expect.stringMatching(/^0x[0-9a-f]{64}$/) as string,
    });
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test(`each of ${payments} payments pays once, though it is sent ${uses} times at once, and for nothing else`, async () => {
    const payer = await newPayer();
    const requirement = await asked();
    /** Of these an answer was lost, which may have been the one with the page: none may follow. */
    const interrupted = new Set<string>();
    const use = async (payment: string): Promise<number> => {
      for (;;) {
        const headers = { 'x-payment': payment };
        const { status, body, text } = await send<Body>(granary.url, 'GET', path(), { headers });
        if (status === 200) return status;
        if (status === 402) {
          expect([body.details.reason, text]).toEqual(['payment_already_used', text]);
          return status;
        }
        // 429: too many reads of the app wait already, and nothing was done.
        expect([[429, 503, 504].includes(status), text]).toEqual([true, text]);
        if (status >= 500) interrupted.add(payment);
        await delay(100);
      }
    };
    const pagesOf = async (payment: string): Promise<number> => {
      const statuses = await Promise.all(Array.from({ length: uses }, () => use(payment)));
      return statuses.filter((status) => status === 200).length;
    };
    let last = '';
    for (let at = 0; at < payments; at += 5) {
      const five = Array.from({ length: 5 }, () => version1(payer, requirement, { withQuote: false }));
      const sent = (await Promise.all(five)).map(encoded);
      const pages = await Promise.all(sent.map(pagesOf));
      expect(pages).toEqual(sent.map((payment, n) => (interrupted.has(payment) ? Math.min(pages[n]!, 1) : 1)));
      last = sent[0]!;
    }
    const claims = sql`select state, count(*)::int as count from claim where app_id = ${app.appId} group by state`;
    expect(await rows(pool, claims)).toEqual([{ state: 'granted', count: payments }]);
    // For another request it is worth nothing either.
    const other = await get({ 'x-payment': last }, `${path()}&limit=5`);
    expect([other.status, other.body.details.reason]).toEqual([402, 'payment_already_used']);
    await eventually(async () => ((await earned()) === payments * appShare ? true : undefined));
  });

  test('a payment that was used, or that its payer has no money for, is not valid', async () => {
    const verify = async (payment: object, paymentRequirements: object) => {
      const body = { x402Version: 2, paymentPayload: payment, paymentRequirements };
      return (await send<Record<string, unknown>>(granary.url, 'POST', '/x402/verify', { body })).body;
    };
    const payer = await newPayer();
    const requirement = await asked2();
    const payment = await version2(payer, requirement);
    const valid = { isValid: true, payer: payer.address };
    expect([await verify(payment, requirement), await verify(payment, requirement)]).toEqual([valid, valid]);
    expect((await get({ 'payment-signature': encoded(payment) })).status).toBe(200);
    const used = { isValid: false, invalidReason: 'payment_already_used', payer: payer.address };
    expect(await verify(payment, requirement)).toMatchObject(used);
    const dear = { ...requirement, amount: '1000000000' };
    expect(await verify(await version2(payer, dear), dear)).toMatchObject({ invalidReason: 'insufficient_funds' });
  });

  test('a quote is paid once, by one payment', async () => {
    const payer = await newPayer();
    const requirement = await asked();
    const answers = await Promise.all(
      Array.from({ length: 10 }, async () => get({ 'x-payment': encoded(await version1(payer, requirement)) })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    const refusals = answers.filter(({ status }) => status === 402).map(({ body }) => body.details.reason);
    expect(refusals).toEqual(Array(9).fill('quote_used'));
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('a payment that does not meet its requirement is refused with the reason, moves nothing, and its quote can still be paid', async () => {
    const payer = await newPayer();
    const requirement = await asked();
    const reasonOf = async (payment: object, header = 'x-payment') => {
      const { status, body, headers } = await get({ [header]: encoded(payment) });
      expect([status, body.code]).toEqual([402, 'PAYMENT_REFUSED']);
      // Clients of either version compare the reason, and people read the sentence.
      const { reason, message } = body.details;
      const inHeader = decoded<{ error: string }>(headers.get('payment-required')).error;
      expect([body['error'], inHeader, message]).toEqual([reason, reason, expect.stringMatching(/\w .* /)]);
      if (header === 'payment-signature') {
        expect(decoded(headers.get('payment-response'))).toMatchObject({ success: false, transaction: '' });
      }
      return body.details.reason;
    };
    const changed = async (changes: object) => reasonOf(await version1(payer, requirement, { changes }));
    expect(await changed({ value: '249999' })).toBe('invalid_exact_evm_payload_authorization_value');
    expect(await changed({ to: payer.address })).toBe('invalid_exact_evm_payload_recipient_mismatch');
    const late = String(Math.floor(Date.now() / 1_000) + 2);
    expect(await changed({ validBefore: late })).toBe('invalid_exact_evm_payload_authorization_valid_before');
    const forged = await version1(payer, requirement);
    forged.payload.signature = `0x${randomBytes(64).toString('hex')}1b`;
    expect(await reasonOf(forged)).toBe('invalid_exact_evm_payload_signature');
    const unknown = { ...(await version1(payer, requirement, { withQuote: false })), network: 'base' };
    expect(await reasonOf(unknown)).toBe('invalid_network');
    const requirement2 = await asked2();
    const cheaper = { ...requirement2, amount: '1' };
    expect(await reasonOf(await version2(payer, cheaper), 'payment-signature')).toBe('invalid_payment_requirements');
    const elsewhere = { ...requirement2, payTo: payer.address };
    expect(await reasonOf(await version2(payer, elsewhere), 'payment-signature')).toBe('invalid_payment_requirements');
    const shared = {
      ...requirement2,
      extra: { ...requirement2.extra, costBreakdown: { app: 0, platform: 0, total: 0 } },
    };
    expect(await reasonOf(await version2(payer, shared), 'payment-signature')).toBe('invalid_payment_requirements');
    expect(await earned()).toBe(0);
    expect((await get({ 'x-payment': encoded(await version1(payer, requirement)) })).status).toBe(200);
  });

  test('an account pays what it has, and is refused beyond', async () => {
    const payer = await newPayer();
    const dear = { pricing_model: 'per_access', price_per_access_utia: 600_000_000 };
    const collection = `/api/apps/${app.appId}/collections/films`;
    expect((await app.call('PUT', collection, { read_price_config: dear })).status).toBe(200);
    const payments = await Promise.all(
      Array.from({ length: 4 }, async () => encoded(await version1(payer, await asked()))),
    );
    const answers = await Promise.all(payments.map((payment) => get({ 'x-payment': payment })));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 402, 402, 402]);
    for (const { status, body } of answers) if (status === 402) expect(body.details.reason).toBe('insufficient_funds');
    // A payment that was refused stays refused, and one that has paid stays answered.
    for (const [at, payment] of payments.entries()) {
      expect((await get({ 'x-payment': payment })).status).toBe(answers[at]!.status);
    }
    await eventually(async () => ((await earned()) === 480_000_000 ? true : undefined));
  });

  test('a read that fails costs nothing, and a payment for less than the page costs stays unspent', async () => {
    const payer = await newPayer();
    const payment = encoded(await version1(payer, await asked()));
    const dearer = { pricing_model: 'per_access', price_per_access_utia: price + 1 };
    const collection = `/api/apps/${app.appId}/collections/films`;
    expect((await app.call('PUT', collection, { read_price_config: dearer })).status).toBe(200);
    const refused = await get({ 'x-payment': payment });
    expect([refused.status, refused.body.details.reason]).toEqual([402, 'quote_insufficient']);
    expect(refused.body.accepts[0]!.maxAmountRequired).toBe('250001');
    expect((await app.call('PUT', collection, { read_price_config: {} })).status).toBe(200);
    expect((await get({ 'x-payment': payment })).status).toBe(200);
  });

  test('a lost answer comes again to the same Idempotency-Key or payment-identifier, and to nothing else', async () => {
    const payer = await newPayer();
    const key = { 'idempotency-key': randomBytes(8).toString('hex') };
    const payment = { 'x-payment': encoded(await version1(payer, await asked())) };
    const first = await get({ ...payment, ...key });
    expect(first.status).toBe(200);
    await app.store('films', [{ id: 'two', title: 'Aliens', year: 1979 }]);
    const again = await get({ ...payment, ...key });
    expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([200, first.text, 'true']);
    expect(again.headers.get('x-payment-response')).toBe(first.headers.get('x-payment-response'));
    for (const headers of [payment, { ...payment, 'idempotency-key': 'another' }]) {
      expect((await get(headers)).body.details.reason).toBe('payment_already_used');
    }
    const earnedBefore = await earned();
    const anotherPayment = { 'x-payment': encoded(await version1(payer, await asked())) };
    const second = await get({ ...anotherPayment, ...key });
    expect([second.status, second.text, second.headers.get('idempotency-replayed')]).toEqual([200, first.text, 'true']);
    const elsewhere = `${path()}?select=title`;
    const third = await get({ 'x-payment': encoded(await version1(payer, await asked(elsewhere))), ...key }, elsewhere);
    expect([third.status, third.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    // The second was not taken, so it pays for something else.
    expect((await get(anotherPayment)).headers.get('idempotency-replayed')).toBeNull();
    await eventually(async () => (await earned()) === earnedBefore + appShare);
    // The key of one payer is not that of another.
    const stranger = await newPayer();
    expect((await get({ 'x-payment': encoded(await version1(stranger, await asked())), ...key })).status).toBe(200);

    const id = randomBytes(16).toString('hex');
    const extensions = { 'payment-identifier': { info: { required: false, id } } };
    const named = { 'payment-signature': encoded(await version2(payer, await asked2(), { extensions })) };
    const [one, other] = [await get(named), await get(named)];
    expect([one.status, other.status, other.text]).toEqual([200, 200, one.text]);
    const short = { 'payment-identifier': { info: { required: false, id: 'short' } } };
    const wrong = { 'payment-signature': encoded(await version2(payer, await asked2(), { extensions: short })) };
    expect((await get(wrong)).status).toBe(400);
  });

  test('a payment that was settled by /x402/settle still pays for its request, once', async () => {
    const payer = await newPayer();
    const requirement = await asked2();
    const payment = await version2(payer, requirement);
    const settled = await settle(payment, requirement);
    expect(settled).toMatchObject({ success: true, network: simulatedNetwork, payer: payer.address, amount: '250000' });
    expect(await settle(payment, requirement)).toEqual(settled);
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
    const answer = await get({ 'payment-signature': encoded(payment) });
    expect(answer.status).toBe(200);
    expect(decoded(answer.headers.get('payment-response'))).toMatchObject({ transaction: settled.transaction });
    const again = await get({ 'payment-signature': encoded(payment) });
    expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([200, answer.text, 'true']);
    expect(await earned()).toBe(appShare);
    // Version 1, with the requirement of the body.
    const body = await asked();
    const old = await version1(payer, body);
    const answer1 = await send<SettleResult>(granary.url, 'POST', '/x402/settle', {
      body: { x402Version: 1, paymentPayload: old, paymentRequirements: body },
    });
    expect(answer1.body.success).toBe(true);
    expect((await get({ 'x-payment': encoded(old) })).status).toBe(200);
  });

  test('the official client pays by itself, in version 2, as the documentation shows', async () => {
    const guide = await readFile(join(repository, 'docs/money/x402.md'), 'utf8');
    const [, program] = /^```js\n(.*?)^```/ms.exec(guide)!;
    const args = ['--input-type=module', '--eval', program!, granary.url + path()];
    const said = await runProgram(process.execPath, args, { cwd: repository });
    const [status, page, header] = said.split('\n');
    expect([status, page]).toEqual(['200', expect.stringContaining('Alien')]);
    expect(decoded<SettleResult>(header!)).toMatchObject({
      success: true,
      network: simulatedNetwork,
      amount: '250000',
    });
  });

  test('requirements that this service has not made are not settled, whoever asks', async () => {
    const payer = await newPayer();
    const own = await asked2();
    const { quoteId, ...extra } = own.extra;
    for (const changed of [
      { ...own, amount: '1' },
      { ...own, payTo: payer.address },
      { ...own, extra },
      { ...own, extra: { ...own.extra, app: 'another' } },
      { ...own, extra: { ...own.extra, quoteId: `${quoteId.slice(0, -1)}${quoteId.endsWith('A') ? 'B' : 'A'}` } },
    ]) {
      const requirement = changed as Requirement;
      const payment = await version2(payer, requirement, { changes: { to: own.payTo } });
      for (const headers of [{}, { 'x-app-key': app.key }]) {
        const result = await settle(payment, requirement, headers);
        expect([result.success, result.transaction]).toEqual([false, '']);
        expect(result.errorReason).toMatch(/^invalid_(payment_requirements|exact_evm_payload_recipient_mismatch)$/);
      }
    }
    expect(await earned()).toBe(0);
  });
});
