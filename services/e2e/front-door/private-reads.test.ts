import { randomUUID } from 'node:crypto';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { expectProblem } from '../support/problem-shape';
import { closeConnections, sendRaw } from '../support/raw-http';

describe.each(transports)('private resources (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let other: TestApp;
  /** Keys of the app, by their permissions. */
  const keys = new Map<string, string>();
  const newKey = async (...permissions: string[]) => {
    const path = `/api/apps/${app.appId}/regenerate-key`;
    const made = await app.call<{ app_key: string }>('POST', path, { name: randomUUID(), permissions });
    expect(made.status).toBe(200);
    keys.set(permissions.join(), made.body.app_key);
  };
  const bytes = Buffer.from('private bytes');
  let paths: Record<string, string>;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    [app, other] = await Promise.all([newApp(granary), newApp(granary)]);
    for (const permissions of [['Read'], ['Admin'], ['Write', 'Pay']]) await newKey(...permissions);
    const { appId } = app;
    await app.call('POST', `/api/apps/${appId}/collections`, { name: 'vault', access_policy: { read: 'private' } });
    await app.call('POST', `/api/apps/${appId}/collections`, { name: 'open' });
    await app.store('vault', [{ id: 'a', secret: 'hush' }]);
    await app.store('open', [{ id: 'a', secret: 'hush' }]);
    const blob = await app.call<{ blob_id: string }>('POST', `/api/apps/${appId}/blobs/vault`, bytes, {
      'content-type': 'text/plain',
    });
    const view = await app.call<{ ticket_id: string }>('POST', `/apps/${appId}/views`, {
      name: 'vault_view',
      query: {},
      source_collections: ['open'],
      access_policy: { read: 'private' },
    });
    await app.ended(view.body.ticket_id);
    for (const [name, source, policy] of [
      ['of_vault', 'vault', undefined],
      ['private_query', 'open', 'private'],
    ] as const) {
      const made = await app.call('POST', `/apps/${appId}/queries`, {
        name,
        source_collection: source,
        base_query: {},
        ...(policy && { access_policy: { read: policy } }),
      });
      expect(made).toMatchObject({ status: 201, body: { access_policy: { read: 'private' } } });
    }
    paths = {
      collection: `/apps/${appId}/collections/vault/data`,
      view: `/views/${appId}/vault_view/data`,
      'query over a private collection': `/queries/${appId}/of_vault/data`,
      'private query': `/queries/${appId}/private_query/data`,
      blob: `/apps/${appId}/blobs/vault/${blob.body.blob_id}`,
    };
  });
  afterAll(async () => {
    closeConnections();
    await granary.stop();
  });

  test.each(['collection', 'view', 'query over a private collection', 'private query', 'blob'])(
    'a %s is 401 without a key, 403 with another or too weak a key, 200 with Read',
    async (what) => {
      for (const path of [paths[what]!, `/api${paths[what]!}`]) {
        const get = (headers: Record<string, string>) => sendRaw(granary.url, { method: 'GET', path, headers });
        const code = async (headers: Record<string, string>) => {
          const answer = await get(headers);
          expect(answer.text).not.toMatch(/hush|private bytes/);
          return `${answer.status} ${expectProblem(answer).code}`;
        };
        expect(await code({})).toBe('401 UNAUTHENTICATED');
        expect(await code({ 'X-App-Key': 'app_unknown' })).toBe('401 UNAUTHENTICATED');
        expect(await code({ 'X-App-Key': other.key })).toBe('403 FORBIDDEN');
        expect(await code({ 'X-App-Key': keys.get('Write,Pay')! })).toBe('403 FORBIDDEN');
        for (const headers of [
          { 'X-App-Key': keys.get('Read')! },
          { 'X-App-Key': keys.get('Admin')! },
          { 'X-Operator-Key': operatorKey },
        ] as Array<Record<string, string>>) {
          const answer = await get(headers);
          expect(answer.status).toBe(200);
          expect(answer.text).toMatch(/hush|private bytes/);
          expect(answer.headers['cache-control']).toMatch(/no-store|private/);
        }
      }
    },
  );

  test('a public collection needs no key until it is made private', async () => {
    const open = `/apps/${app.appId}/collections/later/data`;
    await app.store('later', [{ id: 'a' }]);
    expect((await send(granary.url, 'GET', open)).status).toBe(200);
    const changed = await app.call('PUT', `/api/apps/${app.appId}/collections/later`, {
      access_policy: { read: 'private' },
    });
    expect(changed).toMatchObject({ status: 200, body: { access_policy: { read: 'private' } } });
    expect((await send(granary.url, 'GET', open)).status).toBe(401);
    expect((await app.call('GET', open)).status).toBe(200);
  });
});
