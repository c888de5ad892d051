import { createHash, randomBytes, randomInt, randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { testBucket } from '@granary/testing/s3-bucket';
import { describeWith, minioForTests } from '@granary/testing/stack';
import { eventually } from '@granary/testing/eventually';
import { isOnStack, newApp, send, transports, type Body, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { sendRaw } from '../support/raw-http';
import type { Transport } from '../support/granary-settings';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/) as string;
const text = expect.stringMatching(/\S/) as string;
const hash = expect.stringMatching(/^[0-9a-f]{64}$/) as string;

interface Uploaded {
  ticket_id: string;
  blob_id: string;
  code?: string;
}

/** Files in one process, S3 on a stack. */
const byDefault = () => Promise.resolve({});
const onS3 = async () => testBucket(await minioForTests()).settings;

describe.each(transports)('blobs (%s)', (transport) => suite(transport, byDefault));
if (!isOnStack) describeWith(describe, 'minio')('blobs on S3 (wire)', () => suite('wire', onS3));

function suite(transport: Transport, settings: () => Promise<Record<string, string>>): void {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { blobs: await settings() } });
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/blobs/files`;
  });

  const bytes = randomBytes(100_000);
  const upload = (body: Body, headers: Record<string, string> = {}) => app.call<Uploaded>('POST', path, body, headers);
  const uploadRaw = (headers: Record<string, string> = {}) =>
    upload(bytes, { 'content-type': 'image/png', ...headers });
  const form = (metadata?: object, type = 'image/png') => {
    const data = new FormData();
    data.set('blob', new Blob([bytes], { type }), 'Schönes Bild.png');
    if (metadata) data.set('metadata', JSON.stringify(metadata));
    return data;
  };
  const get = async (blobId: string, headers: Record<string, string> = {}, method = 'GET') => {
    const response = await fetch(`${granary.url}${path}/${blobId}`, { method, headers });
    return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
  };
  const sha256 = createHash('sha256').update(bytes).digest('hex');

  test('a file in a form is stored with its metadata, which is a document like any other', async () => {
    await app.call('POST', `/api/apps/${app.appId}/indexes`, {
      name: 'i',
      collection: 'files',
      field_name: 'album',
      index_type: 'string',
    });
    const made = await upload(form({ album: 'Ulm', tags: ['a', { b: 1 }] }));
    expect(made.status).toBe(202);
    expect(made.body).toEqual({ ticket_id: text, blob_id: text, status: 'Completed', message: text });
    const { records } = (await app.list('files')).body;
    expect(records).toEqual([
      {
        id: made.body.blob_id,
        blob_id: made.body.blob_id,
        content_type: 'image/png',
        size_bytes: bytes.length,
        uploaded_at: time,
        tx_hash: hash,
        celestia_height: 1,
        sha256,
        album: 'Ulm',
        tags: ['a', { b: 1 }],
      },
    ]);
    const found = await send(granary.url, 'GET', `/api/apps/${app.appId}/collections/files/data?album=Ulm`);
    expect(found.body['records']).toEqual(records);
    const task = await app.call('GET', `/api/tasks/${made.body.ticket_id}`);
    expect(task).toMatchObject({ status: 200, body: { status: 'Completed', app_id: app.appId, block_height: 1 } });
    expect(task.body['transaction_hash']).toBe(records[0]!['tx_hash']);
    // The metadata document is the next commit.
    expect((await app.call('GET', `/api/applications/${app.appId}`)).body).toMatchObject({ height: 2 });
  });

  test('a raw body is stored with the metadata in its header', async () => {
    const made = await uploadRaw({ 'x-blob-metadata': JSON.stringify({ album: 'Bonn' }) });
    expect(made.status).toBe(202);
    expect((await app.list('files')).body.records).toMatchObject([
      { id: made.body.blob_id, content_type: 'image/png', size_bytes: bytes.length, sha256, album: 'Bonn' },
    ]);
    expect((await get(made.body.blob_id)).bytes.equals(bytes)).toBe(true);
  });

  test.each(['utf8', 'latin1'] as const)(
    'metadata in a header and the name of a file may be in %s',
    async (encoding) => {
      const headers = { 'x-app-key': app.key, 'content-type': 'image/png' };
      // Node writes each character of a header as a byte, but not where the body is a string.
      const asBytes = (text: string) => Buffer.from(text, encoding).toString('latin1');
      const topic = 'grüße \\\\'.repeat(1_200);
      const described = { ...headers, 'x-blob-metadata': asBytes(`{"topic":"${topic}"}`) };
      const raw = await sendRaw(granary.url, { method: 'POST', path, headers: described, body: bytes });
      expect(raw.status).toBe(202);
      const { records } = (await app.list<{ topic: string }>('files')).body;
      expect(records.map((record) => record.topic)).toEqual([JSON.parse(`"${topic}"`)]);
      const noJson = { ...headers, 'x-blob-metadata': asBytes('{"topic":"\\ü"}') };
      const refused = await sendRaw(granary.url, { method: 'POST', path, headers: noJson, body: bytes });
      expect(refused).toMatchObject({ status: 400, json: { code: 'VALIDATION_FAILED' } });

      const disposition = 'Content-Disposition: form-data; name="blob"; filename="grüße.png"';
      const body = Buffer.from(`--b\r\n${disposition}\r\nContent-Type: image/png\r\n\r\nbytes\r\n--b--\r\n`, encoding);
      const asForm = { ...headers, 'content-type': 'multipart/form-data; boundary=b' };
      const uploaded = await sendRaw(granary.url, { method: 'POST', path, headers: asForm, body });
      const { blob_id: id } = uploaded.json as Uploaded;
      const shown = (await get(id)).headers.get('content-disposition');
      expect(shown).toBe(`inline; filename="gr__e.png"; filename*=UTF-8''${encodeURIComponent('grüße.png')}`);
    },
  );

  test('a file is read whole, in part, and not again with its ETag', async () => {
    const { blob_id: id } = (await upload(form())).body;
    const whole = await get(id);
    expect(whole.status).toBe(200);
    expect(whole.bytes.equals(bytes)).toBe(true);
    expect(Object.fromEntries(whole.headers)).toMatchObject({
      'content-type': 'image/png',
      'content-length': String(bytes.length),
      'accept-ranges': 'bytes',
      'x-content-type-options': 'nosniff',
      'content-security-policy': expect.stringContaining('sandbox') as string,
      'x-request-id': text,
    });
    expect(whole.headers.get('content-disposition')).toMatch(/^inline/);
    const etag = whole.headers.get('etag')!;
    expect(etag).toMatch(/^"[^"]+"$/);

    for (const [range, from, to] of [
      ['bytes=0-0', 0, 1],
      ['bytes=10-19', 10, 20],
      ['bytes=99990-', 99_990, 100_000],
      ['bytes=-5', 99_995, 100_000],
      ['bytes=99999-200000', 99_999, 100_000],
    ] as const) {
      const part = await get(id, { range });
      expect([range, part.status]).toEqual([range, 206]);
      expect(part.headers.get('content-range')).toBe(`bytes ${from}-${to - 1}/100000`);
      expect(part.bytes.equals(bytes.subarray(from, to))).toBe(true);
    }
    for (const range of ['bytes=5-4', 'bytes=a-b', 'bytes=', 'lines=1-2', 'bytes=0-1,5-6']) {
      const ignored = await get(id, { range });
      expect([range, ignored.status, ignored.bytes.length]).toEqual([range, 200, 100_000]);
    }
    const beyond = await get(id, { range: 'bytes=100000-' });
    expect(beyond.status).toBe(416);
    expect(beyond.headers.get('content-range')).toBe('bytes */100000');
    expect((await get(id, { range: 'bytes=0-9', 'if-range': etag })).status).toBe(206);
    expect((await get(id, { range: 'bytes=0-9', 'if-range': '"other"' })).status).toBe(200);

    const known = await get(id, { 'if-none-match': `"x", ${etag}` });
    expect([known.status, known.bytes.length, known.headers.get('etag')]).toEqual([304, 0, etag]);
    expect((await get(id, { 'if-none-match': '"x"' })).status).toBe(200);
    const head = await get(id, {}, 'HEAD');
    expect([head.status, head.headers.get('content-length'), head.headers.get('etag')]).toEqual([200, '100000', etag]);
    expect(head.bytes).toHaveLength(0);
  });

  test.each(['text/html', 'image/svg+xml', 'application/pdf', 'application/javascript', 'text/plain'])(
    '%s, which a browser might run, is served as an attachment under its name',
    async (type) => {
      const { blob_id: id } = (await upload(form(undefined, type))).body;
      const disposition = (await get(id)).headers.get('content-disposition')!;
      expect(disposition).toMatch(/^attachment/);
      expect(disposition).toContain(encodeURIComponent('Schönes Bild.png'));
    },
  );

  test('a file is deleted with its document', async () => {
    const { blob_id: id } = (await uploadRaw()).body;
    const gone = await app.call('DELETE', `${path}/${id}`);
    expect(gone.status).toBe(202);
    expect(gone.body).toMatchObject({ ticket_id: text, blob_id: id, status: 'Completed' });
    expect((await get(id)).status).toBe(404);
    expect(await app.call('DELETE', `${path}/${id}`)).toMatchObject({ status: 404, body: { code: 'BLOB_NOT_FOUND' } });
    expect((await app.list('files')).body.records).toMatchObject([{ id, deleted: true }]);
    const open = await send(granary.url, 'GET', `/api/apps/${app.appId}/collections/files/data`);
    expect(open.body).toMatchObject({ total: 0 });
  });

  test('a file is found in its own collection and app only', async () => {
    const { blob_id: id } = (await uploadRaw()).body;
    await app.store('other', [{ id }]);
    const other = await newApp(granary);
    await other.store('files', [{ id }]);
    for (const target of [`/api/apps/${app.appId}/blobs/other/${id}`, `/api/apps/${other.appId}/blobs/files/${id}`]) {
      expect(await send(granary.url, 'GET', target)).toMatchObject({ status: 404, body: { code: 'BLOB_NOT_FOUND' } });
    }
    expect((await other.call('DELETE', `/api/apps/${other.appId}/blobs/files/${id}`)).status).toBe(404);
    expect((await get(id)).status).toBe(200);
  });

  describe('under an id that the client chooses', () => {
    const put = (id: string, body: Body = bytes, headers: Record<string, string> = {}, target = path) =>
      app.call<Uploaded>('PUT', `${target}/${id}`, body, {
        ...(body instanceof FormData ? {} : { 'content-type': 'image/png' }),
        ...headers,
      });
    const taken = { status: 409, body: { code: 'ALREADY_EXISTS' } };

    test('a file is what it is after an upload, raw and in a form', async () => {
      const [raw, inForm] = [randomUUID(), randomUUID()];
      const made = await put(raw, bytes, { 'x-blob-metadata': '{"album":"Ulm"}' });
      expect(made).toMatchObject({ status: 202, body: { blob_id: raw, ticket_id: text, status: 'Completed' } });
      expect((await put(inForm, form({ album: 'Bonn' }))).status).toBe(202);
      const { records } = (await app.list<{ album: string }>('files')).body;
      const described = { size_bytes: bytes.length, sha256, tx_hash: hash, content_type: 'image/png' };
      expect(records.sort((one, other) => one.album.localeCompare(other.album))).toMatchObject([
        { id: inForm, blob_id: inForm, album: 'Bonn', ...described },
        { id: raw, blob_id: raw, album: 'Ulm', ...described },
      ]);
      const whole = await get(inForm);
      expect(whole.bytes.equals(bytes)).toBe(true);
      expect(whole.headers.get('content-disposition')).toContain(encodeURIComponent('Schönes Bild.png'));
      expect((await get(raw, { range: 'bytes=0-9' })).status).toBe(206);
      expect((await app.call('GET', `/api/tasks/${made.body.ticket_id}`)).body['status']).toBe('Completed');
    });

    test.each(['first', '0190F3A2-B4C8-7D6E-8F90-A1B2C3D4E5F6', '0190f3a2b4c87d6e8f90a1b2c3d4e5f6'])(
      '%s, which is no id that the service makes, is refused',
      async (id) => {
        expect(await put(id)).toMatchObject({
          status: 400,
          body: { code: 'VALIDATION_FAILED', details: { blob_id: [text] } },
        });
        expect((await app.list('files')).status).toBe(404);
      },
    );

    test('an id is taken by a file, by that of an upload, and by a document, and these stay as they are', async () => {
      const id = randomUUID();
      await put(id);
      expect(await put(id, Buffer.from('other'))).toMatchObject(taken);
      const { blob_id: uploaded } = (await uploadRaw()).body;
      expect(await put(uploaded, Buffer.from('other'))).toMatchObject(taken);
      await app.store('files', [{ id: '00000000-0000-7000-8000-000000000001', is: 'mine' }]);
      expect(await put('00000000-0000-7000-8000-000000000001')).toMatchObject(taken);
      for (const each of [id, uploaded]) expect((await get(each)).bytes.equals(bytes)).toBe(true);
      const { records } = (await app.list<{ id: string; sha256?: string; is?: string }>('files')).body;
      expect(records.map((record) => record.sha256 ?? record.is).sort()).toEqual([sha256, sha256, 'mine'].sort());
      expect((await get('00000000-0000-7000-8000-000000000001')).status).toBe(404);
    });

    test('an id is taken by a file whose document alone is deleted', async () => {
      const id = randomUUID();
      await put(id);
      await app.store('files', [{ id, deleted: true }]);
      expect(await put(id, Buffer.from('other'))).toMatchObject(taken);
      expect((await get(id)).bytes.equals(bytes)).toBe(true);
    });

    test('the same id is free in another app and another collection, whose files stay apart', async () => {
      const id = randomUUID();
      const others = await newApp(granary);
      const theirs = `/api/apps/${others.appId}/blobs/files`;
      await put(id);
      const send = (target: string, body: string) => put(id, Buffer.from(body), {}, target);
      expect((await send(`/api/apps/${app.appId}/blobs/others`, 'in another collection')).status).toBe(202);
      expect((await others.call('PUT', `${theirs}/${id}`, 'theirs', { 'content-type': 'text/plain' })).status).toBe(
        202,
      );
      expect((await get(id)).bytes.equals(bytes)).toBe(true);
      expect((await others.call('GET', `${theirs}/${id}`)).text).toBe('theirs');
      expect((await app.call('DELETE', `${path}/${id}`)).status).toBe(202);
      expect((await others.call('GET', `${theirs}/${id}`)).text).toBe('theirs');
      expect((await app.call('GET', `/api/apps/${app.appId}/blobs/others/${id}`)).text).toBe('in another collection');
    });

    test('the id of a file that was deleted is free, and so is one that was erased', async () => {
      const id = randomUUID();
      await put(id);
      await app.call('DELETE', `${path}/${id}`);
      expect((await put(id, Buffer.from('second'))).status).toBe(202);
      expect((await get(id)).bytes.toString()).toBe('second');
      const document = `/api/apps/${app.appId}/collections/files/documents/${id}`;
      expect((await app.call('DELETE', `${document}?erase=true`)).status).toBe(200);
      // The file goes by an event of the erasure.
      expect(await eventually(async () => (await put(id, Buffer.from('third'))).status === 202)).toBe(true);
      expect((await get(id)).bytes.toString()).toBe('third');
      expect((await app.list('files')).body.records).toMatchObject([{ id, size_bytes: 5 }]);
    });

    test('a repeated deletion answers as the first one, and leaves the file that was stored since', async () => {
      const [id, headers] = [randomUUID(), { 'idempotency-key': 'delete-1' }];
      await put(id);
      const first = await app.call('DELETE', `${path}/${id}`, undefined, headers);
      expect((await put(id, Buffer.from('since'))).status).toBe(202);
      const again = await app.call('DELETE', `${path}/${id}`, undefined, headers);
      expect([again.status, again.body]).toEqual([202, first.body]);
      expect((await get(id)).bytes.toString()).toBe('since');
      expect((await app.list('files')).body.records).toMatchObject([{ id, size_bytes: 5 }]);
      expect((await app.call('DELETE', `${path}/${id}`)).status).toBe(202);
      expect((await get(id)).status).toBe(404);
    });

    test('of deletions and uploads of one id at once nothing is left that is half there', async () => {
      const id = randomUUID();
      const work = async (step: (round: number) => Promise<{ status: number }>) => {
        for (let round = 0; round < 10; round++) {
          await setTimeout(randomInt(10));
          expect([202, 404, 409]).toContain((await step(round)).status);
        }
      };
      const uploads = (name: string) => work((round) => put(id, Buffer.from(`${name} ${round}`)));
      const deletions = () => work(() => app.call('DELETE', `${path}/${id}`));
      await Promise.all([uploads('one'), deletions(), uploads('two'), deletions()]);
      const { records } = (await app.list<{ sha256: string; deleted?: true }>('files')).body;
      const [document] = records.filter(({ deleted }) => deleted !== true);
      const file = await get(id);
      expect(file.status).toBe(document ? 200 : 404);
      if (document) expect(createHash('sha256').update(file.bytes).digest('hex')).toBe(document.sha256);
      expect(await put(id)).toMatchObject(document ? taken : { status: 202 });
    });

    test('the ids of a deleted collection are free in the next one of its name', async () => {
      const id = randomUUID();
      await put(id);
      await app.call('DELETE', `/api/apps/${app.appId}/collections/files?force=true`);
      expect((await put(id, Buffer.from('next'))).status).toBe(202);
      const stats = `/api/apps/${app.appId}/collections/files/stats`;
      expect((await app.call('GET', stats)).body).toMatchObject({ document_count: 1 });
      expect((await get(id)).bytes.toString()).toBe('next');
    });

    test('of many uploads of one id at once one is stored, with the document that belongs to it', async () => {
      const id = randomUUID();
      const contents = Array.from({ length: 6 }, (_, index) => Buffer.alloc(1_000 + index, index));
      const answers = await Promise.all(contents.map((content) => put(id, content)));
      expect(answers.map(({ status }) => status).sort()).toEqual([202, 409, 409, 409, 409, 409]);
      const stored = contents[answers.findIndex(({ status }) => status === 202)]!;
      expect((await get(id)).bytes.equals(stored)).toBe(true);
      expect((await app.list('files', { include_history: true })).body.records).toMatchObject([
        { id, size_bytes: stored.length, sha256: createHash('sha256').update(stored).digest('hex') },
      ]);
    });

    test('an idempotency key answers a repeated upload as the first one, and refuses another file', async () => {
      const [id, headers] = [randomUUID(), { 'idempotency-key': 'put-1' }];
      const first = await put(id, bytes, headers);
      for (const again of await Promise.all([put(id, bytes, headers), put(id, bytes, headers)])) {
        expect([again.status, again.body]).toEqual([202, first.body]);
        expect(again.headers.get('idempotency-replayed')).toBe('true');
      }
      expect((await put(id, Buffer.from('x'), headers)).body.code).toBe('IDEMPOTENCY_KEY_REUSED');
      expect(await put(id)).toMatchObject(taken);
      expect((await app.list('files', { include_history: true })).body.total).toBe(1);
    });

    test('a metadata document that the schema refuses leaves the id free', async () => {
      const id = randomUUID();
      await app.call('POST', `/api/apps/${app.appId}/collections`, {
        name: 'files',
        schema_definition: { fields: { album: { type: 'string', required: true } } },
      });
      expect(await put(id)).toMatchObject({ status: 422, body: { code: 'SCHEMA_VIOLATION' } });
      expect((await get(id)).status).toBe(404);
      expect((await put(id, form({ album: 'a' }))).status).toBe(202);
    });
  });

  test('an idempotency key makes one blob of repeated uploads of one file, and refuses another file', async () => {
    const headers = { 'idempotency-key': 'upload-1' };
    const first = await uploadRaw(headers);
    const again = await Promise.all([uploadRaw(headers), uploadRaw(headers), uploadRaw(headers)]);
    for (const { status, body } of again) expect([status, body]).toEqual([202, first.body]);
    expect((await app.list('files')).body.total).toBe(1);
    const other = await upload(Buffer.from('other'), { 'content-type': 'image/png', ...headers });
    expect(other).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
  });

  test('a metadata document that the schema refuses leaves neither a document nor bytes', async () => {
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'files',
      schema_definition: {
        fields: { album: { type: 'string', required: true }, code: { type: 'string', unique: true } },
      },
    });
    expect(await uploadRaw()).toMatchObject({ status: 422, body: { code: 'SCHEMA_VIOLATION' } });
    const kept = await upload(form({ album: 'a', code: '1' }));
    expect(kept.status).toBe(202);
    expect(await upload(form({ album: 'b', code: '1' }))).toMatchObject({
      status: 409,
      body: { code: 'UNIQUE_VIOLATION' },
    });
    expect((await app.list('files')).body.records).toMatchObject([{ id: kept.body.blob_id }]);
    expect((await app.call('GET', `/api/apps/${app.appId}/stats`)).body).toMatchObject({
      height: 2,
      document_count: 1,
    });
  });

  test('a client that disconnects during an upload leaves nothing behind', async () => {
    const { hostname, port } = new URL(granary.url);
    await new Promise<void>((resolve, reject) => {
      const socket = connect(Number(port), hostname, () => {
        socket.write(
          `POST ${path} HTTP/1.1\r\nHost: x\r\nX-App-Key: ${app.key}\r\nContent-Type: image/png\r\nContent-Length: 1000000\r\n\r\n`,
        );
        socket.write(bytes, () => socket.destroy());
      });
      socket.on('close', () => resolve()).on('error', reject);
    });
    const { blob_id: id } = (await uploadRaw()).body;
    expect((await app.list('files')).body.records).toMatchObject([{ id }]);
    expect((await app.call('GET', `/api/applications/${app.appId}`)).body).toMatchObject({ height: 2 });
  });

  test('the files of a deleted collection are deleted with it', async () => {
    const { blob_id: id } = (await uploadRaw()).body;
    expect((await app.call('DELETE', `/api/apps/${app.appId}/collections/files?force=true`)).status).toBe(200);
    expect((await get(id)).status).toBe(404);
    await app.store('files', [{ id: 'new' }]);
    expect(await eventually(async () => (await get(id)).status === 404)).toBe(true);
  });

  test('metadata cannot replace the fields that the service sets', async () => {
    const own = { blob_id: 'mine', sha256: 'mine', size_bytes: 1, content_type: 'mine', tx_hash: 'mine', id: 'mine' };
    const refused = await uploadRaw({ 'x-blob-metadata': JSON.stringify({ ...own, album: 'a' }) });
    expect(refused).toMatchObject({ status: 400, body: { code: 'VALIDATION_FAILED' } });
    expect(Object.keys(refused.body['details' as keyof Uploaded]!).sort()).toEqual(
      Object.keys(own)
        .map((field) => `metadata.${field}`)
        .sort(),
    );
    expect((await app.list('files')).status).toBe(404);
  });
}
