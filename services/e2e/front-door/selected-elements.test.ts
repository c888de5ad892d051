import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Records {
  records: object[];
}

describe.each(transports)('selected elements of arrays (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());

  test('stay in an array, in their places, by each entrance', async () => {
    app = await newApp(granary);
    await app.store('films', [
      { id: '1', a: { c: [{ d: 1, e: 2 }, { d: 3 }, { d: 4 }] }, tags: ['x', 'y', 'z'] },
      { id: '2', a: { c: [] }, tags: { 1: 'key' } },
    ]);
    const select = ['id', 'a.c.0.d', 'tags.1'];
    const expected = [
      { id: '1', a: { c: [{ d: 1 }] }, tags: [null, 'y'] },
      { id: '2', tags: { 1: 'key' } },
    ];
    const root = `${app.appId}::films`;
    const open = (path: string) => send<Records>(granary.url, 'GET', path);
    const api = `/api/apps/${app.appId}`;
    const sort = ['id'];
    expect((await app.call<Records>('POST', '/list', { root, find: {}, select, sort })).body.records).toEqual(expected);
    expect((await open(`${api}/collections/films/data?sort=id&select=${select.join()}`)).body.records).toEqual(
      expected,
    );
    const joins = { self: { model: 'films', many: false, resolve: { find: { id: '$data.id' }, select } } };
    const joined = await app.call<Records>('POST', '/list', { root, find: joins, select: ['id'], sort });
    expect(joined.body.records).toEqual(expected.map((self) => ({ id: self.id, self })));

    await app.call('POST', `/apps/${app.appId}/queries`, {
      name: 'q',
      source_collection: 'films',
      base_query: { select, sort },
    });
    expect((await open(`/api/queries/${app.appId}/q/data`)).body.records).toEqual(expected);
    for (const refresh_mode of ['lazy', 'live']) {
      const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, {
        name: refresh_mode,
        source_collections: ['films'],
        query: { select },
        refresh_mode,
      });
      expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
      const data = `/api/views/${app.appId}/${refresh_mode}/data?sort=id`;
      expect((await open(data)).body.records).toEqual(expected);
      const filter = encodeURIComponent(JSON.stringify({ 'tags.1': 'y' }));
      expect((await open(`${data}&filter=${filter}`)).body.records).toEqual(expected.slice(0, 1));
    }
    const more = { id: '3', tags: ['p', 'q'] };
    await app.store('films', [more]);
    expect((await open(`/api/views/${app.appId}/live/data?sort=-id`)).body.records[0]).toEqual({
      id: '3',
      tags: [null, 'q'],
    });
  });
});
