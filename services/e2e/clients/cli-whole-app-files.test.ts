import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newApp, type Body, type TestApp } from '../support/granary';
import { CommandPlace, cuttingProxy, interrupted } from './cli-interruption';

const place = CommandPlace.ofSuite();

const bytesOfLarge = 30 * 1_024 * 1_024;
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** Uploads a file; returns its id. */
async function upload(app: TestApp, collection: string, body: Body, headers: Record<string, string> = {}) {
  const path = `/api/apps/${app.appId}/blobs/${collection}`;
  const answer = await app.call<{ blob_id: string }>('POST', path, body, headers);
  if (answer.status !== 202) throw new Error(`${answer.status} ${answer.text}`);
  return answer.body.blob_id;
}

function formOf(name: string, type: string, bytes: Buffer, metadata: string): FormData {
  const form = new FormData();
  form.set('blob', new Blob([new Uint8Array(bytes)], { type }), name);
  form.set('metadata', metadata);
  return form;
}

/** A file as a reader gets it, and the document that describes it without what each place says anew. */
async function shown(app: TestApp, collection: string, id: string) {
  const headers = { 'x-app-key': app.key };
  const [file, document] = await Promise.all(
    [`blobs/${collection}/${id}`, `collections/${collection}/documents/${id}`].map((path) =>
      fetch(`${place.granary.url}/api/apps/${app.appId}/${path}`, { headers }),
    ),
  );
  const bytes = Buffer.from(await file!.arrayBuffer());
  return {
    status: file!.status,
    sha256: sha256(bytes),
    type: file!.headers.get('content-type'),
    name: file!.headers.get('content-disposition'),
    document: (await document!.text()).replace(/"(uploaded_at|tx_hash|celestia_height)":\s?("[^"]*"|\d+),?/g, ''),
  };
}

const versionsIn = async (app: TestApp, collection: string) =>
  (await app.list(collection, { include_history: true })).body.total;

/** The files of a folder, in the folders below it too. */
const filesIn = async (folder: string) =>
  (await readdir(join(place.folder, folder), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(join(place.folder, folder).length + 1))
    .sort();

/** A document that looks like the description of a file. */
const lookalike = () => {
  const id = randomUUID();
  return { id, blob_id: id, sha256: 'ab'.repeat(32), size_bytes: 3, content_type: 'text/plain' };
};

interface Report {
  files: number;
  documents: number;
  left_out: string[];
  kept: string[];
}
const reportOf = ({ stdout }: { stdout: string }) => JSON.parse(stdout) as Report;

test('files of all kinds are in the other app under their ids, as they were', async () => {
  const app = await newApp(place.granary);
  const scans = { isbn: { type: 'string', unique: true, required: true } };
  await app.call('POST', `/api/apps/${app.appId}/collections`, {
    name: 'scans',
    schema_definition: { fields: scans },
    access_policy: { read: 'private' },
  });
  const metadata = '{"price":1.50,"number":12345678901234567890,"title":"Straße"}';
  const png = formOf('Schönes „Bild“ 100% (1).png', 'image/png', randomBytes(3_000), metadata);
  const large = randomBytes(bytesOfLarge);
  const moved: Array<[collection: string, id: string]> = [
    ['files', await upload(app, 'files', png)],
    ['files', await upload(app, 'files', Buffer.from('Grüße'), { 'content-type': 'Text/Plain; charset="UTF-8"' })],
    ['files', await upload(app, 'files', Buffer.alloc(0), { 'content-type': 'application/x-empty' })],
    ['files', await upload(app, 'files', large, { 'content-type': 'video/mp4' })],
    [
      'files',
      await upload(app, 'files', formOf('long', 'text/css', Buffer.from('a'), `{"t":"${'ü'.repeat(30_000)}"}`)),
    ],
    ['scans', await upload(app, 'scans', formOf('a"b\\c;.txt', 'text/plain', Buffer.from('1'), '{"isbn":"i1"}'))],
  ];
  // Their documents have more than an upload can carry.
  const long = { t: 'ü'.repeat(50_000) };
  for (const type of ['text/css', 'text/css; charset=UTF-8']) {
    const id = await upload(app, 'files', Buffer.from('a'), { 'content-type': type });
    moved.push(['files', id]);
    await app.call('PATCH', `/api/apps/${app.appId}/collections/files/documents/${id}`, long);
  }
  const gone = await upload(app, 'files', Buffer.from('gone'), { 'content-type': 'text/plain' });
  await app.call('DELETE', `/api/apps/${app.appId}/blobs/files/${gone}`);
  const plain = lookalike();
  await app.store('files', [plain, { id: 'z', file: moved[0]![1] }]);

  const exported = await place.run(app, ['export', '--all', '--out', 'first']);
  expect(exported).toMatchObject({ code: 0, stderr: '' });
  expect(reportOf(exported)).toMatchObject({ files: 8, documents: 11 });
  expect(reportOf(exported).left_out.filter((sentence) => sentence.includes('file'))).toEqual([
    'Documents that look as if they described a file, but have none: 1. They are plain documents.',
  ]);
  const target = await newApp(place.granary);
  const imported = await place.run(target, ['import', '--all', 'first']);
  expect(imported).toMatchObject({ code: 0, stderr: '' });
  expect(reportOf(imported)).toMatchObject({ files: 8, documents: 11 });

  for (const [collection, id] of moved) {
    const there = await shown(target, collection, id);
    expect(there.status).toBe(200);
    expect(there).toEqual(await shown(app, collection, id));
  }
  expect((await shown(target, 'files', moved[0]![1])).document).toContain('"price":1.50,"number":12345678901234567890');
  expect((await shown(target, 'files', moved[3]![1])).sha256).toBe(sha256(large));
  expect(await shown(target, 'files', plain.id)).toMatchObject({ status: 404, document: JSON.stringify(plain) });
  expect((await shown(target, 'files', gone)).status).toBe(404);
  expect(await versionsIn(target, 'files')).toBe(12);

  expect((await place.run(target, ['export', '--all', '--out', 'second'])).code).toBe(0);
  const files = (await filesIn('first')).filter((file) => file.startsWith('files/'));
  expect(files).toHaveLength(10);
  expect((await filesIn('second')).filter((file) => file.startsWith('files/'))).toEqual(files);
  for (const file of files) expect(await place.text(`second/${file}`)).toBe(await place.text(`first/${file}`));
});

test('go on where they were interrupted, and one that was deleted meanwhile is told', async () => {
  const app = await newApp(place.granary);
  const ids: string[] = [];
  for (let n = 0; n < 5; n += 1) {
    ids.push(await upload(app, 'files', randomBytes(n === 2 ? 3_000_000 : 2_000), { 'content-type': 'image/png' }));
  }
  const [leaving, coming] = [
    await cuttingProxy(place.granary, { received: 60_000 }),
    await cuttingProxy(place.granary, { sent: 60_000 }),
  ];
  try {
    const command = ['export', '--all', '--out', 'all'];
    const exporting = await interrupted(place, app, command, leaving);
    expect(exporting.code).toBe(130);
    expect(await filesIn('all')).toContain(`files/files/${ids[1]}`);
    expect(await filesIn('all')).not.toContain(`files/files/${ids[2]}`);
    const otherwise = await place.run(app, [...command, '--without-files'], leaving.url);
    expect(otherwise.stderr).toContain('it began with files');
    for (const id of [ids[3], ids[4]]) await app.call('DELETE', `/api/apps/${app.appId}/blobs/files/${id}`);
    await app.call('PUT', `/api/apps/${app.appId}/blobs/files/${ids[4]}`, 'another', { 'content-type': 'text/plain' });
    // What is there is not fetched again.
    await writeFile(join(place.folder, `all/files/files/${ids[0]}`), 'marked');
    leaving.heal();
    const report = reportOf(await place.run(app, command, leaving.url));
    expect(report).toMatchObject({ files: 3, documents: 5 });
    expect(report.left_out).toContain(
      'Files that were deleted or replaced since the height of the export: 2. Their documents are there.',
    );
    expect(await place.text(`all/files/files/${ids[0]}`)).toBe('marked');

    const target = await newApp(place.granary);
    const damaged = await place.run(target, ['import', '--all', 'all']);
    expect(damaged).toMatchObject({ code: 1, stdout: '' });
    expect(damaged.stderr).toContain(`${ids[0]} is not the file that files/files.ndjson names`);
    expect((await target.call('GET', `/api/apps/${target.appId}/collections`)).text).toBe('[]');
    const bytes = await fetch(`${place.granary.url}/api/apps/${app.appId}/blobs/files/${ids[0]}`);
    await writeFile(join(place.folder, `all/files/files/${ids[0]}`), Buffer.from(await bytes.arrayBuffer()));

    const importing = await interrupted(place, target, ['import', '--all', 'all'], coming);
    expect(importing.code).toBe(130);
    expect((await shown(target, 'files', ids[1]!)).status).toBe(200);
    expect((await shown(target, 'files', ids[2]!)).status).toBe(404);
    coming.heal();
    expect((await place.run(target, ['import', '--all', 'all'], coming.url)).code).toBe(0);
    for (const id of [0, 1, 2].map((n) => ids[n]!)) {
      expect(await shown(target, 'files', id)).toEqual(await shown(app, 'files', id));
    }
    expect(await versionsIn(target, 'files')).toBe(5);

    // Files that are there as they are stay; the documents of the two others become another version.
    const merged = await place.run(target, ['import', '--all', 'all', '--merge']);
    expect(reportOf(merged).kept.join(' ')).not.toContain('other files');
    expect(await versionsIn(target, 'files')).toBe(7);
  } finally {
    leaving.stop();
    coming.stop();
  }
});

test('stay behind where they are not wanted, and give way to what is there', async () => {
  const app = await newApp(place.granary);
  const id = await upload(app, 'files', Buffer.from('theirs'), { 'content-type': 'text/plain' });
  await app.store('files', [{ id: 'a' }]);
  const without = await place.run(app, ['export', '--all', '--out', 'without', '--without-files']);
  expect(reportOf(without)).toMatchObject({ files: 0, documents: 2 });
  expect(reportOf(without).left_out.join(' ')).toContain('Uploaded files: 1 documents look as if they described one');
  expect(await filesIn('without')).not.toContain('files/files.ndjson');

  await place.run(app, ['export', '--all', '--out', 'with']);
  const target = await newApp(place.granary);
  await rename(join(place.folder, `with/files/files/${id}`), join(place.folder, 'elsewhere'));
  const imported = await place.run(target, ['import', '--all', 'with', '--without-files']);
  expect(imported).toMatchObject({ code: 0, stderr: '' });
  expect(reportOf(imported)).toMatchObject({ files: 0, documents: 1 });
  expect(reportOf(imported).left_out).toContain('Uploaded files, and their documents: 1.');
  await rename(join(place.folder, 'elsewhere'), join(place.folder, `with/files/files/${id}`));
  expect((await target.list('files')).body.records).toEqual([{ id: 'a' }]);

  const own = `/api/apps/${target.appId}/blobs/files/${id}`;
  await target.call('PUT', own, 'mine', { 'content-type': 'text/plain' });
  const merged = await place.run(target, ['import', '--all', 'with', '--merge']);
  expect(reportOf(merged)).toMatchObject({ files: 0, documents: 1 });
  expect(reportOf(merged).kept).toContain(`"files" has other files or documents under the ids of files: ${id}.`);
  expect((await target.call('GET', own)).text).toBe('mine');

  const strict = await newApp(place.granary);
  await strict.call('POST', `/api/apps/${strict.appId}/collections`, {
    name: 'files',
    schema_definition: { fields: { a: { type: 'string' }, album: { type: 'string', required: true } } },
  });
  await app.call('DELETE', `/api/apps/${app.appId}/collections/files/documents/a`);
  await place.run(app, ['export', '--all', '--out', 'again']);
  const refused = await place.run(strict, ['import', '--all', 'again', '--merge']);
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain(`Files of "files" are not stored, and neither are their documents: ${id}: `);
  expect(reportOf(refused)).toMatchObject({ files: 0 });
  const misplaced = await place.run(app, ['export', 'files', '--without-files']);
  expect(misplaced).toMatchObject({ code: 2, stdout: '' });
});
