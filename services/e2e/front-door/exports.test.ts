import { readExport, wholeLines, type ExportPart } from '../support/export-client';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('exports (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });

  const pathOf = (query: string, collection = 'books') =>
    `/api/apps/${app.appId}/collections/${collection}/export${query}`;
  const exported = (query = '', collection?: string): Promise<ExportPart> =>
    readExport({ url: granary.url, path: pathOf(query, collection), key: app.key });
  const textOf = async (query = '') => (await exported(query)).text;
  const refused = (query: string, key: string | undefined = app.key, collection?: string) =>
    send<{ code: string; error: string; details: Record<string, string[]> }>(
      granary.url,
      'GET',
      pathOf(query, collection),
      { key },
    );
  const storeText = (data: string) =>
    send(granary.url, 'POST', '/store', { key: app.key, body: `{"root":"${app.appId}::books","data":${data}}` });
  const find = (filter: object) => `find=${encodeURIComponent(JSON.stringify(filter))}`;

  test('documents are exported as they were stored but for line ends, in the order of the bytes of their ids', async () => {
    await storeText('[{"id":"é","n":1.50,\n "t":"x"},{"id":"b","n": 12345678901234567890},\r\n{"id":"B"}]');
    const { status, headers, text, isWhole } = await exported();
    expect([status, isWhole]).toEqual([200, true]);
    expect(text).toBe('{"id":"B"}\n{"id":"b","n": 12345678901234567890}\n{"id":"é","n":1.50,  "t":"x"}\n');
    expect(headers).toMatchObject({
      'content-type': 'application/x-ndjson; charset=utf-8',
      'content-disposition': `attachment; filename="${app.appId}-books-1.ndjson"`,
      'x-granary-height': '1',
      'cache-control': 'no-store',
    });
    expect(JSON.parse(await textOf('?format=json'))).toHaveLength(3);
  });

  test('an export is of one height, whatever came after it', async () => {
    await app.store('books', [
      { id: 'a', n: 1 },
      { id: 'b', n: 1 },
    ]);
    await app.store('books', [
      { id: 'a', n: 2 },
      { id: 'c', n: 2 },
    ]);
    await app.store('books', [
      { id: 'b', deleted: true },
      { id: 'a', n: 3 },
    ]);
    expect(await textOf('?at=0')).toBe('');
    expect(await textOf('?at=1')).toBe('{"id":"a","n":1}\n{"id":"b","n":1}\n');
    expect(await textOf('?at=2')).toBe('{"id":"a","n":2}\n{"id":"b","n":1}\n{"id":"c","n":2}\n');
    expect(await textOf('?at=3')).toBe('{"id":"a","n":3}\n{"id":"c","n":2}\n');
    expect(await textOf('?at=3&deleted=include')).toBe(
      '{"id":"a","n":3}\n{"id":"b","deleted":true}\n{"id":"c","n":2}\n',
    );
    expect(await textOf('?at=2&after=a')).toBe('{"id":"b","n":1}\n{"id":"c","n":2}\n');
    expect(await textOf('?at=2&after=aa')).toBe('{"id":"b","n":1}\n{"id":"c","n":2}\n');
    expect(await textOf(`?at=2&${find({ n: 2 })}&select=id`)).toBe('{"id":"a"}\n{"id":"c"}\n');
    const versions = wholeLines(await textOf('?history=true&at=3')).map((line) => JSON.parse(line) as { at: string });
    expect(versions.map((version) => ({ ...version, at: undefined }))).toEqual([
      { id: 'a', version: 1, height: 1, deleted: false, document: { id: 'a', n: 1 } },
      { id: 'a', version: 2, height: 2, deleted: false, document: { id: 'a', n: 2 } },
      { id: 'a', version: 3, height: 3, deleted: false, document: { id: 'a', n: 3 } },
      { id: 'b', version: 1, height: 1, deleted: false, document: { id: 'b', n: 1 } },
      { id: 'b', version: 2, height: 3, deleted: true, document: { id: 'b', deleted: true } },
      { id: 'c', version: 1, height: 2, deleted: false, document: { id: 'c', n: 2 } },
    ]);
    expect(versions.every(({ at }) => Math.abs(Date.now() - Date.parse(at)) < 3_600_000)).toBe(true);
    expect(wholeLines(await textOf('?history=true&after=a&after_version=2'))).toHaveLength(4);
    expect(wholeLines(await textOf('?history=true&after=a'))).toHaveLength(3);
  });

  test('a collection of many pages and of large documents is exported whole', async () => {
    const large = 'x'.repeat(900_000);
    for (let number = 0; number < 4; number += 1) await app.store('books', [{ id: `large${number}`, large }]);
    await app.store(
      'books',
      Array.from({ length: 5_000 }, (_, index) => ({ id: `small${index}` })),
    );
    const { text, isWhole } = await exported();
    const ids = wholeLines(text).map((line) => (JSON.parse(line) as { id: string }).id);
    expect(isWhole).toBe(true);
    expect(ids).toEqual([...ids].sort());
    expect(new Set(ids).size).toBe(5_004);
    expect(wholeLines(await textOf(`?${find({ id: 'small4999' })}`))).toEqual(['{"id":"small4999"}']);
  });

  test('CSV has the columns of the schema, or of the first documents, or those that are named', async () => {
    await app.store('books', [
      { id: 'a', t: 'x, y', o: { p: 1 } },
      { id: 'b', t: '', 'k.k': 1, z: '=1+1' },
    ]);
    const first = await exported('?format=csv');
    expect(first.text).toBe('id,t,o.p,z\r\na,"x, y",1,\r\nb,"",,=1+1\r\n');
    expect(first.headers['x-granary-omitted-fields']).toBe('["k.k"]');
    expect(first.trailers).toEqual({ 'x-granary-omitted-fields': '["k.k"]' });
    const named = await exported('?format=csv&columns=o,tt,z&formulas=escape');
    expect(named.text).toBe(`o,tt,z\r\n"{""p"":1}",,\r\n,,'=1+1\r\n`);
    expect(named.headers['x-granary-hints']).toBe('["tt is in none of the schema and the first 2 documents"]');
    const fields = { t: { type: 'string' }, n: { type: 'number' } };
    await app.call('PUT', `/api/apps/${app.appId}/collections/books`, { schema_definition: { fields } });
    const declared = await exported('?format=csv');
    expect(declared.text).toBe('id,t,n\r\na,"x, y",\r\nb,"",\r\n');
    expect(declared.headers['x-granary-omitted-fields']).toBe('["o","k.k","z"]');
    expect(await textOf('?format=csv&history=true&at=1')).toMatch(
      /^id,version,height,at,deleted,document\.id,document\.t,/,
    );
    expect(await textOf('?format=csv&select=t')).toBe('t\r\n"x, y"\r\n""\r\n');
  });

  test('a height of a collection that was deleted is not one of another that has its name', async () => {
    await app.store('books', [{ id: 'a' }]);
    await app.call('DELETE', `/api/apps/${app.appId}/collections/books`, { force: true });
    expect((await refused('')).status).toBe(404);
    await app.store('books', [{ id: 'b' }]);
    expect((await refused('?at=1')).body).toMatchObject({
      code: 'COLLECTION_NOT_FOUND',
      error: 'The collection books of that height was deleted, and made again since',
    });
    expect(await textOf('?at=2')).toBe('{"id":"b"}\n');
    expect(await textOf()).toBe('{"id":"b"}\n');
  });

  test('a field of a filter that may be misspelt gets a hint, in a header', async () => {
    await app.store('books', [{ id: 'a', year: 1 }]);
    const { text, headers } = await exported(`?${find({ yaer: 1 })}`);
    expect(text).toBe('');
    expect(JSON.parse(String(headers['x-granary-hints']))).toEqual([
      expect.stringMatching(/^yaer is in none .* year\?$/),
    ]);
    expect((await exported(`?${find({ year: 2 })}`)).headers['x-granary-hints']).toBeUndefined();
  });

  test('what is not valid is refused with the detail, before anything is sent', async () => {
    await app.store('books', [{ id: 'a' }]);
    const cases: Array<[query: string, code: string, detail: string]> = [
      ['?at=2', 'CURSOR_AHEAD', 'at'],
      ['?at=-1', 'VALIDATION_FAILED', 'at'],
      ['?at=999999999999999', 'CURSOR_AHEAD', 'at'],
      ['?format=xml', 'VALIDATION_FAILED', 'format'],
      ['?after=', 'VALIDATION_FAILED', 'after'],
      ['?after=a&history=true&after_version=0', 'VALIDATION_FAILED', 'after_version'],
      ['?after_version=1', 'VALIDATION_FAILED', 'after_version'],
      ['?after=a&after_version=1', 'VALIDATION_FAILED', 'after_version'],
      ['?columns=a', 'VALIDATION_FAILED', 'columns'],
      ['?format=csv&columns=a,,b', 'VALIDATION_FAILED', 'columns'],
      ['?format=csv&columns=a,a', 'VALIDATION_FAILED', 'columns'],
      [
        `?format=csv&columns=${Array.from({ length: 1_001 }, (_, index) => `c${index}`).join(',')}`,
        'VALIDATION_FAILED',
        'columns',
      ],
      ['?formulas=escape', 'VALIDATION_FAILED', 'formulas'],
      ['?history=1', 'VALIDATION_FAILED', 'history'],
      ['?unknown=1', 'VALIDATION_FAILED', 'unknown'],
      ['?find=', 'VALIDATION_FAILED', 'find'],
      ['?find=%7B', 'INVALID_QUERY', 'find'],
      [`?${find({ a: { $near: 1 } })}`, 'INVALID_QUERY', 'find.a.$near'],
      [`?${find({ other: { resolve: { find: { id: '$data.id' } }, model: 'books' } })}`, 'INVALID_QUERY', 'find'],
      ['?select=a..b', 'INVALID_QUERY', 'select.a.'],
    ];
    for (const [query, code, detail] of cases) {
      const { status, body } = await refused(query);
      expect([query, status, body.code, Object.keys(body.details)]).toEqual([query, 400, code, [detail]]);
    }
    expect((await refused('', app.key, 'boks')).body).toMatchObject({
      code: 'COLLECTION_NOT_FOUND',
      error: 'There is no collection boks. Did you mean books?',
    });
    expect((await refused('', '')).status).toBe(401);
    expect((await refused('?after=%00')).status).toBe(400);
  });

  test('encrypted fields are exported in the clear, and a filter may ask for their value', async () => {
    await app.store('books', [{ id: 'a', year: 1 }]);
    const index = { name: 'by_owner', collection: 'books', field_name: 'owner', index_type: 'encrypted' };
    const { status } = await app.call('POST', `/api/apps/${app.appId}/indexes`, index);
    expect(status).toBe(201);
    await app.store('books', [
      { id: 'b', owner: 'ann' },
      { id: 'c', owner: 'bob' },
    ]);
    expect(await textOf()).toBe('{"id":"a","year":1}\n{"id":"b","owner":"ann"}\n{"id":"c","owner":"bob"}\n');
    expect(await textOf(`?${find({ owner: 'bob' })}`)).toBe('{"id":"c","owner":"bob"}\n');
  });

  test('an export into another app, and from there, has the same bytes', async () => {
    const strange = ['', ' ', '\u2028', '"\\/', '\u0001', '💚', '-0', 'null'];
    await app.store(
      'books',
      strange.map((text, index) => ({ id: `d${index}`, text, [`k${text}`]: [index, null, { text }] })),
    );
    await storeText('[{"id":"n","big":1e400,"small":-0.0,"digits":0.10000000000000000000001}]');
    const { text } = await exported();
    const other = await newApp(granary);
    const data = `[${wholeLines(text).join(',')}]`;
    const { status } = await send(granary.url, 'POST', '/store', {
      key: other.key,
      body: `{"root":"${other.appId}::books","data":${data}}`,
    });
    expect(status).toBe(202);
    const again = await readExport({
      url: granary.url,
      path: `/api/apps/${other.appId}/collections/books/export`,
      key: other.key,
    });
    expect(again.text).toBe(text);
  });
});
