import { describedApp } from '../support/described-app';
import { borrowGranary, newApp, send, transports, type Answer, type Granary, type TestApp } from '../support/granary';

interface Parameter {
  $ref?: string;
  name: string;
  required: boolean;
  schema: Record<string, unknown>;
}
interface Operation {
  operationId: string;
  description?: string;
  security: unknown[];
  parameters: Parameter[];
  responses: Record<string, unknown>;
}
interface Document {
  openapi: string;
  info: { title: string; version: string; description: string };
  paths: Record<string, { get: Operation }>;
  components: {
    schemas: Record<string, { properties?: Record<string, unknown>; $ref?: string; 'x-granary-required'?: string[] }>;
    responses: unknown;
    headers: unknown;
  };
}

interface Page {
  properties: { records: { items: { properties: object; 'x-granary-required': string[] } } };
}

const byIndex = expect.stringContaining('Indexed') as unknown;

describe.each(transports)('the OpenAPI document of an app (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await describedApp(granary);
  });
  afterAll(() => granary.stop());

  const path = (appId = app.appId) => `/api/apps/${appId}/openapi.json`;
  const read = (headers: Record<string, string> = {}): Promise<Answer<Document>> =>
    send<Document>(granary.url, 'GET', path(), { headers });
  const get = async (of: string, key?: string) =>
    (await read(key === undefined ? {} : { 'x-app-key': key })).body.paths[of]!.get;
  const typed = ({ parameters }: Operation) =>
    Object.fromEntries(parameters.filter((one) => !one.$ref).map(({ name, schema }) => [name, schema]));

  test('describes the documents of collections: fields by schema and index, dotted ones nested', async () => {
    const { status, headers, body, text } = await read();
    expect(status).toBe(200);
    expect(headers.get('content-type')).toBe('application/json; charset=utf-8');
    expect([body.openapi, body.info.title]).toEqual(['3.1.0', 'Test']);
    expect(body.components.schemas['films']!.properties).toEqual({
      title: { type: 'string', minLength: 1, maxLength: 200, pattern: '^[^ ]' },
      year: { type: ['number', 'null'], minimum: 1888, maximum: 9007199254740992 },
      rating: { type: ['string', 'null'], enum: ['G', 'PG', 'R', null], default: 'G' },
      seen: { type: ['boolean', 'null'] },
      studio: {
        type: ['object', 'null'],
        properties: {
          city: { type: ['string', 'null'] },
          founded: { type: ['string', 'null'], format: 'date-time' },
        },
        'x-granary-required': [],
      },
      tags: { type: ['array', 'null'], maxItems: 20, description: 'Words' },
      limit: { type: ['number', 'null'] },
      odd: { type: ['string', 'null'] },
      shown: {
        type: ['object', 'null'],
        properties: {
          at: { type: ['string', 'null'], format: 'date-time', description: byIndex },
        },
        'x-granary-required': [],
      },
      "it's any": { description: byIndex },
      id: { type: 'string', description: 'Unique in the collection' },
    });
    expect(text).toContain('"maximum":9007199254740993');
  });

  test('types the parameters of endpoint 3, of views and of predefined queries', async () => {
    const { appId } = app;
    expect(typed(await get(`/api/apps/${appId}/collections/films/data`))).toEqual({
      id: { type: 'string' },
      year: { type: 'number' },
      seen: { type: 'boolean' },
      'studio.city': { type: 'string' },
      'limit.$eq': { type: 'number' },
      'shown.at': { type: 'string', format: 'date-time' },
      "it's any": { type: ['string', 'number', 'boolean'] },
    });
    expect(typed(await get(`/api/views/${appId}/per_year/data`))).toEqual({
      since: { type: 'number' },
      films: { type: 'number' },
    });
    const query = await get(`/api/queries/${appId}/films_of/data`);
    expect(query.description).toBe('Films of some studios');
    expect(typed(query)).toEqual({
      since: { type: 'number', default: 1990 },
      in: { type: 'string' },
      top: { type: 'integer', minimum: 1, maximum: 50, default: 5 },
      limit: { type: 'integer', minimum: 1, maximum: 50, default: 50 },
    });
    expect(query.parameters.find(({ name }) => name === 'in')).toMatchObject({ required: true });
    expect(query.parameters).toContainEqual({ $ref: '#/components/parameters/version' });
  });

  test('says that each page has an ETag, and is spared where If-None-Match names it', async () => {
    const { body } = await read();
    expect(body.components.headers).toHaveProperty('ETag');
    expect(body.components.responses).toMatchObject({ Unchanged: { headers: { ETag: expect.anything() as unknown } } });
    for (const path of Object.keys(body.paths)) {
      const { parameters, responses } = await get(path);
      expect(parameters).toContainEqual({ $ref: '#/components/parameters/ifNoneMatch' });
      expect(responses).toMatchObject({
        200: { headers: { ETag: { $ref: '#/components/headers/ETag' } } },
        304: { $ref: '#/components/responses/Unchanged' },
      });
    }
  });

  test('describes the rows of views', async () => {
    const { schemas } = (await read()).body.components;
    expect(schemas['per_year']!.properties).toEqual({
      year: { type: ['number', 'null'] },
      studio: { type: 'object', properties: { city: { type: ['string', 'null'] } }, 'x-granary-required': ['city'] },
      films: { type: 'integer', minimum: 0 },
      best: { type: ['string', 'null'] },
    });
    expect(schemas['old']).toEqual({ $ref: '#/components/schemas/films' });
  });

  test('says which members each record has, of documents, of rows, and of what a query selects', async () => {
    const own = await newApp(granary);
    const api = `/api/apps/${own.appId}`;
    const fields = {
      title: { type: 'string', required: true },
      year: { type: 'number', index: true },
      'studio.city': { type: 'string', required: true },
      'studio.founded': { type: 'date' },
      rating: { type: 'string', required: true, default: 'G' },
    };
    await own.call('POST', `${api}/collections`, { name: 'films', schema_definition: { fields } });
    await own.call('POST', `${api}/collections`, { name: 'loose' });
    await own.store('films', [{ id: 'heat', title: 'Heat', studio: { city: 'Burbank' } }]);
    const ofFilms = { source_collection: 'films' };
    const studio = { select: ['title', 'year', 'studio.founded', 'notes'] };
    await own.call('POST', `${api}/queries`, { name: 'some', ...ofFilms, base_query: studio });
    await own.call('POST', `${api}/queries`, { name: 'others', ...ofFilms, base_query: { select: { title: false } } });
    const counted = { group_by: ['year', 'rating'], aggregate: { films: { $count: '*' } }, select: ['year'] };
    await own.call('POST', `${api}/views`, { name: 'counted', source_collections: ['films'], query: counted });
    await own.call('POST', `${api}/views`, { name: 'titles', source_collections: ['films'], query: studio });

    const { paths, components } = (await send<Document>(granary.url, 'GET', path(own.appId))).body;
    const { films, loose, counted: row, titles } = components.schemas;
    expect(films).toMatchObject({
      properties: { studio: { type: 'object', 'x-granary-required': ['city'] } },
      'x-granary-required': ['title', 'studio', 'id'],
    });
    expect(loose).toEqual({ type: 'object', properties: { id: expect.anything() as unknown } });
    expect(row).toEqual({
      type: 'object',
      properties: { year: { type: ['number', 'null'] }, films: { type: 'integer', minimum: 0 } },
      'x-granary-required': ['year', 'films'],
    });
    const record = (name: string) => {
      const { responses } = paths[`/api/queries/${own.appId}/${name}/data`]!.get;
      const page = responses['200'] as { content: { 'application/json': { schema: { allOf: [object, Page] } } } };
      return page.content['application/json'].schema.allOf[1].properties.records.items;
    };
    const ofSome = {
      type: 'object',
      properties: {
        title: { type: 'string' },
        year: { type: ['number', 'null'] },
        studio: {
          type: ['object', 'null'],
          properties: { founded: { type: ['string', 'null'], format: 'date-time' } },
          'x-granary-required': [],
        },
        notes: {},
      },
      'x-granary-required': ['title'],
    };
    expect(record('some')).toEqual(ofSome);
    expect(titles).toEqual(ofSome);
    expect(Object.keys(record('others').properties)).toEqual(['year', 'studio', 'rating', 'id']);
    expect(record('others')['x-granary-required']).toEqual(['studio', 'id']);
  });

  test('answers every path that it describes, in public and with a key', async () => {
    for (const key of [undefined, app.key]) {
      const { body } = await read(key === undefined ? {} : { 'x-app-key': key });
      for (const of of Object.keys(body.paths)) {
        const answer = await send(granary.url, 'GET', `${of}?${of.includes('films_of') ? 'in=Burbank&top=2' : ''}`, {
          key,
        });
        expect([of, answer.status]).toEqual([of, 200]);
      }
    }
  });

  test('shows what is private, and what of it is shown in public, only with Read', async () => {
    const other = await newApp(granary);
    const writer = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'writer',
      permissions: ['Write'],
    });
    for (const headers of [{}, { 'x-app-key': other.key }, { 'x-app-key': writer.body.app_key }]) {
      const { text, body } = await read(headers);
      expect(Object.keys(body.paths)).toEqual([
        `/api/apps/${app.appId}/collections/films/data`,
        ...['old', 'per_year', 'shown_view'].map((view) => `/api/views/${app.appId}/${view}/data`),
        `/api/queries/${app.appId}/films_of/data`,
      ]);
      // The columns of a public view are public, but not what else its private source has.
      expect(text).not.toMatch(/vault|hidden|appKey/);
      expect(body.components.schemas['shown_view']!.properties).toMatchObject({ secret_field: {} });
    }
    const { body } = await read({ 'x-app-key': app.key });
    expect(Object.keys(body.paths)).toHaveLength(8);
    expect(body.components.schemas['vault']!.properties).toHaveProperty('secret_field');
    expect((await get(`/api/queries/${app.appId}/hidden_query/data`, app.key)).security).toEqual([{ appKey: [] }]);
    expect((await get(`/api/queries/${app.appId}/films_of/data`, app.key)).security).toEqual([]);
    expect(await read({ 'x-app-key': 'app_unknown' })).toMatchObject({ status: 401 });
  });

  test('is revalidated by its ETag, and follows every change of the catalog', async () => {
    const own = await describedApp(granary);
    const state = (etag?: string) =>
      send<Document>(
        granary.url,
        'GET',
        path(own.appId),
        etag === undefined ? {} : { headers: { 'if-none-match': etag } },
      );
    const etagNow = async () => (await state()).headers.get('etag')!;
    let etag = await etagNow();
    expect(await state(etag)).toMatchObject({ status: 304, text: '' });
    const api = `/api/apps/${own.appId}`;
    const changes = [
      () => own.call('POST', `${api}/collections`, { name: 'books' }),
      () =>
        own.call('POST', `${api}/indexes`, {
          name: 'i',
          collection: 'books',
          field_name: 'isbn',
          index_type: 'string',
        }),
      () =>
        own.call('POST', `${api}/queries`, {
          name: 'films_of',
          version: 3,
          source_collection: 'films',
          base_query: {},
        }),
      () => own.call('DELETE', `${api}/queries/films_of?version=3`),
      () => own.call('PUT', `${api}/collections/films`, { access_policy: { read: 'private' } }),
      () => own.call('DELETE', `${api}/views/per_year`),
    ];
    for (const change of changes) {
      expect((await change()).status).toBeLessThan(300);
      expect((await state(etag)).status).toBe(200);
      etag = await etagNow();
      expect((await state(etag)).status).toBe(304);
    }
    expect(Object.keys((await state()).body.paths)).not.toContain(`${api}/collections/films/data`);
  });

  test('is 404 for an app that does not exist, linked from the skills document, and valid for an app without anything', async () => {
    expect(await send(granary.url, 'GET', path('nobody'))).toMatchObject({
      status: 404,
      body: { code: 'APP_NOT_FOUND' },
    });
    const skills = await send(granary.url, 'GET', `/api/skills/${app.appId}/skills.md`);
    expect(skills.text).toContain(path());
    const empty = await newApp(granary);
    expect((await send<Document>(granary.url, 'GET', path(empty.appId))).body).toMatchObject({ paths: {} });
  });
});
