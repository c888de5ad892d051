import { randomUUID } from 'node:crypto';
import {
  borrowGranary,
  newApp,
  operatorKey,
  send,
  transports,
  type Answer,
  type Granary,
  type TestApp,
} from '../support/granary';

describe.each(transports)('what HTTP clients rely on (%s)', (transport) => {
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

  /** What is at the Location of an answer, read with the key of the app. */
  const locationOf = (answer: Answer<object>) => app.call('GET', answer.headers.get('location') ?? 'none');

  const replayed = ({ headers }: Answer<object>) => headers.get('idempotency-replayed');
  const keyed = () => ({ 'idempotency-key': randomUUID() });

  test('201 names the created resource in Location, which can be read there', async () => {
    const appId = `t-${randomUUID()}`;
    const application = await send(granary.url, 'POST', '/api/applications', {
      body: { app_id: appId, name: 'Located' },
      headers: { 'x-operator-key': operatorKey },
    });
    expect(application.status).toBe(201);
    expect((await locationOf(application)).body).toMatchObject({ app_id: appId, name: 'Located' });

    const created: Array<[route: string, body: object, found: object]> = [
      [`${path}/collections`, { name: 'films' }, { name: 'films' }],
      [
        `${path}/indexes`,
        { name: 'by year / größe', collection: 'films', field_name: 'year', index_type: 'number' },
        { name: 'by year / größe', collection: 'films' },
      ],
      [`${path}/queries`, { name: 'all', source_collection: 'films', base_query: {} }, { name: 'all' }],
    ];
    for (const [route, body, found] of created) {
      const answer = await app.call('POST', route, body);
      expect([route, answer.status]).toEqual([route, 201]);
      expect(await locationOf(answer)).toMatchObject({ status: 200, body: found });
    }
  });

  test('202 names the task of its ticket in Location', async () => {
    const stored = await app.store('films', [{ id: 'a', year: 1927 }]);
    const view = { name: 'copies', query: {}, source_collections: ['films'] };
    const created = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    await app.ended(created.body.ticket_id);
    const refreshed = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views/copies/refresh`);
    const png = { 'content-type': 'image/png' };
    const uploaded = await app.call<{ ticket_id: string; blob_id: string }>('POST', `${path}/blobs/files`, 'x', png);
    const erased = await app.call<{ ticket_id: string }>('DELETE', `${path}/blobs/files/${uploaded.body.blob_id}`);
    for (const answer of [stored, created, refreshed, uploaded, erased]) {
      expect(answer.status).toBe(202);
      expect(await locationOf(answer)).toMatchObject({ status: 200, body: { ticket_id: answer.body.ticket_id } });
    }
  });

  test('an answer replayed for an Idempotency-Key is marked, the first one is not', async () => {
    const headers = keyed();
    const store = () =>
      app.call('POST', '/store', { root: `${app.appId}::films`, data: [{ id: 'a' }] }, { ...headers });
    const [first, second] = [await store(), await store()];
    expect([first.status, replayed(first)]).toEqual([202, null]);
    expect([second.status, replayed(second)]).toEqual([202, 'true']);
    expect([second.text, second.headers.get('location')]).toEqual([first.text, first.headers.get('location')]);

    const upload = () => app.call('POST', `${path}/blobs/files`, 'x', { 'content-type': 'image/png', ...headers });
    const uploads = [await upload(), await upload()];
    expect(uploads.map((answer) => [answer.status, replayed(answer)])).toEqual([
      [202, null],
      [202, 'true'],
    ]);

    const body = { app_id: `t-${randomUUID()}`, name: 'Once' };
    const create = () =>
      send(granary.url, 'POST', '/api/applications', { body, headers: { 'x-operator-key': operatorKey, ...headers } });
    const applications = [await create(), await create()];
    expect(applications.map((answer) => [answer.status, replayed(answer)])).toEqual([
      [201, null],
      [201, 'true'],
    ]);
    expect(applications[1]!.headers.get('location')).toBe(`/api/applications/${body.app_id}`);
  });

  test('lists of payouts and transactions accept every limit up to 10,000, and name the limit beyond', async () => {
    const history = (limit: number) => app.call('POST', `${path}/payout/history`, { limit });
    const historyByGet = (limit: number) => app.call('GET', `${path}/payout/history?limit=${limit}`);
    const transactions = (limit: number) => app.call('GET', `/api/authz/transactions/app/${app.appId}?limit=${limit}`);
    for (const list of [history, historyByGet, transactions]) {
      for (const limit of [1, 1_001, 1_825, 10_000]) {
        expect(await list(limit)).toMatchObject({ status: 200, body: { total: 0, limit } });
      }
      const refused = await list(10_001);
      expect(refused).toMatchObject({ status: 400, body: { details: { limit: ['must be at most 10000'] } } });
    }
  });

  test('the service links to its documentation, in the body and in a header', async () => {
    const { body, headers } = await send<{ links: Record<string, string> }>(granary.url, 'GET', '/');
    expect(Object.keys(body.links)).toEqual(['docs', 'openapi']);
    for (const link of Object.values(body.links)) {
      expect((await send(granary.url, 'GET', link)).status).toBe(200);
      expect(headers.get('link')).toContain(`<${link}>; rel="service-`);
    }
  });

  describe('an error names the violated rule', () => {
    const rule = '1 to 63 of A-Z a-z 0-9 _ -';
    const messages = (answer: Answer<object>, field: string) =>
      (answer.body as { details: Record<string, string[]> }).details[field]?.join() ?? answer.text;

    test.each(['x'.repeat(64), 'größe', '-a', 'a b', ''])(
      'a name like "%s" is refused with the rule, in every body',
      async (name) => {
        const root = `${app.appId}::${name}`;
        for (const [route, body, field] of [
          ['/store', { root, data: [{ id: 'a' }] }, 'root'],
          ['/list', { root }, 'root'],
          [`${path}/collections`, { name }, 'name'],
          [`${path}/queries`, { name, source_collection: 'films', base_query: {} }, 'name'],
          [`/apps/${app.appId}/views`, { name, query: {}, source_collections: ['films'] }, 'name'],
        ] as const) {
          const refused = await app.call('POST', route, body);
          expect([route, refused.status]).toEqual([route, 400]);
          expect(messages(refused, field)).toContain(rule);
        }
      },
    );

    test('an upload into a collection with an invalid name is refused with the rule', async () => {
      // In a path such a name is not found.
      const refused = await app.call('POST', `${path}/blobs/${'x'.repeat(64)}`, 'x', { 'content-type': 'image/png' });
      expect(refused).toMatchObject({ status: 404, body: { code: 'COLLECTION_NOT_FOUND' } });
    });

    test('a root without the form app_id::collection is refused with the rule', async () => {
      for (const root of ['films', `${app.appId}:films`, `${app.appId}::a::b`]) {
        const refused = await app.call('POST', '/store', { root, data: [{ id: 'a' }] });
        expect([refused.status, messages(refused, 'root')]).toEqual([400, 'must have the form app_id::collection']);
      }
    });

    test('a route that is not implemented, an unknown path and an unpaired surrogate are refused with the reason', async () => {
      const planned = await app.call('POST', '/query/sql', {});
      expect([planned.status, planned.body['error']]).toEqual([501, 'Not implemented yet: SQL']);
      const unknown = await app.call('DELETE', '/nowhere/%C3%A4?key=secret');
      expect(unknown.body).toMatchObject({ code: 'NOT_FOUND', error: 'No such route: DELETE /nowhere/%C3%A4' });
      const long = await app.call('GET', `/${'x'.repeat(5_000)}`);
      expect((long.body['error'] as string).length).toBeLessThan(300);
      const lone = await app.call('POST', '/store', `{"root":"${app.appId}::films","data":[{"a":"\\ud800"}]}`);
      expect(lone.status).toBe(400);
      expect(lone.text).toContain('Unpaired surrogate');
    });
  });

  test('an empty text removes the part of the owner from the skills document', async () => {
    const skills = `/api/skills/${app.appId}/skills.md`;
    const put = (body: string, type: string) => app.call('PUT', skills, body, { 'content-type': type });
    expect((await put('# Ours', 'text/markdown')).status).toBe(200);
    expect((await app.call('GET', skills)).text).toContain('# Ours');
    expect(await put('', 'application/json')).toMatchObject({ status: 400, body: { error: 'The body is empty' } });
    expect((await app.call('GET', skills)).text).toContain('# Ours');
    expect((await put('', 'text/markdown; charset=utf-8')).status).toBe(200);
    expect((await app.call('GET', skills)).text).not.toContain('# Ours');
  });
});
