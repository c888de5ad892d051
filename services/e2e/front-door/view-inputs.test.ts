import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

type Row = Record<string, unknown>;

describe.each(transports)('what views are made of (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('films', [
      { id: 'a', g: 'x', n: 1 },
      { id: 'b', g: 'x', n: 2 },
    ]);
    await app.store('stars', [{ id: 'a', film: 'a' }]);
  });

  const post = (body: object | string) =>
    app.call<{ ticket_id: string; code: string; details: object }>('POST', `/apps/${app.appId}/views`, body);
  const data = <T = { records: Row[]; total: number; refreshed_at: string }>(name: string, more = '') =>
    send<T>(granary.url, 'GET', `/api/views/${app.appId}/${name}/data${more}`);

  describe.each(['lazy', 'live'])('of a view that is %s', (mode) => {
    const definition = (query: object, more: object = {}) => ({
      name: 'v',
      query,
      source_collections: ['films'],
      refresh_mode: mode,
      ...more,
    });
    const create = async (query: object, more: object = {}) => {
      const made = await post(definition(query, more));
      expect(made.status).toBe(202);
      expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    };
    const refresh = async () => {
      const queued = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views/v/refresh`);
      expect((await app.ended(queued.body.ticket_id)).status).toBe('Completed');
    };
    /** Stores, and reads what the view has then: a lazy one when it has been refreshed. */
    const after = async (documents: object[]): Promise<Row[]> => {
      await app.store('films', documents);
      if (mode === 'lazy') await refresh();
      return (await data('v')).body.records;
    };

    const on = { film: '$data.id' };
    const both = { source_collections: ['films', 'stars'] };
    const join = (joins: object) => ({ join: joins });
    test.each<[string, object, object, string, string]>([
      ['an operator that is none', { aggregate: { m: { $median: 'n' } } }, {}, 'INVALID_QUERY', 'query.aggregate.m'],
      ['two operators', { aggregate: { m: { $min: 'n', $max: 'n' } } }, {}, 'INVALID_QUERY', 'query.aggregate.m'],
      ['a group twice', { group_by: ['g', 'g'] }, {}, 'INVALID_QUERY', 'query'],
      ['a group within a group', { group_by: ['g', 'g.a'] }, {}, 'INVALID_QUERY', 'query'],
      ['a group as an alias', { group_by: 'g', aggregate: { g: { $sum: 'n' } } }, {}, 'INVALID_QUERY', 'query'],
      ['a sort by no column', { group_by: 'g', sort_by: ['n'] }, {}, 'INVALID_QUERY', 'query.sort_by'],
      ['a limit of 0', { limit: 0 }, {}, 'INVALID_QUERY', 'query.limit'],
      ['a limit of 10,001', { limit: 10_001 }, {}, 'LIMIT_EXCEEDED', 'query.limit'],
      ['a limit of 1.5', { limit: 1.5 }, {}, 'INVALID_QUERY', 'query.limit'],
      ['a reserved variable', {}, { variables: { cursor: 'g' } }, 'INVALID_QUERY', 'variables.cursor'],
      ['no source', {}, { source_collections: [] }, 'VALIDATION_FAILED', 'source_collections'],
      ['an unused source', {}, both, 'INVALID_QUERY', 'source_collections[1]'],
      ['a source twice', {}, { source_collections: ['films', 'films'] }, 'INVALID_QUERY', 'source_collections[1]'],
      [
        'a joined collection that is no source',
        join({ s: { collection: 'stars', on } }),
        {},
        'INVALID_QUERY',
        'query.join.s.collection',
      ],
      [
        'a reference to a later alias',
        join({ s: { collection: 'stars', on: { id: '$data.t.id' } }, t: { collection: 'stars', on } }),
        both,
        'INVALID_QUERY',
        'query.join.s.on.id',
      ],
      [
        'a cycle',
        join({
          s: { collection: 'stars', on: { id: '$data.t.id' } },
          t: { collection: 'stars', on: { id: '$data.s.id' } },
        }),
        both,
        'INVALID_QUERY',
        'query.join.s.on.id',
      ],
    ])('%s is refused with its place', async (_, query, more, code, place) => {
      const refused = await post(definition(query, more));
      expect([refused.status, refused.body.code, Object.keys(refused.body.details)]).toEqual([400, code, [place]]);
      expect((await data('v')).status).toBe(404);
    });

    test('17 sources, a source that is missing, and an alias or a member twice are refused', async () => {
      const many = Array.from({ length: 17 }, (_, at) => `c${at}`);
      expect(await post(definition({}, { source_collections: many }))).toMatchObject({ status: 400 });
      const missing = await post(definition({}, { source_collections: ['gone'] }));
      expect(missing).toMatchObject({ status: 404, body: { code: 'COLLECTION_NOT_FOUND' } });
      const [start, end] = [`{"name":"v","refresh_mode":"${mode}","source_collections":["films"],"query":`, '}'];
      for (const query of [
        '{"aggregate":{"n":{"$sum":"n"},"n":{"$count":"*"}}}',
        '{"join":{"s":{"collection":"stars","on":{"film":"$data.id"}},"s":{"collection":"stars","on":{"film":"$data.id"}}}}',
        '{"limit":1,"limit":2}',
      ]) {
        const refused = await post(start + query + end);
        expect([query, refused.status]).toEqual([query, 400]);
      }
      expect((await data('v')).status).toBe(404);
    });

    test('a number that becomes a text, becomes null, disappears, and returns counts as what it is', async () => {
      const aggregate = {
        rows: { $count: '*' },
        n: { $count: 'n' },
        s: { $sum: 'n' },
        m: { $avg: 'n' },
        least: { $min: 'n' },
        most: { $max: 'n' },
      };
      await create({ group_by: 'g', aggregate });
      const x = { g: 'x', rows: 2, n: 2, s: 3, m: 1.5, least: 1, most: 2 };
      expect((await data('v')).body.records).toEqual([x]);
      expect(await after([{ id: 'a', g: 'x', n: 'text' }])).toEqual([{ ...x, s: 2, m: 2, least: 'text' }]);
      expect(await after([{ id: 'a', g: 'x', n: null }])).toEqual([{ ...x, n: 1, s: 2, m: 2, least: 2 }]);
      expect(await after([{ id: 'a', g: 'x' }])).toEqual([{ ...x, n: 1, s: 2, m: 2, least: 2 }]);
      expect(await after([{ id: 'a', g: 'x', n: { of: 1 } }])).toMatchObject([{ rows: 2, n: 2, s: 2, m: 2 }]);
      expect(await after([{ id: 'a', g: 'x', n: 1 }])).toEqual([x]);
    });

    test('sums beyond what a double holds, and differences below it, are exact', async () => {
      await create({ group_by: 'g', aggregate: { s: { $sum: 'n' }, m: { $avg: 'n' } } });
      const bodyAfter = async (texts: string[]) => {
        const body = `{"root":"${app.appId}::films","data":[${texts.join(',')}]}`;
        expect((await app.call('POST', '/store', body)).status).toBe(202);
        if (mode === 'lazy') await refresh();
        return (await data('v')).text;
      };
      const most = (id: string) => `{"id":"${id}","g":"x","n":1.7e308}`;
      expect(await bodyAfter([most('a'), most('b')])).toContain(`"s":34${'0'.repeat(307)},"m":17${'0'.repeat(307)}`);
      expect(await bodyAfter(['{"id":"a","g":"x","n":1e-300}'])).toContain(
        `"s":17${'0'.repeat(307)}.${'0'.repeat(299)}1,`,
      );
      // Nothing is left of what was removed.
      expect(await bodyAfter(['{"id":"b","deleted":true}'])).toContain(
        `"s":0.${'0'.repeat(299)}1,"m":0.${'0'.repeat(299)}1}`,
      );
    });

    test('groups are of any value: a text of nearly 1 MiB, and objects of many levels', async () => {
      await create({ group_by: 'g', aggregate: { n: { $count: '*' } } });
      const long = 'x'.repeat(1_000_000);
      const deep = Array.from({ length: 30 }).reduce<unknown>((inner) => ({ o: [inner] }), 1);
      const others = [`${long.slice(1)}y`, { o: [] }];
      await app.store(
        'films',
        [long, deep, ...others].map((g, at) => ({ id: `g${at}`, g })),
      );
      const records = await after([
        { id: 'g4', g: long },
        { id: 'g5', g: deep },
      ]);
      const found = records.map(({ g, n }) => [JSON.stringify(g), n] as const);
      const expected = [
        ['x', 2],
        [long, 2],
        [deep, 2],
        [others[0], 1],
        [others[1], 1],
      ] as const;
      expect(new Map(found)).toEqual(new Map(expected.map(([g, n]) => [JSON.stringify(g), n])));
    });

    test('a view of a private collection is private unless it says otherwise', async () => {
      await app.call('PUT', `/api/apps/${app.appId}/collections/films`, { access_policy: { read: 'private' } });
      await create({});
      expect((await data('v')).status).toBe(401);
      expect((await app.call('GET', `/api/views/${app.appId}/v/data`)).body).toMatchObject({ total: 2 });
      await create({}, { name: 'open', access_policy: { read: 'public' } });
      expect((await data('open')).body).toMatchObject({ total: 2 });
      expect((await data('v')).status).toBe(401);
    });

    test('a collection that views read is dropped by cascade, or not at all, and its name starts anew', async () => {
      await create({});
      await create({ aggregate: { n: { $count: '*' } } }, { name: 'w' });
      const drop = (more: object) =>
        app.call('DELETE', `/api/apps/${app.appId}/collections/films`, { force: true, ...more });
      expect(await drop({})).toMatchObject({
        status: 409,
        body: { code: 'COLLECTION_IN_USE', details: { used_by: ['view v', 'view w'] } },
      });
      expect(await after([{ id: 'c', g: 'y', n: 3 }])).toHaveLength(3);
      expect((await drop({ cascade: true })).status).toBe(200);
      for (const name of ['v', 'w']) expect((await data(name)).status).toBe(404);
      await app.store('films', [{ id: 'new', g: 'z' }]);
      await create({});
      expect((await data('v')).body.records).toEqual([{ id: 'new', g: 'z' }]);
      expect(await after([{ id: 'newer' }])).toHaveLength(2);
    });

    test('refreshed_at is the time from which the rows are', async () => {
      await create({});
      const first = (await data('v')).body.refreshed_at;
      await app.store('stars', [{ id: 'b' }]);
      expect((await data('v')).body.refreshed_at).toBe(first);
      await after([{ id: 'c' }]);
      const second = (await data('v')).body.refreshed_at;
      expect(Date.parse(second)).toBeGreaterThan(Date.parse(first));
      const shown = await app.call('GET', `/apps/${app.appId}/views/v`);
      expect(shown.body).toMatchObject({ refreshed_at: second, status: 'ready', refresh_mode: mode });
    });
  });
});
