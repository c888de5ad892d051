import { eventually } from '@granary/testing/eventually';
import { encoded, newPayer, version1, type Requirement } from '@granary/testing/x402-client';
import { newApp, operatorKey, send, transports, type Answer, type TestApp } from '../support/granary';
import { variants } from '../support/granary-settings';
import { startGranary, type OwnGranary } from '../support/own-granary';
import { isPaymentPending, pricedFilms } from '../support/priced-app';
import { newWallet } from '../support/wallet-signing';

const price = 250_000;
/** The app earns 80 % of the price. */
const appShare = 200_000;

// All of it begins before one restart of all processes, and each test looks at one thing after it.
describe.each(transports)('after a restart (%s)', (transport) => {
  let granary: OwnGranary;
  let app: TestApp;
  let shop: TestApp;
  let payment: Record<string, string>;
  let address: unknown;
  /** Answers before the restart, by their paths. */
  const before = new Map<string, Answer>();

  const read = (path: string) => app.call('GET', path);
  const open = (path: string) => send(granary.url, 'GET', path);
  const remember = async (path: string) => {
    const answer = await open(path);
    expect(answer.status).toBe(200);
    before.set(path, answer);
  };
  const money = () => `/api/apps/${app.appId}/wallet`;
  const payouts = () => `/api/apps/${app.appId}/payout`;
  const films = () => `/api/apps/${shop.appId}/collections/films/data`;
  const get = (headers: Record<string, string> = {}) =>
    send<{ accepts: Requirement[]; details: { reason?: string } }>(granary.url, 'GET', films(), { headers });
  /** Again while the payment is being settled, or its network is closed for a moment. */
  const pay = () =>
    eventually(async () => {
      const answer = await get(payment);
      const isClosed = answer.status === 402 && answer.body.details.reason === 'settlement_unavailable';
      return isPaymentPending(answer) || isClosed ? undefined : answer;
    });
  const earned = async () => (await shop.call('GET', `/api/apps/${shop.appId}/wallet`)).body['balance'];

  beforeAll(async () => {
    granary = await startGranary(transport, { settings: variants.simulated });
    app = await newApp(granary);
    const stored = (await app.store('films', [{ id: 'a', n: 1 }])).body;
    const view = { name: 'v', query: {}, source_collections: ['films'] };
    const made = await app.call<{ ticket_id: string }>('POST', `/api/apps/${app.appId}/views`, view);
    await app.ended(made.body.ticket_id);
    for (const id of [stored.ticket_id, made.body.ticket_id]) await remember(`/api/tasks/${id}`);

    const faucet = { body: { amount: 1_000_000 }, headers: { 'x-operator-key': operatorKey } };
    expect((await send(granary.url, 'POST', `/api/apps/${app.appId}/faucet`, faucet)).status).toBe(202);
    await eventually(async () => (await read(money())).body['balance'] === 1_000_000);
    address = (await read(money())).body['address'];

    shop = await pricedFilms(granary, price);
    const requirement = await eventually(async () => (await get()).body.accepts[0]);
    payment = { 'x-payment': encoded(await version1(await newPayer(), requirement)) };
    expect((await pay()).status).toBe(200);

    // Last, so that it is on its way when the processes end.
    const payout = { amount: 400_000, payout_address: newWallet().address };
    expect((await app.call('POST', `${payouts()}/trigger`, payout)).status).toBe(202);
    await granary.restart();
  });
  afterAll(() => granary.stop());

  test('documents are there, and their app and its key', async () => {
    expect((await app.list('films')).body).toMatchObject({ total: 1, records: [{ id: 'a', n: 1 }] });
    const again = await newApp(granary);
    expect(again.key).not.toBe(app.key);
  });

  test('the tasks of a write and of long work are what they were', async () => {
    expect(before.size).toBe(2);
    for (const [path, { body }] of before) {
      expect((await open(path)).body).toEqual(body);
      expect((await open(path.replace('/api', ''))).body).toEqual(body);
    }
  });

  test('a payout that had begun is paid, once, from the same wallet', async () => {
    const paid = await eventually(async () => {
      const { body } = await app.call<{ payouts: Array<Record<string, unknown>> }>('POST', `${payouts()}/history`, {});
      return body.payouts.every(({ status }) => status === 'confirmed') ? body.payouts : undefined;
    });
    expect(paid).toEqual([
      expect.objectContaining({ amount: 400_000, tx_hash: expect.stringMatching(/^[0-9A-F]{64}$/) as string }),
    ]);
    expect((await read(money())).body).toMatchObject({
      address,
      balance: 600_000,
      total_paid_out: 400_000,
      pending_payouts: 0,
    });
  });

  test('a payment that was used gets the answer that it had, and pays nothing more', async () => {
    const again = await pay();
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([200, 'true']);
    await eventually(async () => (await earned()) === appShare);
  });
});
