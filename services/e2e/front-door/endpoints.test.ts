import { routes } from '@granary/gateway/routes/table';
import type { Route } from '@granary/gateway/pipeline/route';
import { version } from '@granary/shared/version';
import { eventually } from '@granary/testing/eventually';
import {
  borrowGranary,
  newApp,
  operatorKey,
  send,
  transports,
  type Body,
  type Granary,
  type TestApp,
} from '../support/granary';
import { newWallet, signedHeaders } from '../support/wallet-signing';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/) as string;
const text = expect.stringMatching(/\S/) as string;
const count = expect.any(Number) as number;

describe.each(transports)('the documented endpoints (%s)', (transport) => {
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

  test('ids and values of any characters are stored, found and distinguished', async () => {
    const ids = [
      'a/b',
      "o'clock",
      '"',
      '\\',
      '%',
      '_',
      ' ',
      '\t',
      'é',
      'e\u0301',
      '😀',
      'É',
      '\u2028',
      '$1',
      '0',
      '-1',
      '{}',
      'null',
    ];
    await app.store(
      'odd',
      ids.map((id) => ({ id, text: `<${id}>` })),
    );
    for (const id of ids) {
      const found = await open<{ records: object[]; total: number }>(
        `${path}/collections/odd/data?id=${encodeURIComponent(id)}`,
      );
      expect(found.body).toMatchObject({ records: [{ id, text: `<${id}>` }], total: 1 });
      for (const find of [
        { text: `<${id}>` },
        { text: { contains: id }, id: { in: [id] } },
        { id: { startsWith: id, endsWith: id } },
      ]) {
        const { records } = (await app.list('odd', { find })).body;
        expect(records.filter((record) => record['id'] === id)).toHaveLength(1);
      }
    }
    expect((await app.list('odd', { find: { text: { startsWith: '<%' } } })).body.total).toBe(1);
  });

  test('a list accepts a filter, a selection, an order and a page, and the name of a view', async () => {
    await app.store('films', [
      { id: 'a', title: 'Alien', year: 1979, cast: { lead: 'Weaver', size: 7 } },
      { id: 'b', title: 'Heat', year: 1995, cast: { lead: 'Pacino', size: 30 } },
      { id: 'c', title: 'Speed', year: 1994 },
    ]);
    const first = await app.list('films', {
      find: { or: [{ year: { greaterThan: 1990 } }, { cast: { lead: 'Weaver' } }], not: [{ title: 'Speed' }] },
      select: { title: true, 'cast.lead': true },
      sort: ['-year'],
      limit: 1,
    });
    expect(first.body).toEqual({
      records: [{ title: 'Heat', cast: { lead: 'Pacino' } }],
      total: 2,
      page: 1,
      limit: 1,
      next_cursor: expect.stringMatching(/^[\w-]+$/) as string,
    });
    const second = await app.list('films', { sortBy: 'year', sortDirection: 'descending', limit: 2, offset: 2 });
    expect(second.body).toMatchObject({ records: [{ id: 'a' }], total: 3, page: 2, limit: 2 });
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/views`, {
      name: 'new_films',
      query: { find: { year: { gte: 1990 } }, select: ['title'] },
      source_collections: ['films'],
    });
    await app.ended(made.body.ticket_id);
    const view = await app.list('new_films', { sort: ['title'] });
    expect(view.body).toEqual({ records: [{ title: 'Heat' }, { title: 'Speed' }], total: 2, page: 1, limit: 100 });
  });

  test('the tasks of a write and of long work have the documented fields', async () => {
    const { ticket_id: write } = (await app.store('films', [{ id: 'a' }])).body;
    const task = await open(`/api/tasks/${write}`);
    expect(task.body).toEqual({
      ticket_id: write,
      status: 'Completed',
      operation_type: text,
      app_id: app.appId,
      created_at: time,
      updated_at: time,
      transaction_hash: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      block_height: 1,
      result: { results: [{ id: 'a', celestia_height: 1, blob_id: text, namespace: `${app.appId}::films` }] },
      progress: 1,
      progress_log: expect.any(Array) as string[],
    });
    const view = { name: 'v', query: {}, source_collections: ['films'] };
    const { ticket_id: job } = (await app.call<{ ticket_id: string }>('POST', `${path}/views`, view)).body;
    const ended = await app.ended(job);
    expect(ended).toEqual({
      ticket_id: job,
      status: 'Completed',
      operation_type: text,
      app_id: app.appId,
      created_at: time,
      updated_at: time,
      result: expect.any(Object) as object,
      progress: 1,
      progress_log: expect.any(Array) as string[],
    });
    expect((await open(`/tasks/${write}`)).body).toEqual(task.body);
  });

  test('the skills document describes the app, is always current, and contains the part of the owner', async () => {
    const skills = () => open(`/api/skills/${app.appId}/skills.md`);
    const first = await skills();
    expect(first.status).toBe(200);
    expect(first.headers.get('content-type')).toBe('text/markdown; charset=utf-8');
    expect(first.text).toContain(app.appId);
    await app.call('POST', `${path}/indexes`, {
      name: 'i',
      collection: 'films',
      field_name: 'year',
      index_type: 'number',
    });
    expect((await skills()).text).toMatch(/films[\s\S]*year/);
    await app.call('POST', `${path}/queries`, { name: 'by_title', source_collection: 'films', base_query: {} });
    expect((await skills()).text).toContain('by_title');
    const put = (body: string, type: string) =>
      app.call('PUT', `/api/skills/${app.appId}/skills.md`, body, { 'content-type': type });
    expect(await put('# Ours\n\nSchön.', 'text/markdown; charset=utf-8')).toMatchObject({
      status: 200,
      body: { success: true, message: text, app_id: app.appId, revision: count },
    });
    expect((await skills()).text).toMatch(
      /# Ours\n\nSchön\.[\s\S]*<!-- .*begin.* -->[\s\S]*by_title[\s\S]*<!-- .*end.* -->/,
    );
    const forged = '# New <!-- granary:generated:end --> part';
    expect((await put(JSON.stringify({ markdown: forged }), 'application/json')).status).toBe(200);
    const last = (await skills()).text;
    expect(last).toContain('# New');
    expect(last).not.toContain('# Ours');
    expect(last.match(/granary:generated:end/g)).toHaveLength(1);
  });

  test('health lists six services and their parts, and no internal details', async () => {
    const health = await eventually(async () => {
      const answer = await open<{ status: string; checks: Record<string, Record<string, unknown>> }>('/health');
      return answer.body.status === 'healthy' && answer;
    });
    expect(health.status).toBe(200);
    expect(Object.keys(health.body).sort()).toEqual(['checks', 'status', 'version']);
    expect(Object.keys(health.body.checks).sort()).toEqual(
      ['blobs', 'data', 'finance', 'gateway', 'payments', 'tasks'].sort(),
    );
    for (const [service, check] of Object.entries(health.body.checks)) {
      expect(check).toMatchObject({ status: 'healthy', latency_ms: count, version });
      if (service === 'gateway') continue;
      expect(check['database']).toEqual({ status: 'healthy', latency_ms: count });
    }
    expect(health.text).not.toMatch(/127\.0\.0\.1|localhost|postgres:|password|:\/\//);
    const links = { docs: '/docs', openapi: '/openapi.json' };
    expect((await open('/')).body).toEqual({ status: 'ok', version, name: 'granary', links });
    expect((await open('/readyz')).status).toBe(200);
    expect((await open('/livez')).status).toBe(200);
    expect((await open('/openapi.json')).body).toMatchObject({ openapi: expect.stringMatching(/^3\.1/) as string });
  });

  test('the lists of authorised transactions are empty', async () => {
    const byApp = await app.call('GET', `/api/authz/transactions/app/${app.appId}?limit=3`);
    expect(byApp).toMatchObject({ status: 200 });
    expect(byApp.body).toEqual({ app_id: app.appId, transactions: [], total: 0, limit: 3, offset: 0 });
    const wallet = newWallet();
    const target = `/api/authz/transactions/${wallet.address}`;
    const byUser = await send(granary.url, 'GET', target, { headers: signedHeaders(wallet, target) });
    expect(byUser.body).toEqual({ user_address: wallet.address, transactions: [], total: 0, limit: 100, offset: 0 });
    expect((await asOperator('GET', '/api/authz/transactions/app/nobody-has-this')).status).toBe(404);
  });

  test('every answer has the fields of the published document, and no others', async () => {
    await app.store('films', [{ id: 'a', year: 1994 }]);
    const bodies: Record<string, [body: Body, headers?: Record<string, string>]> = {
      createIndex: [{ name: 'i', collection: 'films', field_name: 'year', index_type: 'number' }],
      createView: [{ name: 'v', query: {}, source_collections: ['films'] }],
      createQuery: [{ name: 'q', source_collection: 'films', base_query: {} }],
      createCollection: [{ name: 'fresh' }],
      updateCollection: [{ namespace: 'x' }],
      setRetention: [{ retention_days: 30 }],
      validateDocuments: [{ data: [{}] }],
      store: [{ root: `${app.appId}::films`, data: [{ id: 'b' }] }],
      list: [{ root: `${app.appId}::films` }],
      importFile: ['{}', { 'content-type': 'application/x-ndjson' }],
      createImport: [{ collection: 'films' }],
      uploadBlob: ['bytes', { 'content-type': 'image/png' }],
      createKey: [{ name: 'new', permissions: ['Read'] }],
      regenerateKey: [{ name: 'k', permissions: ['Read'] }],
      updatePayoutSettings: [{ min_payout: 1 }],
      putSkills: [{ markdown: '# Ours' }],
      createApplication: [{ name: 'x' }],
    };
    const names: Record<string, string> = { app_id: app.appId, collection: 'films' };
    names['view_name'] = 'v';
    names['query_name'] = 'q';
    names['index_name'] = 'i';
    const deletions = (route: Route) => (route.method === 'DELETE' ? (route.path.includes('{index_name}') ? 2 : 3) : 1);
    const makers = (route: Route) => (route.method === 'POST' && route.id in bodies ? 0 : deletions(route));
    const checked: string[] = [];
    // What is made comes before what is read, and that before what is deleted, the application at the very end.
    for (const route of [...routes].sort((a, b) => makers(a) - makers(b) || b.path.length - a.path.length)) {
      const target = route.prefixes[0]! + route.path.replace(/\{(\w+)\}/g, (_, name: string) => names[name] ?? 'none');
      const [body, headers] = bodies[route.id] ?? [];
      const answer = await app.call<Record<string, unknown>>(route.method, target, body, {
        ...headers,
        ...(route.auth.kind === 'operator' || route.auth.kind === 'wallet' ? { 'x-operator-key': operatorKey } : {}),
      });
      if (answer.status >= 400) continue;
      expect(Object.keys(route.responses)).toContain(String(answer.status));
      for (const ticket of ['ticket_id', 'blob_id', 'key_id', 'import_id'] as const) {
        if (typeof answer.body[ticket] === 'string') names[ticket] = answer.body[ticket];
      }
      if (route.id === 'createView') await app.ended(answer.body['ticket_id'] as string);
      const schema = route.responses[answer.status]!.schema;
      if (!schema || !answer.headers.get('content-type')!.startsWith('application/json')) continue;
      checked.push(route.id);
      expect([route.id, schema.safeParse(answer.body)]).toEqual([route.id, { success: true, data: answer.body }]);
    }
    expect(checked).toEqual(expect.arrayContaining(Object.keys(bodies)));
    expect(checked.length).toBeGreaterThan(45);
  });

  test('exactly the listed routes answer 501', async () => {
    const later = [
      'POST /query/sql',
      'POST /apps/{app_id}/views/sql',
      'PATCH /apps/{app_id}/collections/{collection}/sharding',
    ].sort();
    await app.store('films', [{ id: 'a' }]);
    const found: string[] = [];
    for (const route of routes) {
      const answer = await app.call<{ code: string }>(route.method, fill(route, app.appId), bodyOf(route));
      expect(answer.status).not.toBe(500);
      if (answer.status !== 501) continue;
      expect(answer.body.code).toBe('NOT_IMPLEMENTED');
      found.push(`${route.method} ${route.path}`);
    }
    expect(found.sort()).toEqual(later);
  });
});

const fill = (route: Route, appId: string): string =>
  route.prefixes[0]! +
  route.path.replace(/\{(\w+)\}/g, (_, name: string) =>
    name === 'app_id' ? appId : name === 'collection' ? 'films' : name === 'height' ? '1' : 'none',
  );

const bodyOf = (route: Route): object | undefined =>
  route.method === 'GET' || route.method === 'DELETE' ? undefined : {};
