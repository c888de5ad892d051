import { setTimeout as delay } from 'node:timers/promises';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { decoded, encoded, newPayer, version1, version2, type Requirement } from '@granary/testing/x402-client';
import { newApp, send, transports, type Body, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { isPaymentPending } from '../support/priced-app';

interface Answered extends Record<string, unknown> {
  accepts: Requirement[];
  code: string;
  details: { reason?: string };
}
type Headers = Record<string, string>;

const price = 250_000;
const shareOf = (amount: number): number => Math.floor(amount * 0.8);

describe.each(transports)('what x402 payments pay for (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let pool: Pool;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { payments: { X402_PAY_TO: 'simulated' } } });
    const log = createLogger('test', 'silent');
    pool = createPool({ url: granary.databaseUrls.payments, size: 1, applicationName: 'test', log });
  });
  afterAll(async () => {
    await pool?.end();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('films', [
      { id: 'one', title: 'Alien', year: 1979 },
      { id: 'two', title: 'Aliens', year: 1986 },
    ]);
  });

  const perAccess = { pricing_model: 'per_access', price_per_access_utia: price };
  const films = () => `/api/apps/${app.appId}/collections/films`;
  /** Again while the payment is being settled. */
  const request = async (method: string, path: string, body: Body, headers: Headers = {}, key?: string) => {
    for (;;) {
      const answer = await send<Answered>(granary.url, method, path, { key, body, headers });
      if (!isPaymentPending(answer) && answer.status !== 503) return answer;
      await delay(100);
    }
  };
  const get = (path: string, headers: Headers = {}) => request('GET', path, undefined, headers);
  const asked = async (path: string): Promise<Requirement> => {
    const { status, body } = await get(path);
    expect([status, body.accepts.length]).toEqual([402, 1]);
    return body.accepts[0]!;
  };
  const paying1 = async (path: string): Promise<Headers> => ({
    'x-payment': encoded(await version1(await newPayer(), await asked(path))),
  });
  const paying2 = async (path: string): Promise<Headers> => {
    const { headers } = await get(path);
    const { accepts } = decoded<{ accepts: Requirement[] }>(headers.get('payment-required'));
    return { 'payment-signature': encoded(await version2(await newPayer(), accepts[0]!)) };
  };
  const amountOf = ({ maxAmountRequired }: Requirement): number => Number(maxAmountRequired);
  const earned = async (): Promise<number> =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const priced = async (read_price_config: object) =>
    expect((await app.call('PUT', films(), { read_price_config })).status).toBe(200);
  const newView = async () => {
    const definition = { name: 'titles', source_collections: ['films'], query: { select: ['title', 'year'] } };
    const variables = { year: 'year' };
    const view = { ...definition, variables, read_price_config: perAccess };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    return `/api/views/${app.appId}/titles/data`;
  };
  const newQuery = async () => {
    const parameters = [{ name: 'year', field_path: 'year' }];
    const definition = { name: 'found', source_collection: 'films', base_query: { select: ['title'] }, parameters };
    const query = { ...definition, read_price_config: perAccess };
    expect((await app.call('POST', `/apps/${app.appId}/queries`, query)).status).toBe(201);
    return `/api/queries/${app.appId}/found/data`;
  };

  test('views and predefined queries are paid in both versions, each payment once, and none pays for another one', async () => {
    const paths = [await newView(), await newQuery()].map((path) => `${path}?year=1979`);
    for (const [at, path] of paths.entries()) {
      const own = await app.call<{ records: unknown[] }>('GET', path);
      expect(own.body.records).toEqual([expect.objectContaining({ title: 'Alien' })]);
      const payments = [
        ['x-payment-response', await paying1(path)],
        ['payment-response', await paying2(path)],
      ] as const;
      for (const [response, payment] of payments) {
        for (const elsewhere of [paths[1 - at]!, path.replace('1979', '1986'), path.split('?')[0]!]) {
          expect((await get(elsewhere, payment)).body.details.reason).toBe('quote_invalid');
        }
        const answer = await get(path, payment);
        expect([answer.status, answer.body['records']]).toEqual([200, own.body.records]);
        expect([answer.headers.get('cache-control'), answer.headers.has(response)]).toEqual(['no-store', true]);
        const again = await get(path, payment);
        expect([again.text, again.headers.get('idempotency-replayed')]).toEqual([answer.text, 'true']);
      }
    }
    await eventually(async () => (await earned()) === 4 * shareOf(price));
  });

  test('where a page costs by its size, a payment is worth nothing to one that has grown, stays unspent, and pays for what it is enough for', async () => {
    await priced({ pricing_model: 'per_kb', price_per_kb_utia: 1_000 });
    const path = `${films()}/data`;
    const small = amountOf(await asked(path));
    const payments = [await paying1(path), await paying2(path)];
    await app.store('films', [{ id: 'three', title: 'Alien 3', text: 'x'.repeat(5_000) }]);
    for (const payment of payments) {
      const { status, body } = await get(path, payment);
      expect([status, body.code, body.details.reason]).toEqual([402, 'PAYMENT_REFUSED', 'quote_insufficient']);
      expect(amountOf(body.accepts[0]!)).toBeGreaterThan(small + 4_000);
      expect(body).not.toHaveProperty('records');
    }
    expect(await earned()).toBe(0);
    const large = amountOf(await asked(path));
    const tooMuch = await paying1(path);
    // The page shrinks: the unspent payments pay for it now, and the one for the larger page does too, in full.
    expect((await app.call('DELETE', `${films()}/documents/three`)).status).toBe(200);
    for (const payment of [...payments, tooMuch]) {
      const { status, body } = await get(path, payment);
      expect([status, body['total']]).toEqual([200, 2]);
      expect((await get(path, payment)).headers.get('idempotency-replayed')).toBe('true');
    }
    await eventually(async () => (await earned()) === 2 * shareOf(small) + shareOf(large));
  });

  /**
   * The rows of all tables of payments, but for the leases of its scheduled tasks and what other services have read.
   */
  const stored = async () => {
    const tables = await rows<{ name: string }>(
      pool,
      sql`select table_name as name from information_schema.tables where table_schema = current_schema()
          and table_name not in ('bus_lease', 'outbox_reader') order by 1`,
    );
    expect(tables.map(({ name }) => name)).toEqual(expect.arrayContaining(['claim', 'quote_key', 'rate', 'outbox']));
    const found: Record<string, unknown[]> = {};
    for (const { name } of tables) {
      found[name] = (await pool.query<{ row: string }>(`select t::text as row from "${name}" t order by 1`)).rows;
    }
    return found;
  };

  test('a request without a payment, and one whose payment is refused, stores nothing', async () => {
    await priced(perAccess);
    const [view, query] = [await newView(), await newQuery()];
    const collection = { name: 'posts', write_pricing: 'on' };
    expect((await app.call('POST', `/api/apps/${app.appId}/collections`, collection)).status).toBe(201);
    const index = { name: 'by_author', collection: 'posts', field_name: 'author', index_type: 'btree' };
    const indexes = `/api/apps/${app.appId}/indexes`;
    expect((await app.call('POST', indexes, { ...index, price_config: perAccess })).status).toBe(201);
    const writer = { name: 'writer', permissions: ['Write'] };
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, writer);
    const requirement = await asked(`${films()}/data`);
    const payer = await newPayer();
    const forged = await version1(payer, requirement);
    forged.payload.signature = `0x${'11'.repeat(64)}1b`;
    const little = await version1(payer, requirement, { changes: { value: '1' } });
    const encrypted = { ...index, name: 'sealed', field_name: 'email', index_type: 'encrypted' };
    const store = { root: `${app.appId}::posts`, data: [{ author: 'ada' }] };
    const text = { 'content-type': 'text/plain' };

    // What other tests have paid is credited.
    const uncredited = sql`select 1 from claim where credited_at is null`;
    await eventually(async () => (await rows(pool, uncredited)).length === 0);
    const before = await stored();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => [
        ...[`${films()}/data`, view, query].map((path) => get(path)),
        get(`${films()}/data`, { 'x-payment': encoded(forged) }),
        get(`${films()}/data`, { 'x-payment': encoded(little) }),
        request('POST', '/store', store, {}, made.body.app_key),
        request('POST', `/api/apps/${app.appId}/blobs/posts`, 'hello', text, made.body.app_key),
        request('POST', indexes, encrypted, {}, app.key),
      ]).flat(),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 402));
    expect((await app.call('GET', `${indexes}/encrypted-quote`)).status).toBe(200);
    expect(await stored()).toEqual(before);
  });
});
