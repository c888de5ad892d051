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

  describe('change', () => {
    const indexed = (type: string) => ({ n: { type, index: true } });
    beforeEach(async () => {
      const schema_definition = { fields: indexed('number') };
      await app.call('POST', `${path}/collections`, { name: 'films', schema_definition });
    });

    test('only where stored documents have the new type; a refusal counts those that do not, and changes nothing', async () => {
      await app.store('films', [
        { id: 'a', n: 5 },
        { id: 'b', n: 7, title: 'Heat' },
        { id: 'c', n: null, title: 'Ronin' },
        { id: 'd' },
        { id: 'e', n: 1, deleted: true },
      ]);
      const refused = await put({ ...indexed('string'), title: { type: 'string' } }, { namespace: 'other' });
      expect(refused).toMatchObject({
        status: 409,
        body: { code: 'DOCUMENTS_DO_NOT_FIT', details: { count: 2, ids: ['a', 'b'] } },
      });
      expect(refused.body.error).toContain('2 documents do not have n of type string: "a", "b".');
      const kept = await app.call('GET', `${path}/collections/films`);
      expect(kept.body).toMatchObject({ namespace: null, schema_definition: { fields: indexed('number') } });
      expect(await total('n=5')).toBe(1);

      // A field that had no type has one now.
      expect((await put({ title: { type: 'number' } })).body.details).toEqual({ count: 2, ids: ['b', 'c'] });
      expect((await put({ ...indexed('number'), title: { type: 'string' } })).status).toBe(200);
      // Other rules than types are for documents to come.
      expect((await put({ n: { type: 'number', index: true, required: true, validation: { min: 6 } } })).status).toBe(
        200,
      );
      await app.store(
        'films',
        ['a', 'b'].map((id) => ({ id, n: 8 })),
      );
      await put(indexed('number'));
      await app.store(
        'films',
        ['a', 'b'].map((id) => ({ id, deleted: true })),
      );
      expect((await put(indexed('string'))).status).toBe(200);
    });

    test('by force, and the answer says how many documents do not fit', async () => {
      await app.store(
        'films',
        Array.from({ length: 12 }, (_, n) => ({ id: `f${n}`, n: n % 3 === 0 ? null : n })),
      );
      const refused = await put(indexed('string'));
      expect(refused.body.details).toMatchObject({ count: 8 });
      expect(refused.body.details['ids']).toHaveLength(5);
      const forced = await put(indexed('string'), { force: true });
      expect(forced).toMatchObject({ status: 200, body: { unfit_documents: 8 } });
      expect(forced.body).toMatchObject({ schema_definition: { fields: indexed('string') } });
      expect((await put(indexed('string'), { force: true })).body).toMatchObject({ unfit_documents: 0 });
      expect((await put(indexed('string'))).body).not.toHaveProperty('unfit_documents');
    });

    test('of nested fields and dates, and of more documents than are read at once', async () => {
      await app.store(
        'films',
        Array.from({ length: 1_200 }, (_, n) => ({ id: `f${n}`, at: { day: `2026-01-0${(n % 9) + 1}` } })),
      );
      await app.store('films', [{ id: 'z', at: { day: '2026-01-01T00:00:00+01:00' } }]);
      const refused = await put({ 'at.day': { type: 'date' } });
      expect(refused.body).toMatchObject({ code: 'DOCUMENTS_DO_NOT_FIT', details: { count: 1_200 } });
      expect(refused.body.error).toContain('at.day of type date');
      expect((await put({ at: { type: 'object' }, 'at.day': { type: 'string' } })).status).toBe(200);
    });

    test('while documents are written: none is stored that does not fit', async () => {
      let writes = 0;
      const writing = async (writer: number) => {
        for (let n = 0; n < 15; n += 1) {
          const { status } = await app.call('POST', '/store', {
            root: `${app.appId}::films`,
            data: [{ id: `w${writer}`, n: writer % 2 === 0 ? n : 'text' }],
          });
          if (status === 202) writes += 1;
        }
      };
      const changing = async () => {
        for (let n = 0; n < 15; n += 1) await put(indexed(n % 2 === 0 ? 'string' : 'number'));
      };
      await Promise.all([writing(0), writing(1), writing(2), writing(3), changing()]);
      expect(writes).toBeGreaterThan(0);
      const { body } = await app.call<{ schema_definition: { fields: { n: { type: string } } } }>(
        'GET',
        `${path}/collections/films`,
      );
      const { type } = body.schema_definition.fields.n;
      const stored = await app.call<{ records: Array<{ n: unknown }> }>('POST', '/list', {
        root: `${app.appId}::films`,
        find: {},
      });
      expect(stored.body.records.map(({ n }) => typeof n)).toEqual(stored.body.records.map(() => type));
    });

    test('by force leaves documents that can be patched in other fields, and mended', async () => {
      await app.store('films', [{ id: 'a', n: 5, title: 'Heat', at: { city: 'Oslo', zip: 1 } }]);
      const fields = {
        n: { type: 'string' },
        title: { type: 'string', required: true },
        at: { type: 'object' },
        'at.zip': { type: 'string' },
      };
      expect((await put(fields, { force: true })).body).toMatchObject({ unfit_documents: 1 });
      const patch = (change: object) => app.call<Refusal>('PATCH', `${path}/collections/films/documents/a`, change);
      expect(await patch({ title: 'Ronin', at: { city: 'Rome' } })).toMatchObject({
        status: 200,
        body: { n: 5, title: 'Ronin', at: { city: 'Rome', zip: 1 } },
      });
      for (const [change, place] of [
        [{ n: 6 }, 'n'],
        [{ at: { zip: 2 } }, 'at.zip'],
        [{ at: 'Rome' }, 'at'],
        [{ title: null }, 'title'],
        [{ title: 7, n: 'x' }, 'title'],
      ] as const) {
        const refused = await patch(change);
        expect([refused.status, Object.keys(refused.body.details)]).toEqual([422, [place]]);
      }
      const operations = [{ operation: 'update', collection: 'films', data: { id: 'a', year: 1998 } }];
      expect((await app.call('POST', `${path}/batch`, { operations, atomic: true })).status).toBe(200);
      const whole = { id: 'a', n: 5, title: 'Heat' };
      expect((await app.call('PUT', `${path}/collections/films/documents/a`, whole)).status).toBe(422);
      expect((await patch({ n: 'five', at: { zip: '1' } })).status).toBe(200);
      // What is required is judged whatever a patch names.
      await put({ ...fields, code: { type: 'string', required: true } });
      expect((await patch({ year: 1999 })).body.details).toEqual({ code: [expect.any(String)] });
    });
  });

  describe('of indexes', () => {
    test.each([
      ['number', ['b', 'c', 'd', 'e', 'f', 'g', 'h']],
      ['price', ['b', 'c', 'd', 'e', 'f', 'g', 'h']],
      ['boolean', ['a', 'b', 'c', 'd', 'f', 'g', 'h']],
      ['date', ['a', 'b', 'c', 'e', 'g', 'h']],
      // Published clients declare fields of objects and arrays so.
      ['string', ['a', 'e']],
    ])('of type %s are those of stored documents', async (index_type, unfit) => {
      await app.store('films', [
        { id: 'a', n: 5 },
        { id: 'b', n: '5' },
        { id: 'c', n: '' },
        { id: 'd', n: '2026-01-01T00:00:00.5+02:00' },
        { id: 'e', n: true },
        { id: 'f', n: '2026-01-01t00:00:00z' },
        { id: 'g', n: [5] },
        { id: 'h', n: { x: 5 } },
        { id: 'i', n: null },
        { id: 'j' },
        { id: 'k', n: [], deleted: true },
      ]);
      const refused = await index({ name: 'x', index_type });
      expect(refused.status).toBe(409);
      expect(refused.body).toMatchObject({ code: 'DOCUMENTS_DO_NOT_FIT' });
      expect(refused.body.details).toEqual({ count: unfit.length, ids: unfit.slice(0, 5) });
      expect((await app.call('GET', `${path}/indexes`)).body).toEqual([]);
      const forced = await index({ name: 'x', index_type, force: true });
      expect(forced).toMatchObject({ status: 201, body: { unfit_documents: unfit.length } });
      // The same again changes nothing and judges nothing.
      expect(await index({ name: 'x', index_type })).toMatchObject({ status: 200, body: { updated: true } });
    });

    test('are judged before a large collection is indexed; untyped indexes take any', async () => {
      await app.store(
        'films',
        Array.from({ length: 1_100 }, (_, n) => ({ id: `f${n}`, n: n === 700 ? n : `t${n}` })),
      );
      expect((await index({ name: 'x', index_type: 'string' })).body).toMatchObject({
        details: { count: 1, ids: ['f700'] },
      });
      const forced = await app.call<{ ticket_id: string }>('POST', `${path}/indexes`, {
        name: 'x',
        collection: 'films',
        field_name: 'n',
        index_type: 'string',
        force: true,
      });
      expect(forced).toMatchObject({ status: 202, body: { unfit_documents: 1 } });
      expect((await app.ended(forced.body.ticket_id)).status).toBe('Completed');
      for (const index_type of ['btree', 'hash']) {
        expect((await index({ name: index_type, index_type })).status).toBe(202);
      }
      const fresh = await index({ name: 'y', collection: 'other', index_type: 'number', force: true });
      expect(fresh).toMatchObject({ status: 201, body: { unfit_documents: 0 } });
    });
  });

  describe('of the schema', () => {
    const fields = {
      n: { type: 'number' },
      s: { type: 'string' },
      d: { type: 'date' },
      b: { type: 'boolean' },
      a: { type: 'array' },
      o: { type: 'object' },
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
        { index_type: 'number' },
        { index_type: 'price' },
        { index_type: 'btree' },
        { index_type: 'hash' },
        { index_type: 'string', field_name: 's' },
        { index_type: 'fulltext', field_name: 's' },
        { index_type: 'date', field_name: 'd' },
        { index_type: 'boolean', field_name: 'b' },
        { index_type: 'fulltext', field_name: 'a' },
        { index_type: 'btree', field_name: 'o' },
        { index_type: 'composite', fields: ['n', 's'] },
        { index_type: 'string', field_name: 'unknown' },
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
