import { gzipSync } from 'node:zlib';
import { eventually } from '@granary/testing/eventually';
import { readExport } from '../support/export-client';
import { partHeaders, sendFile, type FileAnswer } from '../support/import-client';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

const linesOf = (...documents: object[]): string => documents.map((one) => `${JSON.stringify(one)}\n`).join('');

describe.each(transports)('imports (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });

  const base = () => `/api/apps/${app.appId}`;
  const target = () => ({ url: granary.url, key: app.key });
  const importText = (
    text: string | Buffer,
    query = '',
    headers: Record<string, string> = {},
    collection = 'books',
  ): Promise<FileAnswer | undefined> =>
    sendFile({
      ...target(),
      method: 'POST',
      path: `${base()}/collections/${collection}/import${query}`,
      headers,
      bytes: Buffer.from(text),
    });
  const sendPart = (id: string, bytes: string | Buffer, offset: number, isComplete: boolean, headers = {}) =>
    sendFile({
      ...target(),
      method: 'PATCH',
      path: `${base()}/imports/${id}`,
      headers: { ...partHeaders(offset, isComplete), ...headers },
      bytes: Buffer.from(bytes),
    });
  const begin = async (members: object): Promise<string> => {
    const begun = await app.call<{ import_id: string }>('POST', `${base()}/imports`, {
      collection: 'books',
      ...members,
    });
    expect(begun).toMatchObject({ status: 201, body: { status: 'open', offset: 0 } });
    expect(begun.headers.get('location')).toBe(`${base()}/imports/${begun.body.import_id}`);
    return begun.body.import_id;
  };
  const exported = async (collection = 'books'): Promise<string> =>
    (await readExport({ ...target(), path: `${base()}/collections/${collection}/export` })).text;
  const errorsOf = async (id: unknown) => {
    const { body } = await app.call<{ errors: Array<Record<string, unknown>> }>(
      'GET',
      `${base()}/imports/${String(id)}/errors`,
    );
    return body.errors;
  };

  test('lines are stored as they are, and an export of them is the file', async () => {
    const file = '{"id":"a","n":1.50}\n{"id":"b","n": 12345678901234567890}\n';
    const imported = await importText(`\ufeff\n${file.replace('\n', '\r\n')}`);
    expect(imported).toMatchObject({
      status: 200,
      body: { status: 'completed', lines: 3, written: 2, skipped: 0, failed: 0, height: 1, error: null },
    });
    expect(await exported()).toBe(file);
    expect(await importText(await exported(), '', {}, 'copy')).toMatchObject({ body: { written: 2 } });
    expect(await exported('copy')).toBe(file);
  });

  test('an array and a table are read too, compressed or not', async () => {
    await importText('[{"id":"a"},\n {"id":"b","t":["[",{"x":"\\"]"}]}]', '?format=json');
    const table = 'id,n,who.name,tags\nc,1,"Bob ""B""",[1]\nd,,,"[]"\n';
    const zipped = gzipSync(Buffer.from(table));
    const csv = '?format=csv&types=n:number,tags:json';
    expect(await importText(zipped, csv, { 'content-encoding': 'gzip' })).toMatchObject({
      status: 200,
      body: { offset: table.length, written: 2 },
    });
    expect(await exported()).toBe(
      '{"id":"a"}\n{"id":"b","t":["[",{"x":"\\"]"}]}\n{"id":"c","n":1,"who":{"name":"Bob \\"B\\""},"tags":[1]}\n{"id":"d","tags":[]}\n',
    );
    const schema = { fields: { n: { type: 'number' } } };
    await app.call('PUT', `${base()}/collections/books`, { schema_definition: schema });
    expect(await importText('e|7|x', '?format=csv&columns=id,n,t&separator=%7C')).toMatchObject({ status: 200 });
    expect(await importText('id\tn\tt\nf\t\t""\n', '?format=csv&separator=tab&empty=null')).toMatchObject({
      status: 200,
    });
    expect(await exported()).toContain('{"id":"e","n":7,"t":"x"}\n{"id":"f","n":null,"t":""}\n');
  });

  test('the first record that cannot be stored ends an import, and those before it stay', async () => {
    const refused = await importText('{"id":"a"}\n{"id":"b"}\n{"id":}\n{"id":"c"}\n');
    expect(refused).toMatchObject({
      status: 400,
      body: { code: 'MALFORMED_JSON', details: { line: 3, offset: 22, written: 2, height: 1 } },
    });
    expect(refused!.body['error']).toMatch(/^Line 3: /);
    expect(await exported()).toBe('{"id":"a"}\n{"id":"b"}\n');
    const { import_id: id } = refused!.body['details'] as { import_id: string };
    expect(await app.call('GET', `${base()}/imports/${id}`)).toMatchObject({
      body: { status: 'failed', lines: 2, error: { code: 'MALFORMED_JSON' } },
    });
    expect(await sendPart(id, '', 22, true)).toMatchObject({ status: 409, body: { code: 'IMPORT_ENDED' } });
    const task = await eventually(async () => {
      const { body } = await app.call<{ status: object }>('GET', `/api/tasks/${id}`);
      return typeof body.status === 'object' ? body : undefined;
    });
    expect(task).toMatchObject({ operation_type: 'import', status: { Failed: { error: refused!.body['error'] } } });
  });

  test('records that cannot be stored are passed over with on_error=continue, and listed with their lines', async () => {
    await app.call('POST', `${base()}/collections`, {
      name: 'books',
      schema_definition: { fields: { n: { type: 'number' }, k: { type: 'string', index: true, unique: true } } },
    });
    await app.store('books', [{ id: 'old', k: 'taken' }]);
    const file = [
      '{"id":"a","n":"x"}',
      '{"id":"b","k":"taken"}',
      '',
      '{"id":"c","k":"own"}',
      '{"id":"d","k":"own"}',
      '[1]',
      '{"id":"e"} {"id":"f"}',
      '\xff',
      `{"id":"g","t":"${'x'.repeat(1_100_000)}"}`,
      '{"id":".."}',
      '{"id":"h"}',
    ];
    const done = await importText(Buffer.from(file.join('\n'), 'latin1'), '?on_error=continue');
    expect(done).toMatchObject({ status: 200, body: { status: 'completed', lines: 10, written: 2, failed: 8 } });
    const errors = await errorsOf(done!.body['import_id']);
    expect(errors.map(({ line, code, id }) => [line, code, id])).toEqual([
      [1, 'SCHEMA_VIOLATION', 'a'],
      [2, 'UNIQUE_VIOLATION', 'b'],
      [5, 'UNIQUE_VIOLATION', 'd'],
      [6, 'VALIDATION_FAILED', undefined],
      [7, 'MALFORMED_JSON', 'e'],
      [8, 'MALFORMED_JSON', undefined],
      [9, 'DOCUMENT_TOO_LARGE', undefined],
      [10, 'VALIDATION_FAILED', '..'],
    ]);
    expect(errors[0]).toMatchObject({ offset: 0, details: { n: ['must be of type number'] } });
    expect(await exported()).toBe('{"id":"c","k":"own"}\n{"id":"h"}\n{"id":"old","k":"taken"}\n');
  });

  test('a document whose id is present is replaced, refused or left out', async () => {
    await app.store('books', [{ id: 'a', n: 1 }]);
    await app.store('books', [{ id: 'gone', n: 1 }]);
    await app.call('DELETE', `${base()}/collections/books/documents/gone`);
    const file = linesOf({ id: 'a', n: 2 }, { id: 'gone', n: 2 }, { id: 'b', n: 2 }, { id: 'b', n: 3 });
    expect(await importText(file, '?mode=skip')).toMatchObject({ body: { written: 2, skipped: 2 } });
    expect(await exported()).toBe(linesOf({ id: 'a', n: 1 }, { id: 'b', n: 2 }, { id: 'gone', n: 2 }));
    expect(await importText(file, '?mode=insert')).toMatchObject({
      status: 409,
      body: { code: 'ALREADY_EXISTS', details: { line: 1, id: 'a' } },
    });
    const passed = await importText(
      linesOf({ id: 'c' }, { id: 'a' }, { id: 'c', n: 2 }),
      '?mode=insert&on_error=continue',
    );
    expect(passed).toMatchObject({ body: { written: 1, failed: 2 } });
    expect(await importText(file, '?mode=upsert')).toMatchObject({ body: { written: 4 } });
    expect(await exported()).toBe(linesOf({ id: 'a', n: 2 }, { id: 'b', n: 3 }, { id: 'c' }, { id: 'gone', n: 2 }));
    const versions = await app.call<{ version: number }>('GET', `${base()}/collections/books/documents/b`);
    expect(versions.headers.get('etag')).toBe('"3"');
  });

  test('a dry run reads and checks everything, and stores nothing', async () => {
    await app.store('books', [{ id: 'a' }]);
    const schema = { fields: { k: { type: 'string', index: true, unique: true } } };
    await app.call('PUT', `${base()}/collections/books`, { schema_definition: schema });
    const file = linesOf({ id: 'a' }, { id: 'b', k: 'x' }, { id: 'c', k: 'x' }, { id: 'd', k: 1 });
    const checked = await importText(file, '?dry_run=true&mode=insert&on_error=continue');
    expect(checked).toMatchObject({ body: { status: 'completed', written: 1, failed: 3, height: null } });
    expect((await errorsOf(checked!.body['import_id'])).map(({ line, code }) => [line, code])).toEqual([
      [1, 'ALREADY_EXISTS'],
      [3, 'UNIQUE_VIOLATION'],
      [4, 'SCHEMA_VIOLATION'],
    ]);
    expect(await importText(linesOf({ n: 1 }), '?dry_run=true', {}, 'none')).toMatchObject({ body: { written: 1 } });
    expect(await exported()).toBe('{"id":"a"}\n');
    expect(await app.call('GET', `${base()}/collections/none`)).toMatchObject({ status: 404 });
  });

  test('a file in parts: only whole records are stored, and the next part begins behind them', async () => {
    const file = linesOf({ id: 'a' }, { id: 'b' }, { id: 'c' });
    const id = await begin({ size_bytes: file.length });
    expect(await sendPart(id, file.slice(0, 17), 0, false)).toMatchObject({
      status: 200,
      body: { offset: 11, written: 1, status: 'open' },
      headers: { 'upload-offset': '11', 'upload-complete': '?0' },
    });
    const head = await app.call('HEAD', `${base()}/imports/${id}`);
    expect([head.status, head.headers.get('upload-offset')]).toEqual([200, '11']);
    const task = await app.call('GET', `/api/tasks/${id}`);
    expect(task.body).toMatchObject({ operation_type: 'import', status: 'StoringData', progress: 11 / file.length });
    for (const offset of [0, 17, 12]) {
      expect(await sendPart(id, file.slice(offset), offset, true)).toMatchObject({
        status: 409,
        body: { code: 'IMPORT_OFFSET_MISMATCH', details: { offset: 11 } },
      });
    }
    expect(await sendPart(id, '', 11, false)).toMatchObject({ status: 200, body: { offset: 11 } });
    const rest = gzipSync(Buffer.from(file.slice(11, -1)));
    expect(await sendPart(id, rest, 11, true, { 'content-encoding': 'gzip' })).toMatchObject({
      status: 200,
      body: { status: 'completed', offset: file.length - 1, lines: 2, written: 3 },
      headers: { 'upload-complete': '?1' },
    });
    expect(await sendPart(id, '', file.length - 1, true)).toMatchObject({
      status: 409,
      body: { code: 'IMPORT_ENDED' },
    });
    expect(await exported()).toBe(file);
    const done = await eventually(async () => {
      const { body } = await app.call<{ status: unknown }>('GET', `/api/tasks/${id}`);
      return body.status === 'Completed' ? body : undefined;
    });
    expect(done).toMatchObject({ progress: 1, result: { written: 3 } });
    const listed = await app.call<{ imports: Array<{ import_id: string }> }>('GET', `${base()}/imports`);
    expect(listed.body.imports.map(({ import_id: one }) => one)).toEqual([id]);
    expect(await app.call('DELETE', `${base()}/imports/${id}`)).toMatchObject({ status: 200 });
    expect(await app.call('GET', `${base()}/imports/${id}`)).toMatchObject({
      status: 404,
      body: { code: 'IMPORT_NOT_FOUND' },
    });
    expect(await exported()).toBe(file);
  });

  test('the same request with its Idempotency-Key goes on, and another file is refused', async () => {
    const file = linesOf(...Array.from({ length: 5_000 }, (_, n) => ({ n, text: 'x'.repeat(500) })));
    const headers = { 'idempotency-key': 'file-1' };
    const cut = { ...target(), method: 'POST' as const, path: `${base()}/collections/books/import`, headers };
    await sendFile({ ...cut, bytes: Buffer.from(file) }, 2_400_000);
    await eventually(async () => {
      const { body } = await app.call<{ imports: Array<{ written: number }> }>('GET', `${base()}/imports`);
      return (body.imports[0]?.written ?? 0) > 1_000;
    });
    expect(await importText(`{"n":0}\n${file}`, '', headers)).toMatchObject({
      status: 422,
      body: { code: 'IDEMPOTENCY_KEY_REUSED' },
    });
    const done = await importText(file, '', headers);
    expect(done).toMatchObject({ status: 200, body: { written: 5_000 }, headers: { 'idempotency-replayed': 'true' } });
    expect(await importText(file, '', headers)).toMatchObject({ status: 200, body: done!.body });
    expect(await importText(file.slice(0, -9), '', headers)).toMatchObject({ status: 422 });
    expect(await importText(`${file}{}`, '', headers)).toMatchObject({ status: 422 });
    expect(await importText(file, '?mode=skip', headers)).toMatchObject({ status: 422 });
    const numbers = (await exported())
      .split('\n')
      .slice(0, -1)
      .map((line) => (JSON.parse(line) as { n: number }).n);
    expect(numbers.sort((one, other) => one - other)).toEqual(Array.from({ length: 5_000 }, (_, n) => n));
  });

  test('several senders of one part at once, and of one request, store each record once', async () => {
    const file = linesOf(...Array.from({ length: 50 }, (_, n) => ({ n })));
    const id = await begin({ mode: 'skip' });
    await Promise.all(Array.from({ length: 8 }, () => sendPart(id, file, 0, true)));
    expect((await exported()).split('\n')).toHaveLength(51);
    const headers = { 'idempotency-key': 'at-once' };
    const answers = await Promise.all(Array.from({ length: 4 }, () => importText(file, '', headers, 'other')));
    expect(answers.map((answer) => [answer!.status, answer!.body['written']])).toEqual(Array(4).fill([200, 50]));
    expect((await exported('other')).split('\n')).toHaveLength(51);
  });

  test('a value that is taken is looked for among the records that are written, and by those that keep it', async () => {
    const schema = { fields: { k: { type: 'string', index: true, unique: true } } };
    await app.call('POST', `${base()}/collections`, { name: 'books', schema_definition: schema });
    await app.store('books', [
      { id: 'a', k: 'x' },
      { id: 'b', k: 'y' },
    ]);
    const skipped = linesOf({ id: 'a', k: 'new' }, { id: 'c', k: 'x' }, { id: 'b', k: 'x' }, { id: 'd', k: 'new' });
    for (const query of ['?dry_run=true', '?']) {
      const done = await importText(skipped, `${query}&mode=skip&on_error=continue`);
      expect(done).toMatchObject({ status: 200, body: { written: 1, skipped: 2, failed: 1 } });
      expect(await errorsOf(done!.body['import_id'])).toMatchObject([{ line: 2, code: 'UNIQUE_VIOLATION', id: 'c' }]);
    }
    // `a` gives its value up to `e`, `f` takes one that `b` keeps, and of two records of `g` the last one counts.
    const changed = [
      { id: 'e', k: 'x' },
      { id: 'a', k: 'z' },
      { id: 'f', k: 'y' },
      { id: 'b', k: 'y' },
      { id: 'g', k: 'z' },
      { id: 'g', k: 'w' },
    ];
    for (const query of ['?dry_run=true', '?']) {
      const done = await importText(linesOf(...changed), `${query}&on_error=continue`);
      expect(done).toMatchObject({ status: 200, body: { written: 5, failed: 1 } });
      expect(await errorsOf(done!.body['import_id'])).toMatchObject([{ line: 3, code: 'UNIQUE_VIOLATION', id: 'f' }]);
    }
    const fields = (await exported())
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { id: string; k: string });
    expect(fields.map(({ id, k }) => id + k)).toEqual(['az', 'by', 'dnew', 'ex', 'gw']);
  });

  test('a chain of records, each of which wants the value that the next one has, is refused link by link', async () => {
    const schema = { fields: { k: { type: 'string', index: true, unique: true } } };
    await app.call('POST', `${base()}/collections`, { name: 'books', schema_definition: schema });
    const chain = Array.from({ length: 30 }, (_, n) => ({ id: `c${n}`, k: `k${n}` }));
    await app.store('books', [...chain, { id: 'stranger', k: 'k30' }]);
    const shifted = linesOf(...chain.map(({ id }, n) => ({ id, k: `k${n + 1}` })), { id: 'last', k: 'free' });
    for (const query of ['?dry_run=true', '?']) {
      const done = await importText(shifted, `${query}&on_error=continue`);
      expect(done).toMatchObject({ status: 200, body: { written: 1, failed: 30 } });
    }
  });

  test('the errors of a table are bounded, however many of its cells are wrong', async () => {
    const names = Array.from({ length: 1_000 }, (_, index) => `${'n'.repeat(200)}${index}`);
    const types = Object.fromEntries(names.map((name) => [name, 'number']));
    const id = await begin({ format: 'csv', columns: names, types, on_error: 'continue' });
    const rows = Array.from({ length: 1_200 }, () => `${'x,'.repeat(999)}x`).join('\n');
    expect(await sendPart(id, rows, 0, true)).toMatchObject({ status: 200, body: { failed: 1_200, written: 0 } });
    const errors = await errorsOf(id);
    expect(errors).toHaveLength(1_000);
    expect(JSON.stringify(errors).length).toBeLessThan(6_000_000);
  });

  test('more than 10,000 records that fail end an import', async () => {
    const ended = await importText(`{"id":"a"}\n${'x\n'.repeat(10_002)}{"id":"b"}\n`, '?on_error=continue');
    expect(ended).toMatchObject({
      status: 422,
      body: { code: 'TOO_MANY_ERRORS', details: { line: 10_002, written: 1, failed: 10_000 } },
    });
    expect(await exported()).toBe('{"id":"a"}\n');
  });

  test.each([
    ['an array', 'ndjson', ' [{"id":"a"}]', /format is json/],
    ['lines', 'json', '{"id":"a"}\n{"id":"b"}', /format is ndjson/],
    ['a broken array', 'json', '[{"id":"a"} {"id":"b"}]', /^Line 1: /],
    ['lines of JSON', 'csv', '{"id":"a"}\n', /ndjson/],
    ['a name twice', 'csv', 'id,id\na,b\n', /id/],
    ['a field and its parent', 'csv', 'a,a.b\n1,2\n', /a/],
    ['UTF-16', 'ndjson', '\ufffe', /UTF-16|UTF-8/],
  ])('%s under %s is refused before anything is stored', async (_, format, text, message) => {
    const bytes = text === '\ufffe' ? Buffer.from([0xff, 0xfe, 0x7b, 0]) : text;
    const refused = await importText(bytes, `?format=${format}&on_error=continue`);
    expect(refused).toMatchObject({ status: 400, body: { error: expect.stringMatching(message) as string } });
    if (format !== 'json' || !text.startsWith('[')) {
      expect(await app.call('GET', `${base()}/collections/books`)).toMatchObject({ status: 404 });
    }
  });

  test('what is no import is refused with its detail', async () => {
    const refusals: Array<[string, string, Record<string, string>, number, RegExp]> = [
      ['?columns=id', '', {}, 400, /columns is for the format csv/],
      ['?format=csv&types=id', '', {}, 400, /types/],
      ['?format=csv&types=id:date', '', {}, 400, /date is none of/],
      ['?format=csv&columns=id,id', '', {}, 400, /columns/],
      ['?format=xml', '', {}, 400, /format/],
      ['', '--x', { 'content-type': 'multipart/form-data; boundary=x' }, 415, /--data-binary/],
      ['', 'x', { 'content-encoding': 'br' }, 415, /gzip/],
      ['', 'x', { 'content-encoding': 'gzip' }, 400, /not gzip/],
    ];
    for (const [query, text, headers, status, message] of refusals) {
      const answer = await importText(text, query, headers);
      expect([query, answer!.status, answer!.body['error']]).toEqual([query, status, expect.stringMatching(message)]);
    }
    const id = await begin({});
    const path = `${base()}/imports/${id}`;
    expect(await app.call('PATCH', path, 'x')).toMatchObject({ status: 400 });
    expect(await app.call('PATCH', path, 'x', { 'upload-offset': '0' })).toMatchObject({ status: 400 });
    const stranger = await newApp(granary);
    for (const call of [
      stranger.call('GET', path),
      stranger.call('GET', `/api/apps/${stranger.appId}/imports/${id}`),
      stranger.call('DELETE', `/api/apps/${stranger.appId}/imports/${id}`),
      stranger.call('PATCH', `/api/apps/${stranger.appId}/imports/${id}`, '{}', partHeaders(0, true)),
    ]) {
      expect([403, 404]).toContain((await call).status);
    }
    expect(await importText('', '')).toMatchObject({ status: 200, body: { status: 'completed', written: 0 } });
  });

  test('a hundred may be open in an app, and writes that cost something need an administrator', async () => {
    for (let count = 0; count < 100; count += 10) await Promise.all(Array.from({ length: 10 }, () => begin({})));
    const body = { collection: 'books' };
    const tooMany = await app.call('POST', `${base()}/imports`, body);
    expect(tooMany).toMatchObject({ status: 429, body: { code: 'TOO_MANY_IMPORTS' } });
    const other = await newApp(granary);
    await other.call('POST', `/api/apps/${other.appId}/collections`, { name: 'books', write_pricing: 'on' });
    const writer = await other.call<{ app_key: string }>('POST', `/api/apps/${other.appId}/keys`, {
      name: 'writer',
      permissions: ['Write'],
    });
    const path = `/api/apps/${other.appId}/collections/books/import`;
    const file = { url: granary.url, method: 'POST' as const, path, bytes: Buffer.from('{"id":"a"}\n') };
    expect(await sendFile({ ...file, key: writer.body.app_key })).toMatchObject({
      status: 402,
      body: { code: 'PAYMENT_REQUIRED' },
    });
    expect(await sendFile({ ...file, key: other.key })).toMatchObject({ status: 200 });
  });

  test('live views, indexes, the feed and the chain follow an import as any other write', async () => {
    await app.call('POST', `${base()}/indexes`, {
      name: 'by_n',
      collection: 'books',
      field_name: 'n',
      index_type: 'number',
    });
    const view = await app.call<{ ticket_id: string }>('POST', `${base()}/views`, {
      name: 'sums',
      source_collections: ['books'],
      refresh_mode: 'live',
      query: { group_by: ['k'], aggregate: { all: { $sum: 'n' } } },
    });
    await app.ended(view.body.ticket_id);
    const file = linesOf(...Array.from({ length: 2_500 }, (_, n) => ({ id: `d${n}`, n, k: n % 2 })));
    expect(await importText(file)).toMatchObject({ status: 200, body: { height: 3 } });
    const rows = await send<{ records: Array<{ k: number; all: number }> }>(
      granary.url,
      'GET',
      `/views/${app.appId}/sums/data?sort=k`,
      { key: app.key },
    );
    expect(rows.body.records).toMatchObject([
      { k: 0, all: 1_561_250 },
      { k: 1, all: 1_562_500 },
    ]);
    const found = await app.call<{ records: unknown[] }>('GET', `${base()}/collections/books/data?n=2499`);
    expect(found.body.records).toHaveLength(1);
    const page = await app.call<{ changes: unknown[] }>('GET', `${base()}/changes?since=0&limit=1000&collection=books`);
    expect(page.body.changes).toHaveLength(1_000);
    const commits = await app.call<{ commits: Array<{ operation: string }> }>('GET', `${base()}/commits`);
    expect(commits.body.commits).toHaveLength(3);
  });
});
