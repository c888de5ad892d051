import { bech32 } from '@scure/base';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { newWallet } from '../support/wallet-signing';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT/) as string;
const text = expect.stringMatching(/\S/) as string;
const nothing = { balance: 0, locked_balance: 0, pending_payouts: 0, available_balance: 0 };

describe.each(transports)('money of an app (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const defaults = {
    auto_payout_enabled: false,
    locked_balance: 0,
    min_payout: expect.any(Number) as number,
    payout_threshold: expect.any(Number) as number,
    payout_destination: null,
  };
  const change = (body?: object) =>
    app.call<{ code?: string; settings: Record<string, unknown> }>('POST', `${path}/payout/settings`, body ?? {});
  const info = () => app.call<{ settings: Record<string, unknown> }>('POST', `${path}/payout/info`);

  test('a wallet has its final address from the first request, and one different from other apps', async () => {
    const wallet = () => app.call<{ address: string }>('GET', `${path}/wallet`);
    const first = await wallet();
    expect(first.status).toBe(200);
    expect(first.body).toEqual({
      app_id: app.appId,
      address: text,
      ...nothing,
      total_earned: 0,
      total_spent: 0,
      total_paid_out: 0,
      currency: 'utia',
      updated_at: time,
    });
    const decoded = bech32.decode(first.body.address as `${string}1${string}`);
    expect(decoded.prefix).toBe('celestia');
    expect(bech32.fromWords(decoded.words)).toHaveLength(20);
    const looks = await Promise.all(Array.from({ length: 10 }, wallet));
    for (const { body } of [...looks, await wallet()]) expect(body.address).toBe(first.body.address);
    const other = await newApp(granary);
    const others = await other.call<{ address: string }>('GET', `/api/apps/${other.appId}/wallet`);
    expect(others.body.address).not.toBe(first.body.address);
  });

  test('a payout setting changes only if it is given; absent and null leave it', async () => {
    const untouched = await change();
    expect(untouched).toMatchObject({ status: 200, body: { success: true, message: text } });
    expect(untouched.body.settings).toEqual(defaults);
    const destination = newWallet().address;
    const settings = {
      auto_payout_enabled: true,
      locked_balance: 1_000,
      min_payout: 5,
      payout_threshold: Number.MAX_SAFE_INTEGER,
      payout_destination: destination,
    };
    expect((await change(settings)).body.settings).toEqual(settings);
    expect((await change({ min_payout: 6, locked_balance: null, payout_destination: null })).body.settings).toEqual({
      ...settings,
      min_payout: 6,
    });
    expect((await change({ auto_payout_enabled: false })).body.settings).toEqual({
      ...settings,
      min_payout: 6,
      auto_payout_enabled: false,
    });
    for (const body of [undefined, {}]) {
      const answer = await app.call('POST', `${path}/payout/info`, body);
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual({
        app_id: app.appId,
        settings: { ...settings, min_payout: 6, auto_payout_enabled: false },
        ...nothing,
        locked_balance: 1_000,
        currency: 'utia',
      });
    }
    expect((await app.call('GET', `${path}/wallet`)).body).toMatchObject({ ...nothing, locked_balance: 1_000 });
  });

  test('a payout never goes to capitals, another chain or a wallet of this platform: such a destination changes nothing', async () => {
    const destination = newWallet().address;
    expect((await change({ payout_destination: destination })).status).toBe(200);
    const other = await newApp(granary);
    const addressOf = async (of: TestApp) =>
      (await of.call<{ address: string }>('GET', `/api/apps/${of.appId}/wallet`)).body.address;
    const capital = destination.slice(-1).toUpperCase();
    const refused: Array<[string, RegExp]> = [
      [await addressOf(app), /wallet of this platform/],
      [await addressOf(other), /wallet of this platform/],
      [destination.toUpperCase(), /lower case/],
      [destination.slice(0, -1) + (capital === destination.slice(-1) ? 'Q' : capital), /bech32/],
      [destination.replace('celestia', 'cosmos'), /bech32/],
    ];
    for (const [address, problem] of refused) {
      const answer = await change({ payout_destination: address, min_payout: 77 });
      expect([address, answer.status, answer.text]).toEqual([address, 400, expect.stringMatching(problem)]);
    }
    const { settings } = (await info()).body;
    expect(settings).toEqual({ ...defaults, payout_destination: destination });
  });

  test('the locked balance never decreases; a refused decrease changes no other setting', async () => {
    await change({ locked_balance: 1_000, min_payout: 5 });
    const before = (await info()).body.settings;
    const refused = await change({ locked_balance: 999, min_payout: 77, auto_payout_enabled: true });
    expect(refused).toMatchObject({ status: 409, body: { code: 'LOCKED_BALANCE_DECREASE' } });
    expect((await info()).body.settings).toEqual(before);
    expect((await change({ locked_balance: 0 })).status).toBe(409);
    expect((await change({ locked_balance: 1_000, min_payout: 7 })).status).toBe(200);
    expect((await change({ locked_balance: 1_001 })).body.settings).toMatchObject({
      locked_balance: 1_001,
      min_payout: 7,
    });
  });

  test('under 50 concurrent changes the locked balance never decreases, and refused ones have no effect', async () => {
    const amounts = Array.from({ length: 50 }, (_, n) => ((n * 37) % 50) + 1);
    const answers = await Promise.all(amounts.map((n) => change({ locked_balance: n, min_payout: n })));
    const taken = amounts.filter((_, at) => answers[at]!.status === 200);
    expect(answers.filter(({ status }) => status !== 200 && status !== 409)).toEqual([]);
    expect(taken).toContain(50);
    for (const [at, { status, body }] of answers.entries()) {
      if (status === 200) expect(body.settings).toMatchObject({ locked_balance: amounts[at], min_payout: amounts[at] });
      else expect(body.code).toBe('LOCKED_BALANCE_DECREASE');
    }
    // Nothing larger was in force when 50 came, and nothing smaller can have come after it.
    expect((await info()).body.settings).toMatchObject({ locked_balance: 50, min_payout: 50 });
  });

  test('the history of payouts is empty, in pages and by status', async () => {
    const history = (body?: object) => app.call('POST', `${path}/payout/history`, body);
    const empty = { app_id: app.appId, payouts: [], total: 0, limit: 100, offset: 0 };
    expect(await history()).toMatchObject({ status: 200, body: empty });
    expect((await history({})).body).toEqual(empty);
    for (const status of ['pending', 'broadcast', 'confirmed', 'failed']) {
      expect((await history({ limit: 5, offset: 2, status })).body).toEqual({ ...empty, limit: 5, offset: 2 });
    }
  });

  test('the retention cost follows what is stored, set and deleted', async () => {
    const cost = () =>
      app.call<{ collections: Array<Record<string, unknown>>; total_monthly_cost: number }>(
        'GET',
        `${path}/retention/cost`,
      );
    expect((await cost()).body).toEqual({
      app_id: app.appId,
      currency: 'utia',
      collections: [],
      total_monthly_cost: 0,
    });
    await app.store('films', [{ id: 'a' }, { id: 'b', title: 'x'.repeat(1_000) }]);
    await app.store('actors', [{ id: 'a' }]);
    await app.call('POST', `${path}/collections/films/retention`, { retention_days: 90 });
    const arrived = await eventually(async () => {
      const answer = await cost();
      const { collections } = answer.body;
      return collections.length === 2 && collections.some((one) => one['retention_days'] === 90) && answer;
    });
    const row = {
      retention_days: null,
      size_bytes: 10,
      document_count: 1,
      free_days: 30,
      price_per_gib_day: expect.any(Number) as number,
      monthly_cost: expect.any(Number) as number,
      accrued: 0,
      next_charge_at: time,
    };
    expect(arrived.body).toEqual({
      app_id: app.appId,
      currency: 'utia',
      collections: [
        { collection: 'actors', ...row },
        { collection: 'films', ...row, retention_days: 90, size_bytes: 10 + 1_021, document_count: 2 },
      ],
      total_monthly_cost: expect.any(Number) as number,
    });
    await app.call('DELETE', `${path}/collections/films?force=true`);
    await eventually(async () => (await cost()).body.collections.length === 1);
    const blob = await app.call('POST', `${path}/blobs/files`, Buffer.alloc(5_000), { 'content-type': 'image/png' });
    expect(blob.status).toBe(202);
    await eventually(async () => {
      const files = (await cost()).body.collections.find(({ collection }) => collection === 'files');
      return Number(files?.['size_bytes']) > 5_000;
    });
  });

  test('the wallet of a deleted app is shown to no caller', async () => {
    await app.call('GET', `${path}/wallet`);
    const headers = { 'x-operator-key': operatorKey };
    await send(granary.url, 'DELETE', `/api/applications/${app.appId}`, { headers });
    for (const [method, target] of [
      ['GET', '/wallet'],
      ['POST', '/payout/info'],
      ['GET', '/retention/cost'],
    ] as const) {
      expect(await eventually(async () => (await app.call(method, path + target)).status === 401)).toBe(true);
    }
  });
});
