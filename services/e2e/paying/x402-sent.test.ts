import { createLogger } from '@granary/shared/logger';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { createPool, execute } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { decoded, encoded, type Requirement } from '@granary/testing/x402-client';
import { CosmosWallet } from '../support/cosmos-wallet';
import { newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { pricedFilms, pricedNotes } from '../support/priced-app';

interface Body extends Record<string, unknown> {
  accepts: Requirement[];
  details: { reason?: string };
}

const price = 250_000;
const appShare = 200_000;

describe.each(transports)('payments by transactions that the payer has sent (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let wallet: CosmosWallet;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: {
        payments: { X402_PAY_TO: 'wallets', X402_SETTLE_WAIT_MS: String(Math.min(limitMs(3_000), 20_000)) },
        finance: { SIMULATED_BLOCK_MS: '100' },
      },
    });
    wallet = await CosmosWallet.open(granary, 10_000_000);
  });
  afterAll(async () => {
    await wallet?.close();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await pricedFilms(granary, price);
  });

  const path = (query = '') => `/api/apps/${app.appId}/collections/films/data${query}`;
  /**
   * Again while there is too much to do, or nothing is offered: the network is closed while its chain does not answer.
   */
  const get = (headers: Record<string, string> = {}, query = '') =>
    eventually(async () => {
      const answer = await send<Body>(granary.url, 'GET', path(query), { headers });
      const isClosed = answer.status === 402 && answer.body.accepts.length === 0;
      return isClosed || answer.status === 503 ? undefined : answer;
    });
  const asked = async (query = '') => (await get({}, query)).body.accepts[0]!;
  const transferFor = (
    { payTo, maxAmountRequired, extra }: Requirement,
    { memo = extra.quoteId, amount = BigInt(maxAmountRequired!) }: { memo?: string; amount?: bigint } = {},
  ): Pick<Transfer, 'outputs' | 'memo'> => ({ outputs: [{ address: payTo, amount }], memo });
  /** As the published client writes it. */
  const payment = ({ network, extra }: Requirement, txHash: string, changes: object = {}) => ({
    'x-payment': encoded({
      x402Version: 1,
      scheme: 'exact',
      network,
      quoteId: extra.quoteId,
      payload: { txHash: txHash.toLowerCase(), sender: wallet.address, timestamp: 1_700_000_000, ...changes },
    }),
  });
  const earned = async (): Promise<number> =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const reasonOf = async (headers: Record<string, string>, query = '') => {
    const { status, body } = await get(headers, query);
    return status === 402 ? body.details.reason : status;
  };

  test('a transaction pays once for the quote in its memo, though it is named 40 times at once', async () => {
    const requirement = await asked();
    const hash = await wallet.send(wallet.sign(transferFor(requirement)));
    const headers = payment(requirement, hash);
    const answers = await Promise.all(Array.from({ length: 40 }, () => get(headers)));
    const [paid, ...others] = answers.filter(({ status }) => status === 200);
    expect([paid?.text, others]).toEqual([expect.stringContaining('Alien'), []]);
    expect(JSON.parse(paid!.headers.get('x-payment-response')!)).toMatchObject({
      success: true,
      txHash: hash,
      payer: wallet.address,
      amount: String(price),
      network: requirement.network,
    });
    expect(await reasonOf(headers)).toBe('payment_already_used');
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('version 2 names it too, and an answer that is lost comes again', async () => {
    const { headers } = await get();
    const accepted = decoded<{ accepts: Requirement[] }>(headers.get('payment-required')).accepts[0]!;
    const { payTo, amount, extra } = accepted;
    const outputs = [{ address: payTo, amount: BigInt(amount!) }] as const;
    const txHash = await wallet.send(wallet.sign({ outputs, memo: extra.quoteId }));
    const signature = encoded({ x402Version: 2, accepted, payload: { txHash } });
    const request = { 'payment-signature': signature, 'idempotency-key': 'one' };
    const first = await get(request);
    expect([first.status, decoded(first.headers.get('payment-response'))]).toMatchObject([
      200,
      { transaction: txHash },
    ]);
    const again = await get(request);
    expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([200, first.text, 'true']);
  });

  test('what pays for something else, too little, nobody, or not yet is refused, and the same request goes on', async () => {
    const requirement = await asked();
    const sent = (changes: Parameters<typeof transferFor>[1]) =>
      wallet.send(wallet.sign(transferFor(requirement, changes)));
    const little = await sent({ amount: BigInt(price - 1) });
    expect(await reasonOf(payment(requirement, little))).toBe('invalid_exact_cosmos_payload_amount_mismatch');
    const without = await sent({ memo: '' });
    expect(await reasonOf(payment(requirement, without))).toBe('invalid_exact_cosmos_payload_memo_mismatch');
    const elsewhere = await wallet.send(
      wallet.sign({ ...transferFor(requirement), outputs: [{ address: wallet.address, amount: 1n }] }),
    );
    expect(await reasonOf(payment(requirement, elsewhere))).toBe('invalid_exact_cosmos_payload_recipient_mismatch');
    const bytes = wallet.sign(transferFor(requirement));
    const early = payment(requirement, 'ab'.repeat(32));
    expect(await reasonOf(early)).toBe('transaction_not_found');
    const hash = await wallet.send(bytes);
    expect(await reasonOf(payment(requirement, hash, { sender: requirement.payTo }))).toBe('invalid_payload');
    expect(await reasonOf(payment(requirement, hash, { signedTx: bytes.toString('base64') }))).toBe('invalid_payload');
    expect(await reasonOf(payment(requirement, 'not a hash'))).toBe('invalid_payload');
    // The quote is for another request, and what another request is asked is not what was paid.
    expect(await reasonOf(payment(requirement, hash), '?id=one')).toBe('quote_invalid');
    const other = await asked('?id=one');
    expect(await reasonOf(payment(other, hash), '?id=one')).toBe('invalid_exact_cosmos_payload_memo_mismatch');
    expect(await reasonOf(payment(requirement, hash))).toBe(200);
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('a transaction that was presented with its bytes pays once, also when it is named', async () => {
    const requirement = await asked();
    const bytes = wallet.sign(transferFor(requirement));
    const hash = await wallet.send(bytes);
    expect(await reasonOf(payment(requirement, hash))).toBe(200);
    const accountNumber = wallet.accountNumber().toString();
    const signedTx = { txHash: undefined, signedTx: bytes.toString('base64'), accountNumber };
    expect(await reasonOf(payment(requirement, hash, signedTx))).toBe('quote_used');
    await eventually(async () => ((await earned()) === appShare ? true : undefined));
  });

  test('a write is paid by a transaction, and done once', async () => {
    const { store } = await pricedNotes<Body>(granary, app, price);
    const requirement = await eventually(async () => (await store()).body.accepts[0]);
    const headers = payment(requirement, await wallet.send(wallet.sign(transferFor(requirement))));
    const answers = await Promise.all(Array.from({ length: 10 }, () => store(headers)));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect([answers[0]!.status, (await app.list('notes')).body.total]).toEqual([202, 1]);
  });
});

describe.each(transports)('a write whose payment takes long (%s)', (transport) => {
  test('is done once it is settled, as its task shows, and answered when it is asked for again', async () => {
    const granary = await startGranary(transport, {
      settings: {
        payments: { X402_PAY_TO: 'wallets', X402_SETTLE_WAIT_MS: '100' },
        finance: { SIMULATED_BLOCK_MS: '100' },
      },
    });
    const wallet = await CosmosWallet.open(granary, 10_000_000);
    const log = createLogger('test', 'silent');
    const pool = createPool({ url: granary.databaseUrls.finance, size: 1, applicationName: 'test', log });
    /** The next block is due after the time of the latest. */
    const setLatestBlock = (at: Date) => execute(pool, sql`update simulated_chain set block_at = ${at}`);
    try {
      const app = await newApp(granary);
      const { body, store } = await pricedNotes<Body>(granary, app, price);
      const { payTo, network, maxAmountRequired, extra } = await eventually(
        async () => (await store()).body.accepts[0],
      );
      const outputs = [{ address: payTo, amount: BigInt(maxAmountRequired!) }] as const;
      const signedTx = wallet.sign({ outputs, memo: extra.quoteId }).toString('base64');
      const payload = { signedTx, accountNumber: wallet.accountNumber().toString() };
      const headers = { 'x-payment': encoded({ x402Version: 1, scheme: 'exact', network, payload }) };
      // However long the request takes, no block has the transaction before it is answered.
      await setLatestBlock(new Date(Date.now() + 86_400_000));
      const first = await store(headers);
      expect([first.status, first.body]).toMatchObject([202, { status: 'PaymentConfirming' }]);
      await setLatestBlock(new Date());
      const ticket = first.headers.get('location')!.split('/').at(-1)!;
      expect((await app.ended(ticket)).status).toBe('Completed');
      expect((await app.list('notes')).body).toMatchObject({ total: 1, records: [body.data[0]] });
      const again = await store(headers);
      expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([202, 'true']);
      expect((await app.list('notes')).body.total).toBe(1);
    } finally {
      await pool.end();
      await wallet.close();
      await granary.stop();
    }
  });
});
