import { randomUUID } from 'node:crypto';
import { eventually } from '@granary/testing/eventually';
import { newApp, operatorKey, send, transports, type StoreAnswer, type TestApp } from '../support/granary';
import { startGranary, type OwnGranary } from '../support/own-granary';

/** What the contract lets a caller see whose app or collection changes under the hands of others. */
const expected = new Set([200, 201, 202, 400, 404, 409, 422]);

describe.each(transports)('concurrent requests (%s)', (transport) => {
  let granary: OwnGranary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await startGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  test('writes, reads and changes of the catalog run concurrently, and every write has its height', async () => {
    const unexpected: string[] = [];
    const heights: number[] = [];
    const call = async (method: string, target: string, body?: object) => {
      const answer = await app.call<StoreAnswer>(method, target, body);
      // What went away in the very moment may be asked for again.
      const mayComeAgain = answer.status === 503 && answer.text.includes('has just changed');
      if (!expected.has(answer.status) && !mayComeAgain)
        unexpected.push(`${method} ${target}: ${answer.status} ${answer.text}`);
      return answer;
    };
    const store = async (name: string, n: number) => {
      const data = [{ id: `d${n % 7}`, year: n % 5 === 0 ? String(n) : n, tag: { of: n } }, { year: n }];
      const answer = await call('POST', '/store', { root: `${app.appId}::${name}`, data });
      if (answer.status === 202) heights.push(answer.body.results[0]!.celestia_height);
    };
    const rounds = Array.from({ length: 20 }, (_, n) => n);
    const index = { name: 'i', collection: 'c1', field_name: 'year', index_type: 'btree' };
    const schema = (type: string) => ({
      schema_definition: { fields: { 'tag.of': { type, index: true } } },
      force: true,
    });
    const view = {
      name: 'v',
      query: { group_by: ['year'], aggregate: { n: { $count: '*' } } },
      source_collections: ['c1'],
    };
    const actors: Array<(n: number) => Promise<unknown>> = [
      ...[0, 1, 2, 3].map((writer) => async (n: number) => {
        await store(`c${n % 2}`, n * 4 + writer);
        await store('c1', n);
      }),
      (n) => call('DELETE', `${path}/collections/c${n % 2}?force=true&cascade=${n % 3 === 0}`),
      (n) => call('POST', `${path}/indexes`, { ...index, index_type: n % 2 ? 'number' : 'btree' }),
      () => call('DELETE', `${path}/collections/c1/indexes/i`),
      (n) => call('PUT', `${path}/collections/c1`, schema(n % 2 ? 'number' : 'date')),
      () => call('POST', `/apps/${app.appId}/views`, view),
      () => call('POST', `/apps/${app.appId}/views/v/refresh`),
      () => call('DELETE', `/apps/${app.appId}/views/v`),
      () => call('GET', `/api/views/${app.appId}/v/data?sort=-n`),
      (n) => call('GET', `${path}/collections/c1/data?year=${n}&sort=-year`),
      (n) =>
        call('POST', '/list', {
          root: `${app.appId}::c1`,
          find: { year: { gte: n } },
          sort: ['-year'],
          include_history: n % 2 === 0,
        }),
      () => call('GET', `${path}/indexes`),
      () => call('GET', `/api/skills/${app.appId}/skills.md`),
    ];
    await Promise.all(
      actors.map(async (act) => {
        for (const n of rounds) await act(n);
      }),
    );
    expect(unexpected).toEqual([]);
    expect(heights.sort((a, b) => a - b)).toEqual(Array.from({ length: heights.length }, (_, at) => at + 1));
    expect(heights.length).toBeGreaterThan(0);
    const { body } = await app.call('GET', `/api/applications/${app.appId}`);
    expect(body['height']).toBe(heights.length);
  });

  test('each writer of an app that is being deleted gets a proper answer', async () => {
    const answers: Array<{ status: number; text: string }> = [];
    const writers = Array.from({ length: 8 }, async (_, writer) => {
      for (let n = 0; n < 15; n++) {
        const { status, text } = await app.call('POST', '/store', {
          root: `${app.appId}::c${writer % 3}`,
          data: [{ id: `${n}` }],
        });
        answers.push({ status, text });
      }
    });
    await eventually(() => Promise.resolve(answers.length > 8));
    const gone = await send(granary.url, 'DELETE', `/api/applications/${app.appId}`, {
      headers: { 'x-operator-key': operatorKey },
    });
    expect(gone.status).toBe(200);
    await Promise.all(writers);
    expect(answers.filter(({ status }) => ![202, 401, 404].includes(status))).toEqual([]);
    expect((await send(granary.url, 'GET', `/api/applications/${app.appId}`)).status).toBe(404);
  });

  test('one idempotency key creates one application, however often it is sent', async () => {
    const headers = { 'x-operator-key': operatorKey, 'idempotency-key': randomUUID() };
    const body = { name: 'once' };
    const answers = await Promise.all(
      Array.from({ length: 20 }, () =>
        send<{ app_id: string; app_key: string | null }>(granary.url, 'POST', '/api/applications', { headers, body }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(201));
    expect(new Set(answers.map((answer) => answer.body.app_id)).size).toBe(1);
    expect(answers.filter((answer) => answer.body.app_key !== null)).toHaveLength(1);
  });

  test('an idempotency key is bound to caller and route, not to prefix or slash, and outlives a restart', async () => {
    const headers = { 'idempotency-key': 'k' };
    const body = { root: `${app.appId}::films`, data: [{ n: 1 }] };
    const first = await app.call('POST', '/store', body, headers);
    for (const target of ['/store', '/api/store', '/store/']) {
      expect((await app.call('POST', target, body, headers)).text).toBe(first.text);
    }
    const second = await send<{ app_key: string }>(granary.url, 'POST', `${path}/regenerate-key`, {
      key: app.key,
      body: { name: 'second', permissions: ['Write'] },
    });
    const other = await send(granary.url, 'POST', '/store', { key: second.body.app_key, body, headers });
    expect(other.status).toBe(202);
    expect(other.text).not.toBe(first.text);
    await granary.restart();
    expect((await app.call('POST', '/store', body, headers)).text).toBe(first.text);
    expect((await app.list('films')).body.total).toBe(2);
  });

  test('a repeated request gets its answer again although the schema now refuses the document', async () => {
    const headers = { 'idempotency-key': 'k' };
    const body = { root: `${app.appId}::films`, data: [{ n: 'text' }] };
    const first = await app.call('POST', '/store', body, headers);
    expect(first.status).toBe(202);
    const changed = await app.call('PUT', `${path}/collections/films`, {
      schema_definition: { fields: { n: { type: 'number', required: true } } },
      force: true,
    });
    expect(changed.status).toBe(200);
    // Once another write is refused, the change is known everywhere.
    await eventually(async () => (await app.call('POST', '/store', body)).status === 422);
    const again = await app.call('POST', '/store', body, headers);
    expect([again.status, again.text]).toEqual([202, first.text]);
  });

  test('requested long work is completed although everything is stopped meanwhile', async () => {
    await app.store(
      'films',
      Array.from({ length: 3_000 }, (_, n) => ({ id: `f${n}`, year: n })),
    );
    const index = { name: 'i', collection: 'films', field_name: 'year', index_type: 'number' };
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/indexes`, index);
    const view = { name: 'v', query: { aggregate: { n: { $count: '*' } } }, source_collections: ['films'] };
    const asked = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    expect([made.status, asked.status]).toEqual([202, 202]);
    await granary.restart();
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    expect((await app.ended(asked.body.ticket_id)).status).toBe('Completed');
    const found = await send(granary.url, 'GET', `${path}/collections/films/data?year=2999`);
    expect(found.body).toMatchObject({ records: [{ id: 'f2999' }], total: 1 });
    const rows = await send(granary.url, 'GET', `/api/views/${app.appId}/v/data`);
    expect(rows.body).toMatchObject({ records: [{ n: 3_000 }] });
  });
});
