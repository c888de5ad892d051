import { createLogger } from '@granary/shared/logger';
import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { startCutServices, type CutServices } from './cut-services';
import { newApp, operatorKey, send, type Answer, type Body, type TestApp } from '../support/granary';

const price = 1_001;
/** 80 %, rounded down. */
const share = 800;
const funds = 10_000;
const hourMs = 3_600_000;

/** How writes reach data. */
const writes = ['store', 'changeDocument', 'commitUpload', 'commitUploadUnderId', 'createIndex'];
/** On a slow machine the time of a request ends before its calls are given up. */
const unknown = [503, 504];
/** By which a gateway ends what it has reserved; one that was killed sends none of them. */
const endings = ['completeSpend', 'cancelSpend', 'resolveSpend'];

describe('a write that an agent key pays, whose outcome its gateway does not know', () => {
  let services: CutServices;
  let finance: Pool;
  let data: Pool;
  let shop: TestApp;
  let payer: TestApp;
  let keys: { 'x-app-key': string; 'x-agent-key': string };
  beforeAll(async () => {
    services = await startCutServices();
    const pool = (url: string) =>
      createPool({ url, size: 2, applicationName: 'test', log: createLogger('test', 'silent') });
    [finance, data] = [pool(services.financeUrl), pool(services.dataUrl)];
  });
  afterAll(async () => {
    await Promise.all([finance, data].map((pool) => pool.end()));
    await services.stop();
  });

  const keyOf = async (app: TestApp, body: object) =>
    (await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, body)).body.app_key;

  beforeEach(async () => {
    [shop, payer] = [await newApp(services), await newApp(services)];
    await shop.call('POST', `/api/apps/${shop.appId}/collections`, { name: 'notes', write_pricing: 'on' });
    const price_config = { pricing_model: 'per_access', price_per_access_utia: price };
    const index = { name: 'by_topic', collection: 'notes', field_name: 'topic', index_type: 'btree', price_config };
    expect((await shop.call('POST', `/api/apps/${shop.appId}/indexes`, index)).status).toBe(201);
    await payer.call(
      ...(['POST', `/api/apps/${payer.appId}/faucet`, { amount: funds }] as const),
      ...[{ 'x-operator-key': operatorKey }],
    );
    await eventually(async () => (await balance(payer)) === funds);
    const pay_limits = { allowed_target_apps: [shop.appId], spend_allowance: funds };
    keys = {
      'x-app-key': await keyOf(shop, { name: 'writer', permissions: ['Write'] }),
      'x-agent-key': await keyOf(payer, { name: 'agent', permissions: ['Pay'], pay_limits }),
    };
  });
  afterEach(async () => {
    services.cuts.heal();
    await services.cuts.arriveLate();
    expect(await openHolds()).toBe(0);
    const sums = await rows<{ sum: string }>(
      finance,
      sql`select (sum(debits_posted) - sum(credits_posted))::text as sum from account group by unit`,
    );
    expect(new Set(sums.map(({ sum }) => sum))).toEqual(new Set(['0']));
  });

  const balance = async (app: TestApp) =>
    (await app.call<{ balance: number }>('GET', `/api/apps/${app.appId}/wallet`)).body.balance;
  const openHolds = async () =>
    Number((await row<{ count: bigint }>(finance, sql`select count(*) from open_hold`))!.count);
  const closed = async () =>
    Number((await row<{ count: bigint }>(data, sql`select count(*) from held_write where not is_done`))!.count);
  const versions = async () => (await shop.list('notes', { include_history: true })).body.total!;
  const write = (method: string, path: string, body: Body, headers: Record<string, string> = {}): Promise<Answer> =>
    send(services.url, method, path, { body, headers: { ...keys, ...headers } });
  const store = (headers: Record<string, string> = {}, id = 'one') =>
    write('POST', '/store', { root: `${shop.appId}::notes`, data: [{ id, topic: 'rain' }] }, headers);
  const documentPath = (id: string) => `/api/apps/${shop.appId}/collections/notes/documents/${id}`;
  const encryptedIndexes = async () => {
    const { body } = await shop.call<Array<{ index_type: string }>>('GET', `/api/apps/${shop.appId}/indexes`);
    return body.filter(({ index_type }) => index_type === 'encrypted').length;
  };
  const createIndex = (headers: Record<string, string> = {}) => {
    const body = { name: 'by_email', collection: 'people', field_name: 'email', index_type: 'encrypted' };
    return write('POST', `/api/apps/${shop.appId}/indexes`, body, { 'x-app-key': shop.key, ...headers });
  };

  /** So much that it is copied into its table before its turn. */
  const bulk = Array.from({ length: 3_000 }, (_, at) => ({ id: `d${at}`, topic: 'rain', text: 'x'.repeat(100) }));

  /** Each kind of write, what it earns the application, and how often it was done. */
  const kinds = {
    'a store': { send: () => store(), earns: share, done: versions },
    'a PUT': { send: () => write('PUT', documentPath('one'), { topic: 'rain' }), earns: share, done: versions },
    'a large store': {
      send: () => write('POST', '/store', { root: `${shop.appId}::notes`, data: bulk }),
      earns: share,
      done: async () => (await versions()) / bulk.length,
    },
    'an upload': {
      send: () => write('POST', `/api/apps/${shop.appId}/blobs/notes`, 'hello', { 'content-type': 'text/plain' }),
      earns: share,
      done: versions,
    },
    'an encrypted index': { send: () => createIndex(), earns: 0, done: encryptedIndexes },
  };
  type Kind = keyof typeof kinds;
  const each = Object.keys(kinds) as Kind[];

  /** What was paid, once nothing is held any more. */
  const paid = async () => {
    await eventually(async () => (await openHolds()) === 0);
    return [funds - (await balance(payer)), await balance(shop)];
  };

  test.each(each)('%s is paid once when the answer of data is lost', async (kind) => {
    const { send: sent, earns, done } = kinds[kind];
    services.cuts.lose('answer', writes);
    expect(unknown).toContain((await sent()).status);
    expect([await paid(), await done()]).toEqual([[price, earns], 1]);
  });

  test.each(each)('%s that did not reach data is not paid, and is not done when it arrives late', async (kind) => {
    const { send: sent, done } = kinds[kind];
    services.cuts.lose('call', writes);
    expect(unknown).toContain((await sent()).status);
    expect([await paid(), await done()]).toEqual([[0, 0], 0]);
    const results = await services.cuts.arriveLate();
    expect(results.length).toBeGreaterThan(0);
    for (const result of results) expect(result).toMatchObject({ code: 'UNAVAILABLE' });
    expect(await done()).toBe(0);
    // Another request is not the one that was closed.
    services.cuts.heal();
    expect((await sent()).status).toBeLessThan(300);
    expect([(await paid())[0], await done()]).toEqual([price, 1]);
  });

  test.each(each)('%s that was done is paid though the gateway was killed before it could say so', async (kind) => {
    const { send: sent, earns, done } = kinds[kind];
    services.cuts.lose('call', endings);
    expect(unknown).toContain((await sent()).status);
    expect([await openHolds(), await balance(payer), await balance(shop)]).toEqual([
      earns > 0 ? 3 : 2,
      funds - price,
      0,
    ]);
    services.wait(2 * hourMs);
    expect([await paid(), await done()]).toEqual([[price, earns], 1]);
  });

  test.each(each)('%s that was not done is released though the gateway was killed, and never done', async (kind) => {
    const { send: sent, done } = kinds[kind];
    services.cuts.lose('call', [...endings, ...writes]);
    expect(unknown).toContain((await sent()).status);
    expect(await openHolds()).toBeGreaterThan(0);
    services.wait(2 * hourMs);
    expect([await paid(), await done()]).toEqual([[0, 0], 0]);
    await services.cuts.arriveLate();
    expect([(await paid())[0], await done()]).toEqual([0, 0]);
  });

  test.each(each)('%s whose first answer is lost is answered by the call that is repeated, and paid', async (kind) => {
    const { send: sent, earns, done } = kinds[kind];
    services.cuts.lose('answer', writes, 1);
    expect([201, 202]).toContain((await sent()).status);
    expect([await paid(), await done()]).toEqual([[price, earns], 1]);
  });

  test.each(['a store', 'an encrypted index'] as const)(
    '%s with an Idempotency-Key is paid once, whichever answer was lost',
    async (kind) => {
      const key = { 'idempotency-key': 'mine' };
      const sent = () => (kind === 'a store' ? store(key) : createIndex(key));
      services.cuts.lose('answer', writes, 1);
      const first = await sent();
      expect([201, 202]).toContain(first.status);
      expect(first.headers.get('idempotency-replayed')).toBeNull();
      const again = await sent();
      expect([again.status, again.body]).toEqual([first.status, first.body]);
      expect([(await paid())[0], await kinds[kind].done()]).toEqual([price, 1]);
    },
  );

  test('a request that is repeated after its answer was lost is replayed, and paid for the first time only', async () => {
    const key = { 'idempotency-key': 'mine' };
    services.cuts.lose('answer', writes);
    expect(unknown).toContain((await store(key)).status);
    services.cuts.heal();
    const again = await store(key);
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([202, 'true']);
    expect([await paid(), await versions()]).toEqual([[price, share], 1]);
  });

  test('a request that is repeated while its first time is still under way is done and paid once', async () => {
    const key = { 'idempotency-key': 'mine' };
    services.cuts.lose('call', [...writes, ...endings]);
    expect(unknown).toContain((await store(key)).status);
    services.cuts.heal();
    expect((await store(key)).status).toBe(202);
    await services.cuts.arriveLate();
    services.wait(2 * hourMs);
    expect([await paid(), await versions()]).toEqual([[price, share], 1]);
  });

  test('what is held stays held until data answers again, also while payments is started anew', async () => {
    services.cuts.lose('answer', writes);
    services.cuts.lose('call', ['closeWrite', 'completeSpend']);
    expect(unknown).toContain((await store()).status);
    services.cuts.lose('call', writes);
    expect(unknown).toContain((await store({}, 'two')).status);
    services.wait(2 * hourMs);
    await services.restartPayments();
    const asked = () => services.cuts.counts.get('closeWrite') ?? 0;
    const before = asked();
    await eventually(() => asked() > before + 2);
    expect([await balance(payer), await balance(shop)]).toEqual([funds - 2 * price, 0]);
    services.cuts.heal();
    expect([await paid(), await versions()]).toEqual([[price, share], 1]);
  });

  test('a refused write is released at once, and leaves nothing behind in data', async () => {
    const [before, asked] = [await closed(), services.cuts.counts.get('closeWrite') ?? 0];
    const refused = await write('PUT', documentPath('one'), { topic: 'rain' }, { 'if-match': '"7"' });
    expect([refused.status, await openHolds()]).toEqual([412, 0]);
    expect([await closed(), services.cuts.counts.get('closeWrite') ?? 0]).toEqual([before, asked]);
    expect([await balance(payer), await versions()]).toEqual([funds, 0]);
  });

  test('of an application that was deleted meanwhile nothing is paid', async () => {
    services.cuts.lose('answer', writes);
    services.cuts.lose('call', endings);
    expect(unknown).toContain((await store()).status);
    const headers = { 'x-operator-key': operatorKey };
    const gone = await send(services.url, 'DELETE', `/api/applications/${shop.appId}`, { headers });
    expect(gone.status).toBeLessThan(300);
    services.wait(2 * hourMs);
    await eventually(async () => (await openHolds()) === 0);
    expect(await balance(payer)).toBe(funds);
  });
});
