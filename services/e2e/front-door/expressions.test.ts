import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('regular expressions (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    await app.store('films', [
      { id: 'alien', title: 'Alien', about: { text: 'In space\nno one can hear you scream' } },
      { id: 'aliens', title: 'Aliens', tags: ['Alien'] },
      { id: 'kelvin', title: '\u212aelvin' },
      { id: 'number', title: 1979 },
      { id: 'null', title: null },
      { id: 'none' },
    ]);
    const made = await app.call('POST', `/api/apps/${app.appId}/indexes`, {
      name: 'by_title',
      collection: 'films',
      field_name: 'title',
      index_type: 'btree',
    });
    expect(made.status).toBe(201);
  });
  afterAll(() => granary.stop());

  const idsOf = (records: Array<Record<string, unknown>>) => records.map(({ id }) => id);
  const found = async (find: object) => idsOf((await app.list('films', { find, sort: ['id'] })).body.records);
  const open = async (path: string) => send<{ records: Array<Record<string, unknown>> }>(granary.url, 'GET', path);

  test('match strings anywhere, between slashes too, and nothing but strings', async () => {
    expect(await found({ title: { regExpMatches: 'lien' } })).toEqual(['alien', 'aliens']);
    expect(await found({ title: { $regex: '^Alien$' } })).toEqual(['alien']);
    expect(await found({ title: { $regex: '/^alien/' } })).toEqual([]);
    expect(await found({ title: { $regex: '/^alien/i' } })).toEqual(['alien', 'aliens']);
    expect(await found({ title: { $regex: '(?i)^kELVIN$' } })).toEqual(['kelvin']);
    expect(await found({ title: { $regex: '' } })).toEqual(['alien', 'aliens', 'kelvin']);
    expect(await found({ title: { $regex: '1979' } })).toEqual([]);
    expect(await found({ tags: { $regex: 'Alien' } })).toEqual([]);
    expect(await found({ 'about.text': { $regex: 'space$' } })).toEqual([]);
    expect(await found({ 'about.text': { $regex: '(?m)space$' } })).toEqual(['alien']);
    expect(await found({ 'about.text': { $regex: 'space.no' } })).toEqual([]);
    expect(await found({ id: { $regex: '^n.[mn]' } })).toEqual(['none', 'number']);
  });

  test('are true or false for every document: not is the exact opposite', async () => {
    expect(await found({ not: [{ title: { $regex: '^A' } }] })).toEqual(['kelvin', 'none', 'null', 'number']);
  });

  test('are suffixes of a path, in a filter and in a URL', async () => {
    expect(await found({ 'title.$regex': 's$' })).toEqual(['aliens']);
    expect(await found({ 'title.$regExpMatches': 's$' })).toEqual(['aliens']);
    const path = `/api/apps/${app.appId}/collections/films/data`;
    for (const name of ['title.$regex', 'title.$regExpMatches']) {
      const answer = await open(`${path}?${name}=${encodeURIComponent('/^a.*,?S$/i')}`);
      expect(idsOf(answer.body.records)).toEqual(['aliens']);
    }
  });

  test('are operands of predefined queries and of the variables of views', async () => {
    const query = {
      name: 'like',
      source_collection: 'films',
      base_query: { find: { title: { $regex: '^A' } } },
      parameters: [{ name: 'title', field_path: 'title.$regex', default: 'n$' }],
    };
    expect((await app.call('POST', `/apps/${app.appId}/queries`, query)).status).toBe(201);
    const run = `/api/queries/${app.appId}/like/data`;
    expect(idsOf((await open(run)).body.records)).toEqual(['alien']);
    expect(idsOf((await open(`${run}?title=s$`)).body.records)).toEqual(['aliens']);
    expect((await open(`${run}?title=(`)).status).toBe(400);

    const view = {
      name: 'titles',
      query: { find: { title: { $regex: 'l' } }, select: ['id', 'title'] },
      source_collections: ['films'],
      variables: { title: 'title.$regex' },
    };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    const data = `/api/views/${app.appId}/titles/data`;
    expect(idsOf((await open(data)).body.records).sort()).toEqual(['alien', 'aliens', 'kelvin']);
    expect(idsOf((await open(`${data}?title=[^n]$`)).body.records)).toEqual(['aliens']);
  });

  test('are refused with the position of the first character that is wrong', async () => {
    const answer = await app.call<{ error: string; details: Record<string, string[]> }>('POST', '/list', {
      root: `${app.appId}::films`,
      find: { title: { $regex: 'a(?=b)' } },
    });
    expect(answer.status).toBe(400);
    expect(answer.body.details).toEqual({
      'find.title.$regex': [
        'is not a regular expression (RE2 syntax): at character 2, look-ahead and look-behind are not supported',
      ],
    });
  });
});
