import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { App } from '@granary/client';
import { jsonText, parseAsWritten } from '../exact-json.ts';
import { indexBody, queryBody, takenMembers } from './app-definitions.ts';
import { exportApp } from './app-export.ts';
import { describesBlob, metadataOf } from './app-files.ts';
import { documentFiles, leftOut, parsedManifest } from './app-folder.ts';
import { describedBy } from './export-files.ts';
import { importFiles } from './import-files.ts';
import { noneUnstored, noteUnstored, sentencesOf } from './unstored-files.ts';
import { ownerPartOf } from './app-reads.ts';
import { RecordEncoder } from './record-encoder.ts';

const facts = { bytes: 0, sha256: '0'.repeat(64) };
const manifestText = (file: string, documents: unknown = 1) =>
  JSON.stringify({
    granary_export: 1,
    collections: [{ ...facts, file, name: 'a', documents }],
    files: [{ ...facts, file: 'definitions.json' }],
    left_out: [],
  });

test('a manifest names files of its folder only', () => {
  expect(parsedManifest(manifestText('documents/a.ndjson'))).toMatchObject({ granary_export: 1 });
  for (const file of ['../a', 'a/../../b', '/etc/passwd', 'C:\\a', 'a\\..\\b']) {
    expect(parsedManifest(manifestText(file))).toBeUndefined();
  }
  for (const text of [
    '',
    '{}',
    '[]',
    'null',
    manifestText('a', '1'),
    manifestText('a').replace('definitions.json', 'other.json'),
    manifestText('a').replace('"granary_export":1', '"x":1'),
  ]) {
    expect(parsedManifest(text)).toBeUndefined();
  }
});

test('a folder in which somebody else has such names is not emptied', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'granary-export-'));
  try {
    await mkdir(join(folder, 'documents'));
    await writeFile(join(folder, 'manifest.json'), '{"name":"a program"}');
    await writeFile(join(folder, '.granary-export'), 'mine');
    const call = {
      app: { id: 'demo' } as App,
      url: 'http://127.0.0.1:1',
      signal: new AbortController().signal,
      restarts: true,
      withoutFiles: false,
      onProgress: () => {},
    };
    await expect(exportApp(folder, call)).rejects.toThrow('is not empty');
    expect((await readdir(folder)).sort()).toEqual(['.granary-export', 'documents', 'manifest.json']);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('an export that begins anew removes the files of the one before, and those of nobody else', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'granary-export-'));
  const call = {
    app: { id: 'demo', request: () => Promise.reject(new Error('it is away')) } as unknown as App,
    url: 'http://127.0.0.1:1',
    signal: new AbortController().signal,
    restarts: true,
    withoutFiles: false,
    onProgress: () => {},
  };
  try {
    await mkdir(join(folder, 'files'));
    await writeFile(join(folder, 'files/mine'), 'mine');
    await writeFile(join(folder, 'manifest.json'), manifestText('documents/a.ndjson'));
    await expect(exportApp(folder, call)).rejects.toThrow('it is away');
    expect(await readdir(folder)).toEqual(['files']);
    const uploads = { ...facts, file: 'files/a.ndjson', count: 1, document_bytes: 1 };
    const manifest = JSON.parse(manifestText('documents/a.ndjson')) as { collections: object[] };
    Object.assign(manifest.collections[0]!, { uploads });
    await writeFile(join(folder, 'manifest.json'), JSON.stringify({ ...manifest, granary_export: 2 }));
    await expect(exportApp(folder, call)).rejects.toThrow('it is away');
    expect(await readdir(folder)).toEqual([]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('a manifest with uploaded files is of a form that programs which know none refuse', () => {
  const uploads = { ...facts, file: 'files/a.ndjson', count: 1, document_bytes: 1 };
  const withFiles = manifestText('documents/a.ndjson').replace(
    '"name":"a"',
    `"name":"a","uploads":${JSON.stringify(uploads)}`,
  );
  expect(parsedManifest(withFiles)).toBeUndefined();
  expect(parsedManifest(withFiles.replace('"granary_export":1', '"granary_export":2'))).toMatchObject({
    collections: [{ uploads: { count: 1 } }],
  });
});

test('a file that is changed between its check and its upload is not uploaded', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'granary-import-'));
  const id = '0190f3a2-b4c8-7d6e-8f90-a1b2c3d4e5f6';
  const file = { blob_id: id, content_type: 'text/plain', filename: null, size_bytes: 4, sha256: 'ab'.repeat(32) };
  try {
    for (const name of ['documents', 'files/a']) await mkdir(join(folder, name), { recursive: true });
    await writeFile(join(folder, 'documents/a.ndjson'), `${JSON.stringify({ id, ...file })}\n`);
    await writeFile(join(folder, 'files/a.ndjson'), `${JSON.stringify(file)}\n`);
    await writeFile(join(folder, 'files/a', id), 'else');
    const uploads = { ...facts, file: 'files/a.ndjson', count: 1, document_bytes: 1 };
    const collection = { ...facts, file: 'documents/a.ndjson', name: 'a', documents: 1, blobs: 1, uploads };
    const importing = importFiles(folder, collection, {
      app: {} as App,
      signal: new AbortController().signal,
      done: 0,
      onProgress: () => {},
      onHandled: () => Promise.resolve(),
      onRefused: () => {},
    });
    await expect(importing).rejects.toThrow(`${id} was changed since the import has begun`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('the first of many files that are not stored are named', () => {
  const unstored = noneUnstored();
  for (let n = 0; n < 22; n += 1) noteUnstored(unstored.refused, `f${n}`, new Error(`no ${n}`));
  const notes = { withoutFiles: false, problems: ['p'], kept: [], unstoredFiles: { a: unstored } };
  const { problems } = sentencesOf(notes, ['d']);
  expect(problems).toEqual(['p', expect.stringMatching(/^Files of "a" .*: f0, f1, .*, f19 and 2 more: no 0\.$/), 'd']);
});

test('indexes that are not moved are named', () => {
  const none = { unfetched: 0, deleted: 0, absent: 0 };
  expect(leftOut(none, []).join()).not.toContain('Indexes');
  expect(leftOut(none, ['"a" of "b"', '"c" of "d"'])).toContain(
    'Indexes that could not be built: "a" of "b", "c" of "d".',
  );
});

test('files of collections are different ones where names differ in case only', () => {
  const files = [...documentFiles(['Books', 'books', 'BOOKS', 'a']).values()];
  expect(files).toEqual([
    'documents/Books.ndjson',
    'documents/books.2.ndjson',
    'documents/BOOKS.3.ndjson',
    'documents/a.ndjson',
  ]);
});

test('what the service adds is not sent back, and numbers are as they were written', () => {
  const collection = parseAsWritten(
    '{"app_id":"a","name":"b","namespace":null,"schema_definition":{"fields":{"p":{"type":"number","default":1.50}}},' +
      '"document_count":3,"created_at":"x"}',
  ) as Record<string, unknown>;
  expect(jsonText(takenMembers('collection', collection))).toBe(
    '{"name":"b","schema_definition":{"fields":{"p":{"type":"number","default":1.50}}}}',
  );
  const index = {
    name: 'i',
    collection: 'b',
    field_name: 'x',
    fields: ['x', 'y'],
    index_type: 'composite',
    unique: true,
  };
  expect(JSON.parse(JSON.stringify(indexBody({ ...index, status: 'ready', size_bytes: 1 })))).toEqual({
    name: 'i',
    collection: 'b',
    fields: ['x', 'y'],
    index_type: 'composite',
    options: { unique: true },
    force: true,
  });
  const text = {
    name: 'i',
    collection: 'b',
    field_name: 'x',
    index_type: 'fulltext',
    options: { language: 'english' },
  };
  expect(indexBody({ ...text, unique: false })).toMatchObject({ options: { language: 'english', unique: false } });
  expect(JSON.stringify(queryBody({ name: 'q', version: '', versions: [''], base_query: {} }))).toBe(
    '{"name":"q","base_query":{}}',
  );
});

test("the owner's part of skills.md is what is before the generated one", () => {
  const generated = '<!-- granary:generated:begin -->\n# demo\n<!-- granary:generated:end -->\n';
  const head = '<!-- demo, revision 4, form 5, http://localhost -->\n';
  expect(ownerPartOf(`${head}# Mine\n\nText\n\n${generated}`)).toBe('# Mine\n\nText');
  expect(ownerPartOf(`${head}${generated}`)).toBe('');
});

test('a document that describes an uploaded file is told from others', () => {
  const id = '0190f3a2-b4c8-7d6e-8f90-a1b2c3d4e5f6';
  const document = { id, blob_id: id, sha256: 'ab'.repeat(32), size_bytes: 1 };
  expect(describesBlob(JSON.stringify(document))).toBe(true);
  for (const other of [
    { blob_id: 'b' },
    { id: 'a', blob_id: 'a' },
    { sha256: 'x' },
    { size_bytes: '1' },
    { deleted: true },
  ])
    expect(describesBlob(JSON.stringify({ ...document, ...other }))).toBe(false);
  expect(describesBlob(JSON.stringify({ id: 'a', text: '"blob_id"' }))).toBe(false);
});

test('the metadata of a file are the members that its client gave, as they are written', () => {
  const document =
    '{"id":"a","blob_id":"a","content_type":"t","size_bytes":1,"uploaded_at":"x","tx_hash":"y","celestia_height":1,' +
    '"sha256":"z","price":1.50,"by":{"id":12345678901234567890}}';
  expect(metadataOf(document)).toBe('{"price":1.50,"by":{"id":12345678901234567890}}');
});

test.each([
  ['attachment; filename="a b.txt"', 'a b.txt'],
  [`inline; filename="a_b_.txt"; filename*=UTF-8''a%22b%25%C3%A9%28%29.txt`, 'a"b%é().txt'],
  ['attachment', null],
])('the name of a file is read from %s', (disposition, filename) => {
  const headers = new Headers({ 'content-disposition': disposition, 'content-type': 'text/plain; charset=UTF-8' });
  expect(describedBy({ headers })).toEqual({ content_type: 'text/plain; charset=UTF-8', filename });
});

test('an array has its brackets, whole or gone on with, compressed or not', async () => {
  for (const isGzip of [false, true]) {
    const plain = (bytes: Buffer) => (isGzip ? gunzipSync(bytes) : bytes).toString();
    const whole = new RecordEncoder({ isArray: true, isGzip });
    const first = plain(await whole.encode(Buffer.from('{"a":"é"}\n{}\n')));
    const goingOn = new RecordEncoder({ isArray: true, isGzip }, true);
    const rest = plain(await goingOn.encode(Buffer.from('3\n')));
    expect(first + rest + plain(await goingOn.end())).toBe('[\n{"a":"é"},\n{},\n3\n]\n');
    expect(plain(await new RecordEncoder({ isArray: true, isGzip }).end())).toBe('[]\n');
    expect(plain(await new RecordEncoder({ isArray: false, isGzip }).end())).toBe('');
  }
});
