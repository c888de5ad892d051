import { randomUUID } from 'node:crypto';
import { newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

describe.each(transports)('the default read policy (%s)', (transport) => {
  describe.each(['public', 'private'] as const)('with DEFAULT_READ=%s', (read) => {
    let granary: Granary;
    let app: TestApp;
    beforeAll(async () => {
      granary = await startGranary(transport, { settings: { data: { DEFAULT_READ: read } } });
      app = await newApp(granary);
    });
    afterAll(() => granary.stop());

    const path = (rest: string) => `/api/apps/${app.appId}/${rest}`;
    const createdCollection = (name: string) => ({ created_collection: { name, access_policy: { read } } });
    const anybody = async (collection: string) =>
      (await send(granary.url, 'GET', path(`collections/${collection}/data`))).status;
    const expected = read === 'public' ? 200 : 401;

    test('a collection created by a store, an upload or an index has the default policy, and the answer names it once', async () => {
      const stored = await app.store('stored', [{ id: '1' }]);
      expect(stored.body).toMatchObject(createdCollection('stored'));
      expect((await app.store('stored', [{ id: '2' }])).body).not.toHaveProperty('created_collection');

      const upload = () => app.call('POST', path('blobs/files'), 'bytes', { 'content-type': 'text/plain' });
      expect(await upload()).toMatchObject({ status: 202, body: createdCollection('files') });
      expect((await upload()).body).not.toHaveProperty('created_collection');

      const index = (name: string) =>
        app.call('POST', path('indexes'), { name, collection: 'indexed', field_name: name, index_type: 'btree' });
      expect(await index('a')).toMatchObject({ status: 201, body: createdCollection('indexed') });
      expect((await index('b')).body).not.toHaveProperty('created_collection');

      for (const name of ['stored', 'files', 'indexed']) expect([name, await anybody(name)]).toEqual([name, expected]);
    });

    test('the answer to a repeated store names the policy too', async () => {
      const key = randomUUID();
      const store = () =>
        app.call('POST', '/store', { root: `${app.appId}::keyed`, data: [{ n: 1 }] }, { 'idempotency-key': key });
      const first = await store();
      expect(first).toMatchObject({ status: 202, body: createdCollection('keyed') });
      expect((await store()).text).toBe(first.text);
    });

    test('a collection and a view without a policy have the default, one with a policy has its own', async () => {
      const create = (body: object) => app.call('POST', path('collections'), body);
      expect((await create({ name: 'silent' })).body['access_policy']).toEqual({ read });
      for (const own of ['public', 'private']) {
        const made = await create({ name: `said_${own}`, access_policy: { read: own } });
        expect(made.body['access_policy']).toEqual({ read: own });
      }
      const view = async (name: string, source: string, policy?: string) => {
        const body = {
          name,
          source_collections: [source],
          query: {},
          ...(policy && { access_policy: { read: policy } }),
        };
        expect((await app.call('POST', path('views'), body)).status).toBe(202);
        return (await app.call('GET', path(`views/${name}`))).body['access_policy'];
      };
      expect(await view('v1', 'said_public')).toEqual({ read });
      expect(await view('v2', 'said_private')).toEqual({ read: 'private' });
      expect(await view('v3', 'said_public', 'public')).toEqual({ read: 'public' });
    });
  });
});
