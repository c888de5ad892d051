import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Refusal {
  error: string;
  code: string;
  details: Record<string, unknown>;
}

describe.each(transports)('types of fields (%s)', (transport) => {
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

  const index = (definition: object) =>
    app.call<Refusal>('POST', `${path}/indexes`, { collection: 'films', field_name: 'n', ...definition });
  const put = (fields: object, more: object = {}) =>
    app.call<Refusal>('PUT', `${path}/collections/films`, { schema_definition: { fields }, ...more });
  const total = async (query: string) =>
    (await send<{ total: number }>(granary.url, 'GET', `${path}/collections/films/data?${query}`)).body.total;

  describe('of the schema', () => {
    const fields = {
      ...{ n: { type: 'number' }, s: { type: 'string' }, d: { type: 'date' }, b: { type: 'boolean' } },
      ...{ a: { type: 'array' }, o: { type: 'object' } },
    };
    beforeEach(() => app.call('POST', `${path}/collections`, { name: 'films', schema_definition: { fields } }));

    test.each([
      ['n', ['string', 'boolean', 'date', 'fulltext', 'String']],
      ['s', ['number', 'boolean', 'date', 'price']],
      ['d', ['string', 'number', 'boolean', 'price']],
      ['b', ['string', 'number', 'date', 'price', 'fulltext']],
      ['a', ['string', 'number', 'price']],
      ['o', ['string', 'number', 'price', 'fulltext']],
    ])('are those of the indexes over them: over %s none is of type %j', async (field_name, types) => {
      for (const index_type of types) {
        const refused = await index({ name: 'x', field_name, index_type });
        expect(refused).toMatchObject({ status: 400, body: { code: 'VALIDATION_FAILED' } });
        expect(refused.body.error).toContain(`the schema says that ${field_name} is of type`);
        expect(Object.keys(refused.body.details)).toEqual(['index_type']);
      }
      expect((await app.call('GET', `${path}/indexes`)).body).toEqual([]);
    });

    test('are those of indexes that say the same, or nothing', async () => {
      await app.store('films', [{ id: '1', n: 5, s: 'x y', d: '2026-01-01T00:00:00Z', b: true, a: ['x'], o: {} }]);
      const made = [
        ...[{ index_type: 'number' }, { index_type: 'price' }, { index_type: 'btree' }, { index_type: 'hash' }],
        ...[
          { index_type: 'string', field_name: 's' },
          { index_type: 'fulltext', field_name: 's' },
        ],
        ...[
          { index_type: 'date', field_name: 'd' },
          { index_type: 'boolean', field_name: 'b' },
        ],
        ...[
          { index_type: 'fulltext', field_name: 'a' },
          { index_type: 'btree', field_name: 'o' },
        ],
        ...[
          { index_type: 'composite', fields: ['n', 's'] },
          { index_type: 'string', field_name: 'unknown' },
        ],
      ];
      for (const [at, definition] of made.entries()) {
        expect((await index({ name: `i${at}`, ...definition })).status).toBe(201);
      }
      expect(await total('n.$gte=5')).toBe(1);
    });

    test('cannot become others than those of indexes', async () => {
      await index({ name: 'by_title', field_name: 'title', index_type: 'string' });
      await index({ name: 'by_n', index_type: 'number' });
      const refused = await put({ title: { type: 'number' }, n: { type: 'number' } });
      expect(refused.body).toEqual({
        error: expect.stringContaining('the index by_title is of type string') as string,
        code: 'VALIDATION_FAILED',
        details: { 'schema_definition.fields.title.type': [expect.stringContaining('by_title') as string] },
      });
      expect((await put({ n: { type: 'string' } })).status).toBe(400);
      expect((await put({ title: { type: 'string' }, n: { type: 'number' } })).status).toBe(200);
    });
  });
});
