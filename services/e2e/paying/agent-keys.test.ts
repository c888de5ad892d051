import { createLogger } from '@granary/shared/logger';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

interface Page {
  code?: string;
  records?: object[];
  accepts?: object[];
  details?: { reason?: string; amount_utia?: number };
}

describe.each(transports)('agent keys (%s)', (transport) => {
  let granary: Granary;
  let finance: Pool;
  let target: TestApp;
  let payer: TestApp;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: { finance: { SIMULATED_BLOCK_MS: '50' }, data: { PUBLIC_READ_ROWS_MAX: '1000' } },
    });
    finance = createPool({
      url: granary.databaseUrls.finance,
      size: 2,
      applicationName: 'test',
      log: createLogger('test', 'silent'),
    });
  });
  afterAll(async () => {
    await finance.end();
    await granary.stop();
  });
  beforeEach(async () => {
    [target, payer] = [await newApp(granary), await newApp(granary)];
    await target.store('films', [{ id: 'one', title: 'Alien', year: 1979 }]);
    await priced(1_001);
  });

  const priced = async (utia: number, more: object = {}) => {
    const read_price_config = { pricing_model: 'per_access', price_per_access_utia: utia, ...more };
    const path = `/api/apps/${target.appId}/collections/films`;
    expect((await target.call('PUT', path, { read_price_config })).status).toBe(200);
  };
  const wallet = async (app: TestApp) =>
    (await app.call<Record<string, number>>('GET', `/api/apps/${app.appId}/wallet`)).body;
  const fund = async (amount: number) => {
    await send(granary.url, 'POST', `/api/apps/${payer.appId}/faucet`, {
      body: { amount },
      headers: { 'x-operator-key': operatorKey },
    });
    await eventually(async () => (await wallet(payer))['balance'] === amount);
  };
  const agentKey = async (pay_limits: object = {}, app = payer, permissions = ['Pay']) => {
    const body = { name: 'agent', permissions, pay_limits };
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, body);
    expect(made.status).toBe(200);
    return made.body.app_key;
  };
  const read = (key: string, query = '', more: Record<string, string> = {}) =>
    send<Page>(granary.url, 'GET', `/api/apps/${target.appId}/collections/films/data${query}`, {
      headers: { 'x-agent-key': key, ...more },
    });
  const refusal = async (key: string) => {
    const { status, body } = await read(key);
    expect([status, body.code, body.details?.amount_utia]).toEqual([402, 'PAYMENT_REFUSED', 1_001]);
    return body.details?.reason;
  };
  const openHolds = async () =>
    Number((await row<{ count: bigint }>(finance, sql`select count(*) from open_hold`))!.count);
  /** Debits less credits of all accounts of a unit. */
  const sums = () =>
    rows<{ unit: string; sum: string }>(
      finance,
      sql`select unit, (sum(debits_posted) - sum(credits_posted))::text as sum from account group by unit`,
    );

  test('a read is paid from the wallet of the key: 80 % to the app rounded down, the rest to the platform, at once', async () => {
    await fund(10_000);
    const key = await agentKey();
    const fees = async () =>
      (
        await row<{ posted: bigint }>(
          finance,
          sql`select credits_posted as posted from account where id = 'platform:fees'`,
        )
      )?.posted ?? 0n;
    const before = await fees();
    const { status, body, headers } = await read(key);
    expect([status, body.records]).toEqual([200, [{ id: 'one', title: 'Alien', year: 1979 }]]);
    expect([headers.get('cache-control'), headers.get('etag')]).toEqual(['no-store', null]);
    expect(await wallet(payer)).toMatchObject({ balance: 8_999, total_spent: 1_001, total_paid_out: 0 });
    expect(await wallet(target)).toMatchObject({ balance: 800, total_earned: 800 });
    expect((await fees()) - before).toBe(201n);
    // The app may leave the platform more, and never less than the operator has set.
    await priced(1_000, { app_owner_percentage: 0.5 });
    await read(key);
    await priced(1_000, { app_owner_percentage: 1 });
    await read(key);
    expect(await wallet(target)).toMatchObject({ balance: 800 + 500 + 800 });
    await priced(1);
    await read(key);
    expect([(await wallet(target))['balance'], (await wallet(payer))['balance']]).toEqual([2_100, 6_998]);
    expect(await openHolds()).toBe(0);
    for (const { sum } of await sums()) expect(sum).toBe('0');
  });

  test('views, predefined queries and prices by size are paid alike, and what is free costs a key nothing', async () => {
    await fund(1_000_000);
    const key = await agentKey({ spend_allowance: 500_000 });
    const at = (path: string) => send<Page>(granary.url, 'GET', path, { headers: { 'x-agent-key': key } });
    const view = { name: 'titles', source_collections: ['films'], query: { select: ['title'] } };
    const made = await target.call<{ ticket_id: string }>('POST', `/apps/${target.appId}/views`, view);
    await target.ended(made.body.ticket_id);
    const query = { name: 'all', source_collection: 'films', base_query: {} };
    await target.call('POST', `/apps/${target.appId}/queries`, query);
    expect((await at(`/api/views/${target.appId}/titles/data`)).body.records).toEqual([{ title: 'Alien' }]);
    expect((await at(`/api/queries/${target.appId}/all/data`)).body.records).toHaveLength(1);
    expect(await wallet(payer)).toMatchObject({ total_spent: 2_002 });
    const read_price_config = { pricing_model: 'per_kb', price_per_kb_utia: 100_000 };
    await target.call('PUT', `/api/apps/${target.appId}/collections/films`, { read_price_config });
    const sized = await at(`/api/apps/${target.appId}/collections/films/data`);
    expect(sized.status).toBe(200);
    const cost = Math.ceil((sized.text.length * 100_000) / 1_024);
    expect(await wallet(payer)).toMatchObject({ total_spent: 2_002 + cost });
    await target.call('PUT', `/api/apps/${target.appId}/collections/films`, { read_price_config: {} });
    expect((await read(key)).status).toBe(200);
    // A key pays others: what is its own app's it reads free.
    const own = await agentKey({}, target);
    await priced(1_001);
    expect((await read(own)).status).toBe(200);
    expect(await wallet(payer)).toMatchObject({ total_spent: 2_002 + cost });
  });

  test('repetitions of a read under one Idempotency-Key wait for the first, get its answer, and pay once', async () => {
    await fund(10_000);
    const key = await agentKey({ spend_allowance: 1_001 });
    const headers = { 'idempotency-key': 'one' };
    const answers = await Promise.all(Array.from({ length: 6 }, () => read(key, '', headers)));
    expect(answers.map(({ status, text }) => [status, text])).toEqual(Array(6).fill([200, answers[0]!.text]));
    const replayed = (answer: (typeof answers)[number]) => answer.headers.get('idempotency-replayed') === 'true';
    expect(answers.filter(replayed)).toHaveLength(5);
    // The answer stays as it was, also when the allowance is spent; another read under the key is refused.
    await target.store('films', [{ id: 'two', title: 'Aliens' }]);
    const again = await read(key, '', headers);
    expect([again.status, again.text, replayed(again)]).toEqual([200, answers[0]!.text, true]);
    expect((await read(key, '?limit=1', headers)).body.code).toBe('IDEMPOTENCY_KEY_REUSED');
    expect((await read(key, '', { 'idempotency-key': 'two' })).body.details?.reason).toBe('allowance_spent');
    expect(await wallet(payer)).toMatchObject({ balance: 8_999, total_spent: 1_001 });
    expect(await openHolds()).toBe(0);
  });

  test('a read that fails under an Idempotency-Key is not paid, and the next one under it is', async () => {
    await fund(10_000);
    const key = await agentKey();
    const headers = { 'idempotency-key': 'failing' };
    const failed = await read(key, '?nope=1', headers);
    expect(failed.status).toBe(400);
    expect((await read(key, '', headers)).status).toBe(200);
    expect(await wallet(payer)).toMatchObject({ balance: 8_999 });
    // A page that is too long to be kept is paid for each time.
    await target.store('films', [
      { id: 'long', text: 'x'.repeat(1_000_000) },
      { id: 'longer', text: 'y'.repeat(100_000) },
    ]);
    for (const balance of [7_998, 6_997]) {
      const answer = await read(key, '', { 'idempotency-key': 'long' });
      expect([answer.status, answer.headers.get('idempotency-replayed')]).toEqual([200, null]);
      expect(await wallet(payer)).toMatchObject({ balance });
    }
    expect(await openHolds()).toBe(0);
  });

  test('a key pays within its limits, and is refused with the first reason of their order, at no cost', async () => {
    const past = new Date(Date.now() - 1_000).toISOString();
    const future = new Date(Date.now() + 3_600_000).toISOString();
    const everything = { expires_at: past, max_payment_per_tx: 1_000, spend_allowance: 1_000, allowed_target_apps: [] };
    expect(await refusal(await agentKey(everything))).toBe('agent_key_expired');
    expect(await refusal(await agentKey({ ...everything, expires_at: future }))).toBe('over_max_per_tx');
    const single = { ...everything, expires_at: future, max_payment_per_tx: 1_001 };
    expect(await refusal(await agentKey(single))).toBe('allowance_spent');
    expect(await refusal(await agentKey({ ...single, spend_allowance: 0 }))).toBe('allowance_spent');
    expect(await refusal(await agentKey({ ...single, spend_allowance: 1_001 }))).toBe('target_not_allowed');
    const allowed = { ...single, spend_allowance: 2_002, allowed_target_apps: [target.appId] };
    expect(await refusal(await agentKey(allowed))).toBe('insufficient_funds');
    await fund(100_000);
    const key = await agentKey(allowed);
    expect([(await read(key)).status, (await read(key)).status]).toEqual([200, 200]);
    expect(await refusal(key)).toBe('allowance_spent');
    expect(await wallet(payer)).toMatchObject({ balance: 97_998, total_spent: 2_002 });
    expect(await openHolds()).toBe(0);
  });

  test('a header that names no key with Pay is 401 or 403, and what fails after it was reserved is not paid', async () => {
    await fund(10_000);
    expect((await read('app_unknown')).status).toBe(401);
    expect((await read(payer.key)).status).toBe(403);
    const key = await agentKey();
    // Refused before it costs anything, and when it runs.
    expect((await read(key, '?year=1979')).body.code).toBe('FIELD_NOT_INDEXED');
    const films = Array.from({ length: 1_100 }, (_, n) => ({ id: `film-${n}`, title: `Film ${n}` }));
    await target.store('films', films);
    const index = { name: 'by_title', collection: 'films', field_name: 'title', index_type: 'string' };
    const { body: made } = await target.call<{ ticket_id?: string }>(
      'POST',
      `/api/apps/${target.appId}/indexes`,
      index,
    );
    if (made.ticket_id) await target.ended(made.ticket_id);
    expect((await read(key, '?title.$contains=absent')).body.code).toBe('SCAN_LIMIT_EXCEEDED');
    expect(await openHolds()).toBe(0);
    const head = await fetch(`${granary.url}/api/apps/${target.appId}/collections/films/data`, {
      method: 'HEAD',
      headers: { 'x-agent-key': key },
    });
    expect(head.status).toBe(402);
    expect(await wallet(payer)).toMatchObject({ balance: 10_000, total_spent: 0 });
    const { body } = await payer.call<{ keys: Array<{ name: string; key_id: string }> }>(
      'GET',
      `/api/apps/${payer.appId}/keys`,
    );
    const { key_id } = body.keys.find(({ name }) => name === 'agent')!;
    await payer.call('DELETE', `/api/apps/${payer.appId}/keys/${key_id}`);
    await eventually(async () => (await read(key)).status === 401);
  });

  test('64 parallel reads by one key never exceed its allowance or the wallet', async () => {
    await fund(1_001 * 40);
    const reads = async (key: string) => {
      const answers = await Promise.all(Array.from({ length: 64 }, () => read(key)));
      const reasons = answers.flatMap(({ status, body }) => (status === 200 ? [] : [body.details?.reason]));
      return { paid: 64 - reasons.length, reasons: [...new Set(reasons)] };
    };
    const limited = await agentKey({ spend_allowance: 1_001 * 25 + 1_000 });
    expect(await reads(limited)).toEqual({ paid: 25, reasons: ['allowance_spent'] });
    expect(await wallet(payer)).toMatchObject({ total_spent: 25 * 1_001 });
    expect(await reads(await agentKey())).toEqual({ paid: 15, reasons: ['insufficient_funds'] });
    expect(await wallet(payer)).toMatchObject({ balance: 0, total_spent: 40 * 1_001 });
    expect(await wallet(target)).toMatchObject({ balance: 40 * 800 });
    expect(await openHolds()).toBe(0);
    for (const { sum } of await sums()) expect(sum).toBe('0');
  });
});
