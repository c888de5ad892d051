import { createLogger } from '@granary/shared/logger';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { createPool, execute, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { newCosmosPayer, signCosmos, type CosmosPayer } from '@granary/testing/cosmos-payer';
import { eventually } from '@granary/testing/eventually';
import { decoded, encoded, type Requirement } from '@granary/testing/x402-client';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { isPaymentPending, pricedFilms } from '../support/priced-app';

interface Body extends Record<string, unknown> {
  accepts: Requirement[];
  code: string;
  details: { reason?: string; status?: string; ticket_id?: string; idempotency_key?: string };
}

const price = 250_000;
const appShare = 200_000;

describe.each(transports)('x402 payments on the chain of the wallets (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let pool: Pool;
  let claims: Pool;
  let payer: CosmosPayer;
  let chainId: string;
  let accountNumber: bigint;
  let sequence: bigint;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: {
        payments: { X402_PAY_TO: 'simulated,wallets', X402_SETTLE: 'open' },
        finance: { SIMULATED_BLOCK_MS: '100' },
      },
    });
    const log = createLogger('test', 'silent');
    const to = (url: string) => createPool({ url, size: 1, applicationName: 'test', log });
    [pool, claims] = [to(granary.databaseUrls.finance), to(granary.databaseUrls.payments)];
  });
  afterAll(async () => {
    await Promise.all([pool?.end(), claims?.end()]);
    await granary.stop();
  });
  beforeEach(async () => {
    app = await pricedFilms(granary, price);
    payer = newCosmosPayer();
    await fund(5_000_000);
  });

  /** Pays money of the faucet out to the payer, who has an account from then on. */
  const fund = async (amount: number) => {
    const rich = await newApp(granary);
    const body = { amount: amount * 2 };
    const headers = { 'x-operator-key': operatorKey };
    await send(granary.url, 'POST', `/api/apps/${rich.appId}/faucet`, { body, headers });
    const path = `/api/apps/${rich.appId}/payout/trigger`;
    await eventually(async () => {
      const { status } = await rich.call('POST', path, { amount, payout_address: payer.address });
      return status === 202;
    });
    const account = await eventually(() =>
      row<{ number: bigint; sequence: bigint }>(
        pool,
        sql`select number, sequence from simulated_account where address = ${payer.address} and balance >= ${amount}::bigint`,
      ),
    );
    ({ number: accountNumber, sequence } = account);
    chainId = (await row<{ id: string }>(pool, sql`select chain_id as id from simulated_chain`))!.id;
  };
  const path = () => `/api/apps/${app.appId}/collections/films/data`;
  const get = (headers: Record<string, string> = {}) => send<Body>(granary.url, 'GET', path(), { headers });
  /** Of the first requirement: Cosmos comes first. */
  const asked = () =>
    eventually(async () => {
      const { status, body } = await get();
      expect(status).toBe(402);
      return body.accepts.find(({ network }) => network === `cosmos:${chainId}`) && body.accepts[0];
    });
  const signed = (requirement: Requirement, changes: Partial<Transfer> = {}) => {
    const fee = { amount: 1_000n, gas: 150_000n };
    const amount = BigInt(requirement.maxAmountRequired ?? requirement.amount!);
    return signCosmos(payer, {
      chainId,
      accountNumber,
      sequence,
      denom: 'utia',
      memo: requirement.extra.quoteId,
      fee,
      timeoutHeight: 0n,
      outputs: [{ address: requirement.payTo, amount }],
      ...changes,
    }).toString('base64');
  };
  const version1 = (requirement: Requirement, changes: Partial<Transfer> = {}) => ({
    x402Version: 1,
    scheme: 'exact',
    network: requirement.network,
    payload: { signedTx: signed(requirement, changes), accountNumber: accountNumber.toString() },
  });
  const earned = async (): Promise<number> =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  /** Sends a payment until it is settled, and again when the chain did not answer for a moment. */
  const paid = (headers: Record<string, string>) =>
    eventually(async () => {
      const answer = await get(headers);
      if (isPaymentPending(answer)) {
        const task = `/api/tasks/${answer.body.details.ticket_id!}`;
        const ticket = await app.call<{ status: string; operation_type: string }>('GET', task);
        expect(ticket.body.operation_type).toBe('payment');
        return undefined;
      }
      const isClosed = answer.status === 402 && answer.body.details.reason === 'settlement_unavailable';
      return isClosed ? undefined : answer;
    }, 30_000);

  test('a payment is valid while its payer has the money, and its sequence is not used', async () => {
    const requirement = await asked();
    const reason = async (payment: object, paymentRequirements: Requirement) => {
      const body = { x402Version: 1, paymentPayload: payment, paymentRequirements };
      const found = await send<{ isValid: boolean; invalidReason?: string }>(granary.url, 'POST', '/x402/verify', {
        body,
      });
      return found.body.invalidReason ?? found.body.isValid;
    };
    /** Again when the chain did not answer for a moment. */
    const found = (payment: object, of = requirement) =>
      eventually(async () => {
        const why = await reason(payment, of);
        return why === 'settlement_unavailable' ? undefined : [why];
      });
    expect(await found(version1(requirement))).toEqual([true]);
    const dear = { ...requirement, maxAmountRequired: '5000001' };
    expect(await found(version1(dear), dear)).toEqual(['insufficient_funds']);
    const payment = version1(requirement);
    expect((await paid({ 'x-payment': encoded(payment) })).status).toBe(200);
    expect(await found(payment)).toEqual(['payment_already_used']);
    // It says the same sequence once more.
    const another = version1(requirement, { fee: { amount: 1_001n, gas: 150_000n }, memo: 'another' });
    const others = { ...requirement, extra: { ...requirement.extra, quoteId: 'another' } };
    expect(await found(another, others)).toEqual(['payment_already_used']);
  });

  test('a read is paid by a signed transaction that names its quote, in both versions, and the money arrives on the chain', async () => {
    const requirement = await asked();
    expect(requirement).toMatchObject({ network: `cosmos:${chainId}`, asset: 'utia', maxAmountRequired: '250000' });
    const first = await paid({ 'x-payment': encoded(version1(requirement)) });
    expect([first.status, first.text]).toEqual([200, expect.stringContaining('Alien')]);
    const settled = decoded<Record<string, unknown>>(first.headers.get('x-payment-response'));
    expect(settled).toMatchObject({
      success: true,
      network: `cosmos:${chainId}`,
      payer: payer.address,
      amount: '250000',
    });
    const transfer = await row<{ recipient: string; memo: string; amount: bigint }>(
      pool,
      sql`select recipient, memo, amount from simulated_transfer where hash = ${settled['transaction']}`,
    );
    expect(transfer).toEqual({ recipient: requirement.payTo, memo: requirement.extra.quoteId, amount: 250_000n });
    sequence += 1n;
    // The network is offered as long as its chain answers.
    const requirement2 = await eventually(async () => {
      const { accepts } = decoded<{ accepts: Requirement[] }>((await get()).headers.get('payment-required'));
      return accepts.find(({ network }) => network === `cosmos:${chainId}`);
    });
    const payload = { transaction: signed(requirement2), accountNumber: Number(accountNumber) };
    const payment2 = encoded({ x402Version: 2, accepted: requirement2, payload });
    expect((await paid({ 'payment-signature': payment2 })).status).toBe(200);
    await eventually(async () => ((await earned()) === 2 * appShare ? true : undefined));
    for (const used of [{ 'x-payment': encoded(version1(requirement)) }, { 'payment-signature': payment2 }]) {
      expect((await get(used)).status).toBe(402);
    }
    expect(await earned()).toBe(2 * appShare);
  });

  test('of two transactions with the same sequence one pays, and of one transaction in many requests one is answered', async () => {
    const payments = await Promise.all([1, 2].map(async () => encoded(version1(await asked()))));
    const answers = await Promise.all(
      payments.flatMap((payment) => Array.from({ length: 10 }, () => paid({ 'x-payment': payment }))),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const { status, body } of answers)
      if (status !== 200) expect(body.details.reason).toBe('payment_already_used');
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('what the chain refuses is refused with the reason, and may be sent again once it would not be', async () => {
    const reason = async (payment: object) => {
      const { status, body } = await paid({ 'x-payment': encoded(payment) });
      return status === 200 ? 'paid' : body.details.reason;
    };
    const requirement = await asked();
    const fee = { amount: 0n, gas: 150_000n };
    expect(await reason(version1(requirement, { fee }))).toBe('invalid_exact_cosmos_payload_fee');
    expect(await reason(version1(requirement, { sequence: sequence + 1n }))).toBe(
      'invalid_exact_cosmos_payload_sequence',
    );
    expect(await reason(version1(requirement, { timeoutHeight: 1n }))).toBe('payment_expired');
    expect(await reason(version1(requirement, { memo: 'another' }))).toBe('quote_invalid');
    const poor = newCosmosPayer();
    const rich = payer;
    payer = poor;
    expect(await reason(version1(requirement))).toBe('invalid_exact_cosmos_payload_signature');
    payer = rich;
    expect(await reason(version1(requirement))).toBe('paid');
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('what others sell is settled once, also when its claim is forgotten', async () => {
    const { network, asset } = await asked();
    const requirement = {
      scheme: 'exact',
      network,
      asset,
      payTo: newCosmosPayer().address,
      maxAmountRequired: '1000',
      maxTimeoutSeconds: 60,
      extra: {},
    } as unknown as Requirement;
    const body = {
      x402Version: 1,
      paymentRequirements: requirement,
      paymentPayload: version1(requirement, { memo: '' }),
    };
    const settle = () =>
      eventually(async () => {
        const answer = await app.call<{ success: boolean; errorReason?: string }>('POST', '/x402/settle', body);
        return answer.body.errorReason === 'settlement_pending' ? undefined : answer.body;
      });
    expect(await settle()).toMatchObject({ success: true, payer: payer.address });
    expect(await settle()).toMatchObject({ success: false, errorReason: 'duplicate_settlement' });
    await execute(claims, sql`delete from claim where payer = ${payer.address}`);
    expect(await settle()).toMatchObject({ success: false, errorReason: 'invalid_exact_cosmos_payload_sequence' });
  });
});
