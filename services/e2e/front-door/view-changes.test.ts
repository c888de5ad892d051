import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Rows {
  records: Array<Record<string, unknown>>;
  refresh_mode: string;
  next_cursor?: string;
}

const modes = ['lazy', 'live'];

describe.each(transports)('changed views (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('trades', [
      { id: 'a', market: 'BTC', price: 10 },
      { id: 'b', market: 'BTC', price: 20 },
      { id: 'c', market: 'ETH', price: 3 },
    ]);
  });

  const path = (name = 'seen') => `/apps/${app.appId}/views/${name}`;
  const counts = { group_by: 'market', aggregate: { trades: { $count: '*' } } };
  const sums = { group_by: 'market', aggregate: { sum: { $sum: 'price' } } };
  const create = async (more: object = {}, name = 'seen') => {
    const body = { name, source_collections: ['trades'], query: counts, ...more };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, body);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
  };
  const change = (body: object, headers: Record<string, string> = {}) =>
    app.call<{ ticket_id: string; code: string; error: string }>('PUT', path(), body, headers);
  const changed = async (body: object) => {
    const answer = await change(body);
    expect([answer.status, answer.body]).toEqual([202, expect.objectContaining({ view_name: 'seen' })]);
    return app.ended(answer.body.ticket_id);
  };
  const definition = async () => (await app.call('GET', path())).body;
  const read = (query = '', key?: string) =>
    send<Rows>(granary.url, 'GET', `/api/views/${app.appId}/seen/data${query}`, key === undefined ? {} : { key });
  const rows = async (query = '') => (await read(query)).body.records;

  test.each(modes.flatMap((from) => modes.map((to) => [from, to])))(
    'a %s view becomes a %s one of another query, keeps what is not named, and follows its source',
    async (from, to) => {
      await create({ refresh_mode: from, variables: { market: 'market' }, access_policy: { read: 'public' } });
      const before = await definition();
      expect((await changed({ query: sums, refresh_mode: to })).status).toBe('Completed');
      expect(await definition()).toMatchObject({
        name: 'seen',
        query: sums,
        source_collections: ['trades'],
        refresh_mode: to,
        variables: { market: 'market' },
        access_policy: { read: 'public' },
        status: 'ready',
        row_count: 2,
        created_at: before['created_at'],
      });
      expect(await rows('?market=BTC')).toEqual([{ market: 'BTC', sum: 30 }]);
      await app.store('trades', [{ id: 'd', market: 'ETH', price: 4 }]);
      if (to === 'lazy') {
        const again = await app.call<{ ticket_id: string }>('POST', `${path()}/refresh`);
        expect((await app.ended(again.body.ticket_id)).status).toBe('Completed');
      }
      expect(await rows('?market=ETH')).toEqual([{ market: 'ETH', sum: 7 }]);
      const { views } = (await app.call<{ views: Array<{ name: string }> }>('GET', `/apps/${app.appId}/views`)).body;
      expect(views.map(({ name }) => name)).toEqual(['seen']);
    },
  );

  test('access and price change at once, without a task, and nothing else does', async () => {
    await create();
    const before = await definition();
    const hidden = await change({ access_policy: { read: 'private' } });
    expect([hidden.status, hidden.body]).toEqual([200, { success: true, message: 'View seen is changed' }]);
    expect((await read()).status).toBe(401);
    expect((await read('', app.key)).status).toBe(200);
    expect((await change({ access_policy: { read: 'public' }, query: counts })).status).toBe(200);
    const price = { pricing_model: 'per_access', price_per_access_utia: 5 };
    expect((await change({ read_price_config: price })).status).toBe(200);
    expect((await read()).status).toBe(402);
    expect((await change({ read_price_config: {} })).status).toBe(200);
    expect(await rows()).toHaveLength(2);
    expect(await definition()).toEqual(before);
  });

  test('a change that cannot be built leaves the view as it is, and nothing behind', async () => {
    await create();
    const before = await definition();
    const database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
    try {
      const ask = (text: string) => database.query<{ schema: string }>(text, [app.appId]);
      const { rows: apps } = await ask(`select 'a_' || number as schema from application where app_id = $1`);
      await database.query(`revoke create on schema ${apps[0]!.schema} from current_user`);
      try {
        expect((await changed({ query: sums })).status).toEqual({ Failed: { error: 'The job failed repeatedly' } });
      } finally {
        await database.query(`grant create on schema ${apps[0]!.schema} to current_user`);
      }
      const left = await ask(`select from view v join application a on a.number = v.app_number where a.app_id = $1`);
      expect(left.rowCount).toBe(1);
    } finally {
      await database.end();
    }
    expect(await definition()).toEqual(before);
    expect(await rows()).toHaveLength(2);
    expect((await changed({ query: sums })).status).toBe('Completed');
  });

  test('the later of two changes holds, and the earlier task says so', async () => {
    await create();
    const texts = Array.from({ length: 3_000 }, (_, at) => ({ id: `t${at}`, market: `m${at}`, price: at }));
    await app.store('trades', texts);
    const [first, second] = [await change({ query: sums }), await change({ query: { find: { market: 'ETH' } } })];
    expect((await app.ended(second.body.ticket_id)).status).toBe('Completed');
    const { status } = await app.ended(first.body.ticket_id);
    if (status !== 'Completed') {
      expect(status).toEqual({ Failed: { error: 'The view was deleted, or changed again' } });
    }
    expect(await rows()).toEqual([{ id: 'c', market: 'ETH', price: 3 }]);
    expect(await definition()).toMatchObject({ query: { find: { market: 'ETH' } }, status: 'ready' });
  });

  test('writes and refreshes beside a change end in the rows of the new definition', async () => {
    for (const mode of modes) {
      await create({ refresh_mode: mode }, 'seen');
      const writing = Array.from({ length: 20 }, (_, at) =>
        app.store('trades', [{ id: `w${at}`, market: 'W', price: 1 }]),
      );
      const refresh = app.call<{ ticket_id: string }>('POST', `${path()}/refresh`);
      expect((await changed({ query: sums, refresh_mode: 'live' })).status).toBe('Completed');
      await Promise.all(writing);
      await app.ended((await refresh).body.ticket_id);
      await eventually(async () => (await definition())['status'] === 'ready');
      expect(await rows()).toEqual([
        { market: 'BTC', sum: 30 },
        { market: 'ETH', sum: 3 },
        { market: 'W', sum: 20 },
      ]);
      expect((await app.call('DELETE', path())).status).toBe(200);
      expect((await read()).status).toBe(404);
    }
  });

  test('a deleted view takes the change that is being built with it, and its name is free', async () => {
    await create();
    const { ticket_id: ticket } = (await change({ query: sums })).body;
    expect((await app.call('DELETE', path())).status).toBe(200);
    await app.ended(ticket);
    expect((await read()).status).toBe(404);
    await create({ query: sums });
    expect(await rows()).toHaveLength(2);
  });

  test('what is not valid is refused, and changes nothing', async () => {
    await create({ refresh_mode: 'live' });
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'secret',
      access_policy: { read: 'private' },
    });
    const before = await definition();
    const refused: Array<[object, number, string]> = [
      [{}, 400, 'VALIDATION_FAILED'],
      [{ query: null }, 400, 'VALIDATION_FAILED'],
      [{ variables: null }, 400, 'VALIDATION_FAILED'],
      [{ access_policy: null }, 400, 'VALIDATION_FAILED'],
      [{ read_price_config: null }, 400, 'VALIDATION_FAILED'],
      [{ source_collections: [] }, 400, 'VALIDATION_FAILED'],
      [{ name: 'other' }, 400, 'VALIDATION_FAILED'],
      [{ query: { group_by: 'market', limit: null } }, 400, 'INVALID_QUERY'],
      [{ query: { find: { market: {} } } }, 400, 'INVALID_QUERY'],
      [{ query: { find: { market: { $search: 'BTC' } } } }, 400, 'INVALID_QUERY'],
      [{ variables: { market: 'market.$nope' } }, 400, 'INVALID_QUERY'],
      [{ source_collections: ['trade'] }, 404, 'COLLECTION_NOT_FOUND'],
    ];
    for (const [body, status, code] of refused) {
      const answer = await change(body);
      expect([body, answer.status, answer.body.code]).toEqual([body, status, code]);
    }
    expect((await app.call<{ code: string }>('PUT', path('other'), { query: sums })).body.code).toBe('VIEW_NOT_FOUND');
    expect(await definition()).toEqual(before);
  });

  test('a key with Write alone publishes nothing private, and sets no price', async () => {
    await create();
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'secret',
      access_policy: { read: 'private' },
    });
    const key = { name: 'writer', permissions: ['Write'] };
    const writer = (await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/keys`, key)).body.app_key;
    const put = (body: object) => send<{ code: string }>(granary.url, 'PUT', path(), { key: writer, body });
    expect((await put({ source_collections: ['secret'] })).body.code).toBe('FORBIDDEN');
    expect((await put({ read_price_config: { pricing_model: 'per_access', price_per_access_utia: 5 } })).status).toBe(
      403,
    );
    expect((await put({ source_collections: ['secret'], access_policy: { read: 'private' } })).status).toBe(202);
  });
});
