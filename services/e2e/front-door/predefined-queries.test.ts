import { borrowGranary, newApp, send, transports, type Answer, type Granary, type TestApp } from '../support/granary';

interface Query {
  name: string;
  version: string;
  versions: string[];
  access_policy: { read: string };
  [more: string]: unknown;
}
interface Page {
  records: Array<Record<string, unknown>>;
  total: number;
  limit: number;
}

describe.each(transports)('predefined queries (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store(
      'films',
      [1988, 1995, 1998, 1999].map((year) => ({ id: `f${year}`, year, title: `Film ${year}`, limit: year })),
    );
  });

  const path = () => `/apps/${app.appId}/queries`;
  const create = (definition: object) =>
    app.call<Query>('POST', path(), { name: 'films', source_collection: 'films', base_query: {}, ...definition });
  const run = (more = '', name = 'films'): Promise<Answer<Page>> =>
    send(granary.url, 'GET', `/api/queries/${app.appId}/${name}/data?${more}`);
  const ids = async (more = '') => (await run(more)).body.records?.map(({ id }) => id);
  const since = (year: number) => ({ base_query: { find: { year: { gte: year } }, sort: ['year'] } });

  describe('versions', () => {
    test('stand beside each other; the one that was created last is run, or that of ?version=', async () => {
      for (const [version, year] of [
        ['2', 1998],
        ['10', 1999],
        ['1', 1995],
      ] as const) {
        const made = await create({ version, ...since(year) });
        expect(made).toMatchObject({ status: 201, body: { name: 'films', version } });
      }
      expect(await ids()).toEqual(['f1995', 'f1998', 'f1999']);
      expect(await ids('version=10')).toEqual(['f1999']);
      expect(await ids('version=2')).toEqual(['f1998', 'f1999']);
      // It was run a moment ago, and yet the new one is run at once.
      await create({ version: '3', ...since(1999) });
      expect(await ids()).toEqual(['f1999']);
      for (const none of ['4', '', '1.0', 'x'.repeat(101)]) {
        expect(await run(`version=${none}`)).toMatchObject({ status: 404, body: { code: 'QUERY_NOT_FOUND' } });
      }
    });

    test('are taken once: the same one again is 409 and changes nothing', async () => {
      expect((await create({ version: '1', ...since(1998) })).status).toBe(201);
      for (const version of ['1', 1]) {
        expect(await create({ version, ...since(1999) })).toMatchObject({
          status: 409,
          body: { code: 'ALREADY_EXISTS', error: expect.stringContaining('already exists') as unknown },
        });
      }
      expect(await ids()).toEqual(['f1998', 'f1999']);
      expect((await create({ ...since(1999) })).status).toBe(201);
      for (const version of [undefined, null, '']) expect((await create({ version })).status).toBe(409);
      expect(await ids()).toEqual(['f1999']);
      expect(await ids('version=')).toEqual(['f1999']);
    });

    test('may be sent as numbers, whose text stays as it was written', async () => {
      const body = (version: string) =>
        `{"name":"films","source_collection":"films","base_query":{},"version":${version}}`;
      for (const [given, text] of [
        ['1.10', '1.10'],
        ['1.1', '1.1'],
        ['9007199254740993', '9007199254740993'],
        ['"2026-01"', '2026-01'],
      ] as const) {
        const made = await app.call<Query>('POST', path(), body(given));
        expect(made).toMatchObject({ status: 201, body: { version: text } });
        expect((await run(`version=${text}`)).status).toBe(200);
      }
      for (const wrong of ['true', '[1]', '{}', `"${'v'.repeat(101)}"`]) {
        expect((await app.call('POST', path(), body(wrong))).status).toBe(400);
      }
    });

    test('are shown by GET and in the list, the newest first', async () => {
      for (const version of ['1', '2', '1.5']) await create({ version, description: `That is ${version}` });
      const shown = async (more = '') => (await app.call<Query>('GET', `${path()}/films${more}`)).body;
      expect(await shown()).toMatchObject({ version: '1.5', versions: ['1.5', '2', '1'], description: 'That is 1.5' });
      expect(await shown('?version=1')).toMatchObject({ version: '1', description: 'That is 1' });
      expect(await shown('?version=3')).toMatchObject({ code: 'QUERY_NOT_FOUND' });
      await create({ name: 'all' });
      const { body } = await send<{ queries: Query[] }>(granary.url, 'GET', path());
      expect(body.queries.map(({ name, version, versions }) => [name, version, versions])).toEqual([
        ['all', '', ['']],
        ['films', '1.5', ['1.5', '2', '1']],
      ]);
      const skills = await send(granary.url, 'GET', `/api/skills/${app.appId}/skills.md`);
      expect(skills.text.match(/That is .*/g)).toEqual([expect.stringContaining('That is 1.5')]);
    });

    test('are deleted one by one, the one before is the newest then, or all together', async () => {
      for (const [version, year] of [
        ['1', 1998],
        ['2', 1999],
      ] as const) {
        await create({ version, ...since(year) });
      }
      expect(await ids()).toEqual(['f1999']);
      const gone = (more: string) => app.call('DELETE', `${path()}/films${more}`);
      expect(await gone('?version=3')).toMatchObject({ status: 404, body: { code: 'QUERY_NOT_FOUND' } });
      expect((await gone('?version=2')).status).toBe(200);
      expect(await ids()).toEqual(['f1998', 'f1999']);
      expect((await run('version=2')).status).toBe(404);
      await create({ version: '3' });
      expect((await gone('')).status).toBe(200);
      for (const more of ['', 'version=1', 'version=3']) expect((await run(more)).status).toBe(404);
      expect((await create({ version: '1' })).body.versions).toEqual(['1']);
    });

    test('go with the collection that they read, and only they', async () => {
      await app.store('books', [{ id: 'b' }]);
      await create({ version: '1' });
      await create({ version: '2', source_collection: 'books' });
      const drop = (collection: string, body: object) =>
        app.call('DELETE', `/api/apps/${app.appId}/collections/${collection}`, { force: true, ...body });
      expect(await drop('books', {})).toMatchObject({ status: 409, body: { details: { used_by: ['query films'] } } });
      expect((await drop('books', { cascade: true })).status).toBe(200);
      expect((await run()).body.total).toBe(4);
    });
  });

  describe('a parameter', () => {
    test('with the path limit is the limit of the page, with a default and bounded', async () => {
      const page = async (more: string, name?: string) => {
        const { status, body } = await run(more, name);
        return status === 200 ? [body.records.length, body.limit, body.total] : status;
      };
      const made = await create({
        base_query: { limit: 3 },
        parameters: [{ name: 'top', field_path: 'limit', default: 2 }],
      });
      expect(made.status).toBe(201);
      expect(await page('')).toEqual([2, 2, 4]);
      expect(await page('top=1')).toEqual([1, 1, 4]);
      expect(await page('top=3')).toEqual([3, 3, 4]);
      expect(await page('limit=1')).toEqual([1, 1, 4]);
      for (const more of ['top=4', 'top=0', 'top=x', 'top=1.5', 'top=', 'top=-1', 'top=1&limit=1']) {
        expect(await page(more)).toBe(400);
      }
      // As it is documented: a parameter of this name.
      const parameters = [
        { name: 'limit', field_path: 'limit', required: true },
        { name: 'of', field_path: 'limit.$eq' },
      ];
      expect((await create({ name: 'named', parameters })).status).toBe(201);
      expect(await page('', 'named')).toBe(400);
      expect(await page('limit=1', 'named')).toEqual([1, 1, 4]);
      expect(await page('limit=5&of=1995', 'named')).toEqual([1, 5, 1]);
      expect(await page('limit=10001', 'named')).toBe(400);
    });

    test.each(['limit', 'offset', 'cursor', 'count', 'version'])('of the name %s cannot be a filter', async (name) => {
      expect(await create({ parameters: [{ name, field_path: 'year' }] })).toMatchObject({
        status: 400,
        body: { code: 'INVALID_QUERY', error: expect.stringContaining(name) as unknown },
      });
    });
  });

  test('the public list leaves out the definitions of private queries, which a key with Read is shown', async () => {
    const definition = { description: 'Whom we owe', base_query: { find: { secret: { gt: 41 } } }, version: '7' };
    await app.call('POST', `/api/apps/${app.appId}/collections`, { name: 'debts', access_policy: { read: 'private' } });
    await create({ ...definition, name: 'of_private', source_collection: 'debts' });
    await create({ ...definition, name: 'private', access_policy: { read: 'private' } });
    await create({ ...definition, name: 'shown', source_collection: 'debts', access_policy: { read: 'public' } });
    await create({ ...definition, name: 'usual' });
    const listed = async (headers: Record<string, string>) => {
      const answer = await send<{ queries: Query[] }>(granary.url, 'GET', path(), { headers });
      return new Map(answer.body.queries.map((query) => [query.name, query]));
    };
    const other = await newApp(granary);
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'writer',
      permissions: ['Write'],
    });
    for (const key of [undefined, other.key, made.body.app_key]) {
      const queries = await listed(key === undefined ? {} : { 'x-app-key': key });
      for (const name of ['of_private', 'private']) {
        expect(queries.get(name)).toEqual({
          name,
          version: '7',
          versions: ['7'],
          access_policy: { read: 'private' },
          created_at: expect.any(String) as unknown,
        });
      }
      for (const name of ['shown', 'usual']) expect(queries.get(name)).toMatchObject(definition);
    }
    const queries = await listed({ 'x-app-key': app.key });
    expect([...queries.values()]).toEqual(
      ['of_private', 'private', 'shown', 'usual'].map(
        (name) => expect.objectContaining({ name, ...definition }) as unknown,
      ),
    );
    const skills = await send(granary.url, 'GET', `/api/skills/${app.appId}/skills.md`);
    expect(skills.text.match(/Whom we owe/g)).toHaveLength(2);
    expect(skills.text).toContain(`/api/apps/${app.appId}/queries/of_private`);
  });
});
