import { version } from '@granary/shared/version';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { newWallet } from '../support/wallet-signing';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/) as string;
const text = expect.stringMatching(/\S/) as string;
const count = expect.any(Number) as number;

describe.each(transports)('applications (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  /** Of the app, under the documented prefix. */
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });
  const open = <T = Record<string, unknown>>(target: string) => send<T>(granary.url, 'GET', target);
  const asOperator = (method: string, target: string, body?: object) =>
    send(granary.url, method, target, { body, headers: { 'x-operator-key': operatorKey } });

  test('an application is created with a first key for everything except Pay, and can be listed, read and deleted', async () => {
    const body = { name: 'Films', description: 'All of them', owner_address: newWallet().address };
    const made = await asOperator('POST', '/api/applications', body);
    expect(made.status).toBe(201);
    const application = {
      app_id: expect.stringMatching(/^(?!app_)[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/) as string,
      ...body,
      created_at: time,
      updated_at: time,
      height: 0,
      payment_networks: null,
    };
    expect(made.body).toEqual({
      ...application,
      app_key: expect.stringMatching(/^app_[A-Za-z0-9_-]{30,}$/) as string,
      key_id: text,
      permissions: expect.arrayContaining(['Admin', 'Read', 'Write']) as string[],
    });
    expect(made.body['permissions']).toHaveLength(3);
    const appId = made.body['app_id'] as string;
    const key = made.body['app_key'] as string;
    expect((await send(granary.url, 'GET', `/api/applications/${appId}`, { key })).body).toEqual(application);

    const listed = await asOperator('GET', '/api/applications?limit=10000');
    expect(listed.body).toEqual({
      applications: expect.arrayContaining([{ ...application, app_id: appId }]) as object[],
      total: count,
      limit: 10_000,
      offset: 0,
    });
    const page = await asOperator('GET', '/applications?limit=1&offset=1');
    // Other suites make applications of this Granary meanwhile.
    expect(page.body).toMatchObject({ limit: 1, offset: 1, total: count });
    expect(page.body['applications']).toHaveLength(1);

    const gone = await asOperator('DELETE', `/api/applications/${appId}`);
    expect(gone).toMatchObject({ status: 200, body: { success: true, message: text } });
    expect((await open(`/api/applications/${appId}`)).body).toMatchObject({ code: 'APP_NOT_FOUND' });
  });

  test('an application created twice with one Idempotency-Key is one, and its secret is shown once', async () => {
    const headers = { 'x-operator-key': operatorKey, 'idempotency-key': `k-${app.appId}` };
    const make = (name: string) => send(granary.url, 'POST', '/api/applications', { headers, body: { name } });
    const [first, again] = [await make('one'), await make('one')];
    expect([first.status, again.status]).toEqual([201, 201]);
    expect(first.body['app_key']).toMatch(/^app_/);
    expect(again.body).toEqual({ ...first.body, app_key: null });
    expect(await make('two')).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
  });

  test('the statistics of an application count its collections, documents and bytes', async () => {
    await app.store('a', [{ id: '1' }, { id: '2' }]);
    await app.store('b', [{ id: '1' }]);
    expect(await app.call('GET', `${path}/stats`)).toMatchObject({
      status: 200,
      body: {
        app_id: app.appId,
        collection_count: 2,
        document_count: 3,
        size_bytes: 30,
        height: 2,
        total_collections: 2,
        total_documents: 3,
        total_indexes: 0,
        storage_size: 30,
        index_size: 0,
      },
    });
    expect((await app.call('GET', `${path}/health`)).body).toEqual({
      status: 'ok',
      version,
      features: expect.arrayContaining(['documents', 'views', 'blobs']) as string[],
    });
  });
});
