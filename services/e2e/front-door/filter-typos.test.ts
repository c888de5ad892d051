import { borrowGranary, newApp, transports, type Answer, type Granary, type TestApp } from '../support/granary';

interface Hint {
  code: string;
  field: string;
  message: string;
}
interface Page {
  records: object[];
  hints?: Hint[];
}

describe.each(transports)('misspelt filters (%s)', (transport) => {
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
    const fields = {
      title: { type: 'string', index: true },
      minutes: { type: 'number', index: true },
      vegan: { type: 'boolean' },
      tags: { type: 'array' },
    };
    const collection = { name: 'recipes', schema_definition: { fields } };
    expect((await app.call('POST', `${path}/collections`, collection)).status).toBe(201);
    await app.store('recipes', [
      { id: 'a', title: 'Soup', minutes: 5, vegan: true, tags: ['hot'], author: { name: 'Ada' } },
    ]);
    await app.store('notes', [{ id: 'n', minutes: 5, text: 'x', author: { name: 'Ada' } }]);
  });

  const list = (collection: string, find: unknown, more = {}) =>
    app.call<Page>('POST', '/list', { root: `${app.appId}::${collection}`, find, ...more });
  const errorOf = async (answer: Promise<Answer<unknown>>): Promise<string> => {
    const { status, body } = (await answer) as Answer;
    expect([status, body['code']]).toEqual([400, 'INVALID_QUERY']);
    return body['error'] as string;
  };

  test.each<[object, string]>([
    [{ minutes: { greater: 5 } }, 'has no members: did you mean the operator greaterThan?'],
    [{ minutes: { gret: 5 } }, 'did you mean the operator gte?'],
    [{ minutes: { $gtt: 5 } }, 'is not a known operator: did you mean $gt?'],
    [{ minutes: { great: { than: 5 } } }, 'has no members'],
    [{ minutes: '5' }, 'minutes must be compared with a number, which "5" is not'],
    [{ minutes: { in: [5, '6'] } }, '"6" is not'],
    [{ minutes: { between: ['4', 6] } }, '"4" is not'],
    [{ minutes: { isNot: true } }, 'true is not'],
    [{ minutes: { startsWith: '5' } }, 'minutes is a number, and the operator compares text'],
    [{ minutes: { contains: 5 } }, 'minutes is a number'],
    [{ vegan: 'true' }, 'vegan must be compared with true or false'],
    [{ title: 7 }, 'title must be compared with a string'],
    [{ title: { contains: 7 } }, 'title is a string'],
    [{ title: { gt: false } }, 'title must be compared with a string'],
    [{ or: [{ title: 'Soup' }, { not: [{ minutes: 'x' }] }] }, 'minutes must be'],
  ])('%j compares a declared field with what it never is, and is refused everywhere', async (find, sentence) => {
    expect(await errorOf(list('recipes', find))).toContain(sentence);
    expect(await errorOf(app.call('POST', `${path}/collections/recipes/explain`, { query: { find } }))).toContain(
      sentence,
    );
    const query = { name: 'q', source_collection: 'recipes', base_query: { find }, parameters: [] };
    expect(await errorOf(app.call('POST', `${path}/queries`, query))).toContain(sentence);
    const view = { name: 'v', source_collections: ['recipes'], query: { find } };
    expect(await errorOf(app.call('POST', `${path}/views`, view))).toContain(sentence);
    const joined = { recipes: { model: 'recipes', resolve: { find } } };
    expect(await errorOf(list('notes', joined))).toContain(sentence);
    const update = { operation: 'update', collection: 'recipes', data: { id: 'a', minutes: 6 }, conditions: find };
    expect(await errorOf(app.call('POST', `${path}/batch`, { operations: [update], atomic: true }))).toContain(
      sentence,
    );
    const { body } = await app.call('GET', `${path}/collections/recipes/documents/a`);
    expect(body['minutes']).toBe(5);
  });

  test('what a declared field can be is answered as before', async () => {
    const finds = [
      { minutes: 5 },
      { minutes: { gte: 5.0 } },
      { minutes: { in: [5, null] } },
      { minutes: { isNull: false } },
      { vegan: true },
      { title: { startsWith: 'So' } },
      { title: { regExpMatches: '^S' } },
      { tags: { contains: 'hot' } },
      { 'tags.0': 'hot' },
      { 'author.name': 'Ada' },
      { id: 'a' },
      {},
      null,
    ];
    for (const find of finds) {
      const { status, body } = await list('recipes', find);
      expect({ find, status, records: body.records?.length }).toEqual({ find, status: 200, records: 1 });
    }
  });

  test.each<[string, object, string, string | undefined]>([
    ['recipes', { minuts: 5 }, 'minuts', 'did you mean minutes?'],
    ['notes', { txet: 'x' }, 'txet', 'did you mean text?'],
    ['notes', { 'author.nam': 'Ada' }, 'author.nam', 'did you mean author.name?'],
    ['notes', { minutes: { greatr: 5 } }, 'minutes.greatr', undefined],
    ['notes', { minutes: { gtee: 5 } }, 'minutes.gtee', 'did you mean minutes.$gt'],
    ['notes', { zzzzzz: 5 }, 'zzzzzz', undefined],
  ])('an empty answer of %s to %j says which field is known nowhere', async (collection, find, field, suggestion) => {
    const { status, body } = await list(collection, find);
    expect([status, body.records]).toEqual([200, []]);
    expect(body.hints).toMatchObject([{ code: 'UNKNOWN_FIELD', field }]);
    const { message } = body.hints![0]!;
    if (suggestion === undefined) expect(message).not.toContain('did you mean m');
    else expect(message).toContain(suggestion);
    const explained = await app.call<{ hints: Hint[] }>('POST', `${path}/collections/${collection}/explain`, {
      query: { find },
    });
    expect(explained.body.hints).toContainEqual(body.hints![0]);
  });

  test('an answer that is empty for another reason, or not empty, has no hints', async () => {
    for (const find of [{ minutes: 6 }, { 'author.name': 'Bob' }, { id: 'z' }, { author: 5 }]) {
      const { body } = await list('recipes', find);
      expect([body.records, 'hints' in body]).toEqual([[], false]);
    }
    expect('hints' in (await list('recipes', { not: [{ minuts: 5 }] })).body).toBe(false);
    expect('hints' in (await list('recipes', { minuts: 5 }, { offset: 3 })).body).toBe(false);
    await app.call('POST', `${path}/collections`, { name: 'nothing' });
    expect('hints' in (await list('nothing', { minuts: 5 })).body).toBe(false);
  });

  test('the rows of a view are hinted at, and a public query names no field that it does not show', async () => {
    const view = { name: 'all', source_collections: ['notes'], query: {} };
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/views`, view);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    const filter = encodeURIComponent(JSON.stringify({ txet: 'x' }));
    const rows = await app.call<Page>('GET', `/api/views/${app.appId}/all/data?filter=${filter}`);
    expect(rows.body.hints?.[0]?.message).toContain('did you mean text?');
    const base = { find: { txet: 'x' }, select: ['id'] };
    const query = { name: 'q', source_collection: 'notes', base_query: base, parameters: [] };
    expect((await app.call('POST', `${path}/queries`, query)).status).toBe(201);
    const open = (await fetch(`${granary.url}/api/queries/${app.appId}/q/data`).then((answer) =>
      answer.json(),
    )) as Page;
    expect(open.hints).toMatchObject([{ code: 'UNKNOWN_FIELD', field: 'txet' }]);
    expect(open.hints![0]!.message).not.toContain('text?');
  });

  test.each([
    ['minutes.gte=5', 'write minutes.$gte=…'],
    ['minutes[gte]=5', 'write minutes.$gte=…'],
    ['minutes__gte=5', 'write minutes.$gte=…'],
    ['minutes_gte=5', 'write minutes.$gte=…'],
    ['page=2', 'write offset=…'],
    ['minuts=5', 'did you mean minutes?'],
    ['limt=5', 'did you mean limit?'],
    ['toString=5', undefined],
  ])('the parameter %s is told the spelling that works', async (parameter, sentence) => {
    const { status, body } = await app.call('GET', `${path}/collections/recipes/data?${parameter}`);
    expect([status, body['code']]).toEqual([400, 'FIELD_NOT_INDEXED']);
    if (sentence === undefined) expect(body['error']).toMatch(/indexed field of recipes$/);
    else expect(body['error']).toContain(sentence);
  });

  test('a list in a URL may be a JSON array, whose values have commas and keep their types', async () => {
    await app.store('recipes', [{ id: 'b', title: 'Soup, hot', minutes: 7 }]);
    const read = async (query: string) => {
      const { status, body } = await app.call<{ records: Array<{ id: string }> }>(
        'GET',
        `${path}/collections/recipes/data?sort=id&${query}`,
      );
      return status === 200 ? body.records.map(({ id }) => id).join('') : status;
    };
    const list = (...values: unknown[]) => encodeURIComponent(JSON.stringify(values));
    expect(await read(`title.$in=${list('Soup, hot')}`)).toBe('b');
    expect(await read(`title.$in=${list('Soup', 'Soup, hot')}`)).toBe('ab');
    expect(await read(`title.$nin=${list('Soup, hot')}`)).toBe('a');
    expect(await read(`minutes.$in=${list(5, 7.0)}`)).toBe('ab');
    expect(await read('minutes.$in=5,7')).toBe('ab');
    expect(await read(`minutes.$in=${list('5')}`)).toBe(400);
    expect(await read(`title.$in=${list(5)}`)).toBe(400);
    expect(await read(`title.$in=${list()}`)).toBe('');
    expect(await read('title.$in=[Soup,Stew')).toBe('');
  });

  test.each<[string, object]>([
    ['a field without operators', { title: {} }],
    ['one in or', { or: [{ title: {} }] }],
    ['one in not', { not: [{ title: {} }] }],
    ['an empty condition in or', { or: [{}] }],
    ['a nested field without operators', { author: { name: {} } }],
    ['one of a join', { others: { model: 'notes', resolve: { find: { text: {} } } } }],
  ])('%s would match everything, and is refused', async (_, find) => {
    expect(await errorOf(list('recipes', find))).toMatch(/has no operators|is empty/);
    expect((await list('recipes', { author: { is: {} } })).status).toBe(200);
  });

  test.each([[null], [{}], [{ title: {} }], [{ title: undefined }], [[]], [true]])(
    'a change under the conditions %j is refused, for they guard nothing',
    async (conditions) => {
      for (const operation of ['update', 'delete']) {
        const change = { operation, collection: 'recipes', data: { id: 'a', minutes: 6 }, conditions };
        expect(await errorOf(app.call('POST', `${path}/batch`, { operations: [change] }))).toContain('conditions');
      }
      const { body } = await app.call('GET', `${path}/collections/recipes/documents/a`);
      expect(body['minutes']).toBe(5);
    },
  );
});
