import { eventually, eventuallyHolds } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { newWallet } from '../support/wallet-signing';

interface Entry {
  entry_id: string;
  amount: number;
  kind: string;
  reference: string;
  created_at: string;
}
interface Page {
  app_id: string;
  currency: string;
  entries: Entry[];
  next_cursor?: string;
}

describe.each(transports)('the entries of a wallet (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let seller: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    [app, seller] = await Promise.all([newApp(granary), newApp(granary)]);
  });

  const list = (query = '', owner = app) => owner.call<Page>('GET', `/api/apps/${owner.appId}/wallet/entries${query}`);
  const entries = async (owner = app) => (await list('', owner)).body.entries;
  const wallet = async (owner = app) =>
    (await owner.call<Record<string, number>>('GET', `/api/apps/${owner.appId}/wallet`)).body;
  /** Resolves with the hash of the transaction, once it is credited. */
  const fund = async (amount: number) => {
    const before = (await entries()).length;
    const headers = { 'x-operator-key': operatorKey };
    const options = { body: { amount }, headers };
    const sent = await send<{ tx_hash: string }>(granary.url, 'POST', `/api/apps/${app.appId}/faucet`, options);
    await eventually(async () => (await entries()).length > before);
    return sent.body.tx_hash;
  };

  test('deposits, payments between apps and payouts are lines that name what they are for and add up', async () => {
    const deposit = await fund(1_000_000);
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: 1_001 };
    await seller.store('films', [{ id: 'one' }]);
    await seller.call('PUT', `/api/apps/${seller.appId}/collections/films`, { read_price_config });
    const key = { name: 'agent', permissions: ['Pay'] };
    const agent = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, key);
    const target = `/api/apps/${seller.appId}/collections/films/data`;
    const headers = { 'x-agent-key': agent.body.app_key };
    expect((await send(granary.url, 'GET', target, { headers })).status).toBe(200);
    const payout = await app.call<{ payout_id: string }>('POST', `/api/apps/${app.appId}/payout/trigger`, {
      amount: 400_000,
      payout_address: newWallet().address,
    });
    expect(payout.status).toBe(202);
    const all = await eventuallyHolds(entries, ([newest]) => newest?.kind === 'payout');
    const line = (amount: number, kind: string, reference: string): Entry => ({
      entry_id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string,
      amount,
      kind,
      reference,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string,
    });
    const payment = all[1]!.reference;
    expect(payment).toMatch(/^[0-9a-f-]{36}$/);
    expect(all[0]).toEqual(line(-400_000, 'payout', payout.body.payout_id));
    expect(all.slice(1, 3).sort((a, b) => a.amount - b.amount)).toEqual([
      line(-800, 'spend', payment),
      line(-201, 'spend_share', payment),
    ]);
    expect(all.slice(3)).toEqual([line(1_000_000, 'deposit', deposit)]);
    const spend = all.find(({ kind }) => kind === 'spend')!;
    expect(await entries(seller)).toEqual([{ ...spend, amount: 800 }]);
    for (const owner of [app, seller]) {
      const { total_earned, total_spent, total_paid_out } = await wallet(owner);
      const sum = (await entries(owner)).reduce((total, { amount }) => total + amount, 0);
      expect(sum).toBe(total_earned! - total_spent! - total_paid_out!);
    }
  });

  test('pages have each entry once, the newest first, while money moves', async () => {
    for (const amount of [1, 2, 3, 4, 5]) await fund(amount);
    const first = await list('?limit=2');
    expect(Object.keys(first.body)).toEqual(['app_id', 'currency', 'entries', 'next_cursor']);
    expect(first.body).toMatchObject({ app_id: app.appId, currency: 'utia' });
    expect(first.headers.get('link')).toBe(
      `</api/apps/${app.appId}/wallet/entries?limit=2&cursor=${first.body.next_cursor}>; rel="next"`,
    );
    await fund(6);
    const read = [...first.body.entries];
    for (let cursor = first.body.next_cursor; cursor !== undefined;) {
      const page = (await list(`?limit=2&cursor=${cursor}`)).body;
      read.push(...page.entries);
      cursor = page.next_cursor;
    }
    expect(read.map(({ amount }) => amount)).toEqual([5, 4, 3, 2, 1]);
    expect((await list('?limit=1')).body.entries).toMatchObject([{ amount: 6 }]);
    // The cursor is of a place in the order of all, and shows nobody the entries of another.
    const others = await list(`?cursor=${first.body.next_cursor}`, seller);
    expect(others.body).toEqual({ app_id: seller.appId, currency: 'utia', entries: [] });
    expect((await seller.call('GET', `/api/apps/${app.appId}/wallet/entries`)).body['code']).toBe('FORBIDDEN');
  });

  test('limits, cursors and parameters that are not valid are refused', async () => {
    const code = async (query: string) => ((await list(query)).body as unknown as { code?: string }).code;
    for (const query of ['?limit=0', '?limit=1001', '?limit=', '?cursor=', '?kind=payout'])
      expect([query, await code(query)]).toEqual([query, 'VALIDATION_FAILED']);
    for (const key of ['x', '["a"]', '[1]', '["1","2"]', '["-1"]', `["${'9'.repeat(19)}"]`]) {
      const cursor = Buffer.from(key).toString('base64url');
      expect([key, await code(`?cursor=${cursor}`)]).toEqual([key, 'INVALID_CURSOR']);
    }
    expect((await list('?limit=1000')).body.entries).toEqual([]);
  });
});
