import { randomUUID } from 'node:crypto';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('publishing private data (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  /** A key with Write, which may not even read what is private. */
  let writer: string;

  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: randomUUID(),
      permissions: ['Write'],
    });
    writer = made.body.app_key;
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'secret',
      access_policy: { read: 'private' },
    });
    await app.store('secret', [{ id: 'a', text: 'hush' }]);
    await app.store('open', [{ id: 'a', text: 'hello' }]);
  });
  afterAll(() => granary.stop());

  const asWriter = (method: string, path: string, body?: object) =>
    send(granary.url, method, path, { key: writer, ...(body && { body }) });
  const policyOf = async (collection: string) =>
    (await app.call('GET', `/api/apps/${app.appId}/collections/${collection}`)).body['access_policy'];
  const anybody = (path: string) => send(granary.url, 'GET', path);
  const forbidden = { status: 403, body: { code: 'FORBIDDEN' } };
  const view = (name: string, source: string, policy?: string) => ({
    name,
    source_collections: [source],
    query: {},
    ...(policy && { access_policy: { read: policy } }),
  });
  const query = (name: string, source: string, policy?: string) => ({
    name,
    source_collection: source,
    base_query: {},
    ...(policy && { access_policy: { read: policy } }),
  });

  test('making a private collection public needs Admin, making it private needs Write', async () => {
    const path = `/api/apps/${app.appId}/collections/secret`;
    expect(await asWriter('PUT', path, { access_policy: { read: 'public' }, namespace: 'other' })).toMatchObject(
      forbidden,
    );
    expect(await policyOf('secret')).toEqual({ read: 'private' });
    expect((await app.call('GET', path)).body['namespace']).toBeNull();
    expect((await asWriter('PUT', path, { access_policy: { read: 'private' }, namespace: 'mine' })).status).toBe(200);

    await app.store('later', [{ id: 'a' }]);
    const later = `/api/apps/${app.appId}/collections/later`;
    expect((await asWriter('PUT', later, { access_policy: { read: 'public' } })).status).toBe(200);
    expect((await asWriter('PUT', later, { access_policy: { read: 'private' } })).status).toBe(200);
    expect(await asWriter('PUT', later, { access_policy: { read: 'public' } })).toMatchObject(forbidden);
    expect((await app.call('PUT', later, { access_policy: { read: 'public' } })).status).toBe(200);
    expect((await anybody(`${later}/data`)).status).toBe(200);
  });

  test('a public view of a private collection needs Admin; without a policy the view is private', async () => {
    const path = `/apps/${app.appId}/views`;
    expect(await asWriter('POST', path, view('leak', 'secret', 'public'))).toMatchObject(forbidden);
    expect((await app.call('GET', `${path}/leak`)).status).toBe(404);
    expect((await asWriter('POST', path, view('inherits', 'secret'))).status).toBe(202);
    expect((await anybody(`/api/views/${app.appId}/inherits/data`)).status).toBe(401);
    expect((await asWriter('POST', path, view('of_open', 'open', 'public'))).status).toBe(202);

    const made = await app.call<{ ticket_id: string }>('POST', path, view('shown', 'secret', 'public'));
    expect(made.status).toBe(202);
    await app.ended(made.body.ticket_id);
    expect((await anybody(`/api/views/${app.appId}/shown/data`)).body).toMatchObject({ records: [{ text: 'hush' }] });
  });

  test('a public query over a private collection needs Admin; any other is as private as its source', async () => {
    const path = `/apps/${app.appId}/queries`;
    const run = (name: string) => anybody(`/api/queries/${app.appId}/${name}/data`);
    expect(await asWriter('POST', path, query('leak', 'secret', 'public'))).toMatchObject(forbidden);
    expect((await app.call('GET', `${path}/leak`)).status).toBe(404);
    expect(await asWriter('POST', path, query('inherits', 'secret'))).toMatchObject({
      status: 201,
      body: { access_policy: { read: 'private' } },
    });
    expect((await run('inherits')).status).toBe(401);

    const shown = await app.call('POST', path, query('shown', 'secret', 'public'));
    expect(shown).toMatchObject({ status: 201, body: { access_policy: { read: 'public' } } });
    expect((await run('shown')).body).toMatchObject({ records: [{ text: 'hush' }] });
    // Who may write may delete it, but not put it back.
    expect((await asWriter('DELETE', `${path}/shown`)).status).toBe(200);
    expect(await asWriter('POST', path, query('shown', 'secret', 'public'))).toMatchObject(forbidden);
  });

  test('a query over a collection that becomes private later becomes private with it', async () => {
    await app.store('closing', [{ id: 'a' }]);
    const made = await asWriter('POST', `/apps/${app.appId}/queries`, query('of_closing', 'closing', 'public'));
    expect(made).toMatchObject({ status: 201, body: { access_policy: { read: 'public' } } });
    const run = () => anybody(`/api/queries/${app.appId}/of_closing/data`);
    expect((await run()).status).toBe(200);
    await asWriter('PUT', `/api/apps/${app.appId}/collections/closing`, { access_policy: { read: 'private' } });
    expect((await run()).status).toBe(401);
  });

  test('deleting a private collection needs Write', async () => {
    await app.call('POST', `/api/apps/${app.appId}/collections`, { name: 'bin', access_policy: { read: 'private' } });
    expect((await asWriter('DELETE', `/api/apps/${app.appId}/collections/bin`)).status).toBe(200);
  });
});
