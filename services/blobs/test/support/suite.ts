import { createHash, randomBytes } from 'node:crypto';
import { newDocumentId } from '@granary/shared/ids';
import { ServiceError } from '@granary/shared/errors';
import { healthDefinition } from '@granary/shared/service/health-rpc';
import { rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventuallyHolds } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { answerOf, appId, call, collection, form, open, signed, startBench, uploadGrant, type Bench } from './bench';

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const states = async (bench: Bench) =>
  (await rows<{ state: string }>(bench.pool, sql`select state from blob`)).map((blob) => blob.state);
const text = { 'content-type': 'text/plain' };

/** The tests of what the service guarantees, on whichever store the benches use. */
export function blobsSuite(): void {
  let bench: Bench;
  beforeAll(async () => {
    bench = await startBench({ PENDING_GRACE_MS: 0 });
  });
  afterAll(() => bench.stop());

  /** A bench of a test that breaks something. */
  async function withBench(changes: Parameters<typeof startBench>[0], work: (own: Bench) => Promise<void>) {
    const own = await startBench(changes);
    try {
      await work(own);
    } finally {
      await own.stop();
    }
  }

  describe('uploads', () => {
    test.each(['before', 'after'])(
      'a file comes back byte for byte, with the metadata %s it passed on',
      async (place) => {
        const bytes = randomBytes(700_000);
        const file = { name: 'blob', content: bytes, filename: 'Plakat „Straße“.png', type: 'image/png' };
        const metadata = { name: 'metadata', content: '{"title":"Straße","n":1.50}' };
        const { headers, body } = place === 'before' ? form(metadata, file) : form(file, metadata);
        const permit = { blobId: newDocumentId() };
        const answer = await bench.upload(headers, body, permit);
        expect(answer.json()).toEqual({
          ticket_id: expect.stringMatching(/^c7-/) as string,
          blob_id: permit.blobId,
          status: 'Completed',
          message: 'The blob is stored',
        });
        expect(answer.status).toBe(202);

        const committed = bench.commits.uploads.find((upload) => upload.blobId === permit.blobId)!;
        expect(committed).toMatchObject({
          appId,
          collection,
          contentType: 'image/png',
          sizeBytes: '700000',
          sha256: sha256(bytes),
        });
        expect(committed.metadata.toString()).toBe(metadata.content);
        expect(Date.parse(committed.uploadedAt)).toBeGreaterThan(Date.now() - 60_000);

        const read = await bench.read(permit.blobId);
        expect(read.status).toBe(200);
        expect(read.body.equals(bytes)).toBe(true);
        expect(read.headers).toMatchObject({
          'content-type': 'image/png',
          'content-length': '700000',
          'accept-ranges': 'bytes',
          etag: `"${sha256(bytes)}"`,
          'content-disposition': `inline; filename="Plakat _Stra_e_.png"; filename*=UTF-8''Plakat%20%E2%80%9EStra%C3%9Fe%E2%80%9C.png`,
          'x-content-type-options': 'nosniff',
          'content-security-policy': "sandbox; default-src 'none'",
          'cross-origin-resource-policy': 'cross-origin',
          'cache-control': 'private, no-cache',
        });
      },
    );

    test('a raw body is a file, with its metadata in a header, whatever its type and length', async () => {
      for (const bytes of [Buffer.alloc(0), Buffer.from('<svg/>')]) {
        const permit = { blobId: newDocumentId() };
        const metadata = Buffer.from('{"title":"Café"}').toString('latin1');
        const answer = await bench.upload(
          { 'content-type': 'image/svg+xml', 'x-blob-metadata': metadata },
          bytes,
          permit,
        );
        expect(answer.status).toBe(202);
        expect(bench.commits.uploads.at(-1)!.metadata.toString()).toBe('{"title":"Café"}');
        const read = await bench.read(permit.blobId);
        expect(read.body.equals(bytes)).toBe(true);
        expect(read.headers['content-disposition']).toBe('attachment');
      }
    });

    test('an empty file in a form is a blob of no bytes', async () => {
      const { headers, body } = form({ name: 'blob', content: '', filename: '../../etc/passwd' });
      const permit = { blobId: newDocumentId() };
      expect((await bench.upload(headers, body, permit)).status).toBe(202);
      const read = await bench.read(permit.blobId, { range: 'bytes=0-' });
      expect(read.status).toBe(416);
      expect((await bench.read(permit.blobId)).headers['content-disposition']).toBe('attachment; filename="passwd"');
    });

    const file = { name: 'blob', content: 'bytes', filename: 'a.txt' };
    const whole = form(file);
    const badUploads: Array<[string, { headers: Record<string, string>; body: Buffer }, string, string]> = [
      ['no file', form({ name: 'metadata', content: '{}' }), 'VALIDATION_FAILED', 'blob'],
      ['two files', form(file, file), 'VALIDATION_FAILED', 'blob'],
      [
        'metadata twice',
        form(file, { name: 'metadata', content: '{}' }, { name: 'metadata', content: '{}' }),
        'VALIDATION_FAILED',
        'metadata',
      ],
      ['an unknown part', form(file, { name: 'extra', content: 'x' }), 'VALIDATION_FAILED', 'extra'],
      [
        'an unknown part before the file',
        form({ name: '__proto__', content: 'x' }, file),
        'VALIDATION_FAILED',
        '__proto__',
      ],
      [
        'a large unknown part before the file',
        form({ name: 'extra', content: 'x'.repeat(1_000_000) }, { ...file, content: 'y'.repeat(100_000) }),
        'VALIDATION_FAILED',
        'extra',
      ],
      ['metadata that is no JSON', form(file, { name: 'metadata', content: '{' }), 'VALIDATION_FAILED', 'metadata'],
      ['metadata that is an array', form({ name: 'metadata', content: '[]' }, file), 'VALIDATION_FAILED', 'metadata'],
      [
        'metadata with a key twice',
        form(file, { name: 'metadata', content: '{"a":1,"a":2}' }),
        'VALIDATION_FAILED',
        'metadata',
      ],
      [
        'metadata over 64 KiB',
        form(file, { name: 'metadata', content: `{"a":"${'x'.repeat(70_000)}"}` }),
        'PAYLOAD_TOO_LARGE',
        'metadata',
      ],
      [
        'a form without an end',
        { headers: { 'content-type': whole.headers['content-type']! }, body: whole.body.subarray(0, -20) },
        'VALIDATION_FAILED',
        '',
      ],
      [
        'a form without a boundary',
        { headers: { 'content-type': 'multipart/form-data' }, body: whole.body },
        'VALIDATION_FAILED',
        '',
      ],
      ['an empty form', { headers: whole.headers, body: Buffer.alloc(0) }, 'VALIDATION_FAILED', ''],
      ['no body and no type', { headers: {}, body: Buffer.alloc(0) }, 'VALIDATION_FAILED', 'blob'],
      [
        'raw metadata that is no JSON',
        { headers: { ...text, 'x-blob-metadata': 'nope' }, body: Buffer.from('x') },
        'VALIDATION_FAILED',
        'metadata',
      ],
    ];
    test.each(badUploads)('%s is refused by name and leaves nothing', async (_, { headers, body }, reason, part) => {
      const files = (await bench.files()).length;
      const rest = { ...headers };
      delete rest['content-length'];
      const answer = await bench.upload(rest, body, {});
      expect(answer.json()).toMatchObject({ reason });
      expect(Object.keys(answer.json().details as object).map((key) => key.split('.')[0])).toContain(part);
      expect((await bench.files()).length).toBe(files);
      expect(await states(bench)).not.toContain('pending');
    });

    test.each([
      ['with a declared length, before a byte is sent', 'declared'],
      ['without one, at the first byte beyond', 'raw'],
      ['in a form', 'form'],
    ])('a file over the limit is refused %s, and leaves nothing', async (_, how) => {
      const files = (await bench.files()).length;
      const bytes = Buffer.alloc(3_000_000, 'x');
      const sign = signed({ ...uploadGrant({ maxBytes: 1_000_000 }), expiresAtMs: Date.now() + limitMs(10_000) });
      const parts = form({ name: 'blob', content: bytes, filename: 'a' });
      const headers = how === 'form' ? { 'content-type': parts.headers['content-type']! } : text;
      const length =
        how === 'declared' ? { 'content-length': String(bytes.length) } : { 'transfer-encoding': 'chunked' };
      const request = open(bench.running.httpAddress, 'POST', { ...sign, ...headers, ...length });
      const answering = answerOf(request);
      // The body is never ended: the refusal cannot have waited for its end.
      if (how === 'declared') request.flushHeaders();
      else request.write(how === 'form' ? parts.body.subarray(0, 2_000_000) : bytes);
      const answer = await answering;
      expect(answer.json()).toMatchObject({ reason: 'PAYLOAD_TOO_LARGE', details: { limit_bytes: 1_000_000 } });
      await eventuallyHolds(
        () => bench.files(),
        (found) => found.length === files,
      );
    });

    test('a file of exactly the limit is taken', async () => {
      const { headers, body } = form({ name: 'blob', content: Buffer.alloc(5_000), filename: 'a' });
      expect((await bench.upload(headers, body, { maxBytes: 5_000 })).status).toBe(202);
      expect((await bench.upload(headers, body, { maxBytes: 4_999 })).json()).toMatchObject({
        reason: 'PAYLOAD_TOO_LARGE',
      });
    });

    test.each(['raw', 'form'])('a client that leaves in the middle leaves nothing (%s)', async (how) => {
      const files = (await bench.files()).length;
      const uploads = bench.commits.uploads.length;
      const parts = form({ name: 'blob', content: Buffer.alloc(4_000_000), filename: 'a' });
      const sign = signed({ ...uploadGrant(), expiresAtMs: Date.now() + limitMs(10_000) });
      const headers = how === 'raw' ? { ...text, 'content-length': '9000000' } : parts.headers;
      const request = open(bench.running.httpAddress, 'POST', { ...sign, ...headers });
      request.on('error', () => {});
      request.write(parts.body.subarray(0, 2_000_000));
      // Elsewhere so little is held in memory.
      if (bench.store.showsArrivals) {
        await eventuallyHolds(
          () => bench.files(),
          (found) => found.length === files + 1,
        );
      }
      request.destroy();
      await eventuallyHolds(
        () => bench.files(),
        (found) => found.length === files,
      );
      expect(bench.commits.uploads.length).toBe(uploads);
    });

    test('nothing is done without a permit that is ours, whole, in time and for this', async () => {
      const permit = { ...uploadGrant(), expiresAtMs: Date.now() + limitMs(10_000) };
      const good = signed(permit)['x-granary-grant']!;
      const late = signed({ ...permit, expiresAtMs: Date.now() - 1 })['x-granary-grant']!;
      const [payload, signature] = good.split('.') as [string, string];
      const larger = Buffer.from(JSON.stringify({ ...permit, maxBytes: 2 ** 50 })).toString('base64url');
      for (const bad of ['', 'x', payload, `${payload}.`, `${larger}.${signature}`, `${good}.x`, late]) {
        const request = open(bench.running.httpAddress, 'POST', { ...text, 'x-granary-grant': bad });
        request.end('x');
        const answer = await answerOf(request);
        expect([answer.status, answer.json().code]).toEqual([401, 'UNAUTHENTICATED']);
      }
      const request = open(bench.running.httpAddress, 'GET', { 'x-granary-grant': good });
      request.end();
      expect((await answerOf(request)).status).toBe(404);
    });

    test('an upload under an id of the client waits for the end of an upgrade where data does not know it', async () => {
      await withBench({}, async (own) => {
        own.commits.mood = new ServiceError('UNIMPLEMENTED', 'NOT_IMPLEMENTED', 'There is no such method');
        const answer = await own.upload(text, Buffer.from('x'), { isIdChosen: true });
        expect([answer.status, answer.json()]).toMatchObject([503, { reason: 'UNAVAILABLE' }]);
        expect([await states(own), await own.files()]).toEqual([[], []]);
      });
    });

    test('a refused metadata document leaves no bytes, and the refusal is passed on', async () => {
      const files = (await bench.files()).length;
      bench.commits.mood = new ServiceError('INVALID_ARGUMENT', 'SCHEMA_VIOLATION', 'no', {
        details: { title: ['is missing'] },
      });
      const answer = await bench.upload(text, Buffer.from('x'));
      bench.commits.mood = 'well';
      expect(answer.json()).toMatchObject({ reason: 'SCHEMA_VIOLATION', details: { title: ['is missing'] } });
      expect((await bench.files()).length).toBe(files);
      expect(await states(bench)).not.toContain('pending');
    });

    test('the same idempotency key with the same content is answered as before, and its bytes are stored once', async () => {
      const permit = () => ({ idempotencyKey: 'k1', blobId: newDocumentId() });
      const file = { name: 'blob', content: 'same', filename: 'a.txt', type: 'text/plain' };
      const a = form(file, { name: 'metadata', content: '{"a":1,"b":{"c":2,"d":3}}' });
      const b = form({ name: 'metadata', content: '{ "b": {"d":3,"c":2}, "a":1 }' }, file);
      const first = await bench.upload(a.headers, a.body, permit());
      const files = (await bench.files()).length;
      const again = await bench.upload(b.headers, b.body, permit());
      expect(again.json()).toEqual(first.json());
      expect((await bench.files()).length).toBe(files);
      const other = form({ ...file, filename: 'b.txt' });
      expect((await bench.upload(other.headers, other.body, permit())).json()).toMatchObject({
        reason: 'IDEMPOTENCY_KEY_REUSED',
      });
      expect((await bench.files()).length).toBe(files);
    });
  });

  describe('reading', () => {
    const content = Buffer.from('0123456789');
    const etag = `"${sha256(content)}"`;
    const blobId = newDocumentId();
    beforeAll(() => bench.upload(text, content, { blobId }));

    test.each([
      ['bytes=0-0', 206, '0', 'bytes 0-0/10'],
      ['bytes=2-5', 206, '2345', 'bytes 2-5/10'],
      ['bytes=7-', 206, '789', 'bytes 7-9/10'],
      ['bytes=7-999', 206, '789', 'bytes 7-9/10'],
      ['bytes=-3', 206, '789', 'bytes 7-9/10'],
      ['bytes=-999', 206, '0123456789', 'bytes 0-9/10'],
      ['BYTES=0-1', 206, '01', 'bytes 0-1/10'],
      ['bytes=10-', 416, undefined, 'bytes */10'],
      ['bytes=99999999999999-', 416, undefined, 'bytes */10'],
      ['bytes=-0', 416, undefined, 'bytes */10'],
      ['bytes=5-2', 200, '0123456789', undefined],
      ['bytes=0-1,3-4', 200, '0123456789', undefined],
      ['bytes=', 200, '0123456789', undefined],
      ['bytes=-', 200, '0123456789', undefined],
      ['bytes=a-b', 200, '0123456789', undefined],
      ['items=0-1', 200, '0123456789', undefined],
    ])('Range %s is answered with %i', async (range, status, body, contentRange) => {
      const answer = await bench.read(blobId, { range });
      expect(answer.headers['content-range']).toBe(contentRange);
      if (status === 416) expect(answer.json()).toMatchObject({ reason: 'RANGE_NOT_SATISFIABLE' });
      else expect([answer.status, answer.body.toString()]).toEqual([status, body]);
    });

    test.each([
      [{ 'if-none-match': etag }, 304],
      [{ 'if-none-match': `"x", W/${etag}` }, 304],
      [{ 'if-none-match': '*' }, 304],
      [{ 'if-none-match': '"x"' }, 200],
      [{ 'if-match': etag }, 200],
      [{ 'if-match': '*' }, 200],
      [{ 'if-match': `W/${etag}` }, 412],
      [{ 'if-match': '"x"', 'if-none-match': etag }, 412],
      [{ 'if-range': etag, range: 'bytes=0-1' }, 206],
      [{ 'if-range': '"x"', range: 'bytes=0-1' }, 200],
      [{ 'if-range': 'Fri, 20 Nov 2026 00:00:00 GMT', range: 'bytes=0-1' }, 200],
      [{ 'if-none-match': etag, range: 'bytes=0-1' }, 304],
    ])('the conditions %j are answered with %i', async (headers, status) => {
      const answer = await bench.read(blobId, headers);
      if (status === 412) return expect(answer.json()).toMatchObject({ reason: 'PRECONDITION_FAILED' });
      expect(answer.status).toBe(status);
      expect(answer.headers.etag).toBe(etag);
      expect(answer.body.length).toBe(status === 304 ? 0 : status === 206 ? 2 : 10);
    });

    test('HEAD answers like GET, without the bytes and without ranges', async () => {
      const answer = await bench.read(blobId, { range: 'bytes=0-1' }, 'HEAD');
      expect([answer.status, answer.headers['content-length'], answer.body.length]).toEqual([200, '10', 0]);
      const missing = await bench.read(newDocumentId(), {}, 'HEAD');
      expect([missing.status, missing.headers['x-granary-error']]).toEqual([404, 'NOT_FOUND BLOB_NOT_FOUND']);
    });

    test('a blob is found under its own app and collection only', async () => {
      for (const other of [{ appId: 'other' }, { collection: 'other' }, { blobId: newDocumentId() }]) {
        const permit = {
          op: 'read',
          appId,
          collection,
          blobId,
          expiresAtMs: Date.now() + limitMs(10_000),
          ...other,
        } as const;
        const request = open(bench.running.httpAddress, 'GET', signed(permit));
        request.end();
        expect((await answerOf(request)).json()).toMatchObject({ code: 'NOT_FOUND', reason: 'BLOB_NOT_FOUND' });
      }
    });

    test('a reader that goes away holds nothing open', async () => {
      const permit = { blobId: newDocumentId() };
      await bench.upload(text, Buffer.alloc(30_000_000), permit);
      const read = {
        op: 'read',
        appId,
        collection,
        blobId: permit.blobId,
        expiresAtMs: Date.now() + limitMs(10_000),
      } as const;
      const request = open(bench.running.httpAddress, 'GET', signed(read));
      request.end();
      await new Promise<void>((resolve) =>
        request.once('response', (response) => response.once('readable', () => resolve())),
      );
      request.on('error', () => {});
      request.destroy();
      // A stop waits for transfers under way, so this one is over.
      await bench.restart();
      expect((await bench.read(permit.blobId, { range: 'bytes=0-3' })).body.length).toBe(4);
    });
  });

  describe('what is left undecided', () => {
    test('an answer of data that got lost is asked for again, and the upload happens once', async () => {
      await withBench({}, async (own) => {
        own.commits.mood = { lostAs: 'UNAVAILABLE' };
        const uploading = own.upload(text, Buffer.from('x'));
        await eventuallyHolds(
          async () => own.commits.uploads.length,
          (count) => count === 1,
        );
        own.commits.mood = 'well';
        expect((await uploading).status).toBe(202);
        expect(own.commits.uploads.length).toBe(1);
        expect(await states(own)).toEqual(['stored']);
      });
    });

    test.each(['DEADLINE_EXCEEDED', 'CANCELLED', 'INTERNAL'] as const)(
      'an upload that data has committed is kept although its answer was %s',
      async (code) => {
        await withBench({}, async (own) => {
          own.commits.mood = { lostAs: code };
          expect((await own.upload(text, Buffer.from('x'), { blobId: 'b1' })).status).toBeGreaterThanOrEqual(400);
          own.commits.mood = 'well';
          expect((await own.read('b1')).body.toString()).toBe('x');
        });
      },
    );

    test('a crash after the commit leaves a blob that can be read at once', async () => {
      const blobId = newDocumentId();
      await bench.upload(text, Buffer.from('committed'), { blobId });
      await bench.pool.query(`update blob set state = 'pending', tx_hash = null, height = null where blob_id = $1`, [
        blobId,
      ]);
      expect((await bench.read(blobId)).body.toString()).toBe('committed');
      expect(
        (await rows<{ state: string }>(bench.pool, sql`select state from blob where blob_id = ${blobId}`))[0]!.state,
      ).toBe('stored');
    });

    test('a permit that is used again takes nothing from the upload that it was for', async () => {
      const blobId = newDocumentId();
      await bench.upload(text, Buffer.from('the first'), { blobId });
      // This is the state while data is being asked.
      await bench.pool.query(`update blob set state = 'pending', tx_hash = null, height = null where blob_id = $1`, [
        blobId,
      ]);
      expect((await bench.upload(text, Buffer.from('the second'), { blobId })).status).toBeGreaterThanOrEqual(400);
      expect((await bench.read(blobId)).body.toString()).toBe('the first');
    });

    test('a crash before the commit leaves neither a row nor bytes, once the time of grace is over', async () => {
      await withBench({}, async (own) => {
        await own.upload(text, Buffer.from('x'), { blobId: 'b1', ticketId: 'c7-AAAAAAAAAAAAAAAAAAAA' });
        // This is the state that a process leaves that was killed just before it asked data.
        await own.pool.query(`update blob set state = 'pending', ticket = 'c7-BBBBBBBBBBBBBBBBBBBB'`);
        expect((await own.read('b1')).status).toBe(404);
        await own.restart();
        expect((await own.files()).length).toBe(1);
        await own.restart({ PENDING_GRACE_MS: 0 });
        await eventuallyHolds(
          () => states(own),
          (found) => found.length === 0,
        );
        await eventuallyHolds(
          () => own.files(),
          (found) => found.length === 0,
        );
      });
    });

    test('while data is down nothing is decided; afterwards everything is', async () => {
      await withBench({}, async (own) => {
        await own.upload(text, Buffer.from('x'), { blobId: 'b1' });
        await own.pool.query(`update blob set state = 'pending'`);
        own.commits.mood = 'down';
        expect((await own.read('b1')).status).toBe(503);
        await own.restart({ PENDING_GRACE_MS: 0 });
        expect(await states(own)).toEqual(['pending']);
        own.commits.mood = 'well';
        await eventuallyHolds(
          () => states(own),
          ([state]) => state === 'stored',
        );
        expect((await own.read('b1')).body.toString()).toBe('x');
      });
    });
  });

  const noKey = { caller: 'app/7/default', method: '', path: '', key: '', contentHash: Buffer.alloc(0) };
  const remove = (own: Bench, blobId: string, name = collection) =>
    own.client.deleteBlob(
      { appId, appNumber: '7', collection: name, blobId, ticketId: `c7-${blobId.slice(-20)}`, idempotency: noKey },
      call(),
    );

  describe('deletion', () => {
    test('a deleted blob is gone with its bytes, and its metadata document is deleted', async () => {
      const blobId = newDocumentId();
      await bench.upload(text, Buffer.from('x'), { blobId });
      const files = (await bench.files()).length;
      const { height } = await remove(bench, blobId);
      expect(Number(height)).toBeGreaterThan(0);
      expect(JSON.parse(bench.commits.stores.at(-1)!)).toEqual({
        root: 'cinema::posters',
        data: [{ id: blobId, deleted: true }],
      });
      expect((await bench.read(blobId)).json()).toMatchObject({ reason: 'BLOB_NOT_FOUND' });
      expect((await bench.files()).length).toBe(files - 1);
      await expect(remove(bench, blobId)).rejects.toMatchObject({ reason: 'BLOB_NOT_FOUND' });
      await expect(remove(bench, newDocumentId(), 'other')).rejects.toMatchObject({ reason: 'BLOB_NOT_FOUND' });
    });

    test.each(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'CANCELLED', 'INTERNAL'] as const)(
      'a deletion that data has committed is finished although its answer was %s',
      async (code) => {
        const blobId = newDocumentId();
        await bench.upload(text, Buffer.from('x'), { blobId });
        bench.commits.mood = { lostAs: code };
        await expect(remove(bench, blobId)).rejects.toMatchObject({ code });
        bench.commits.mood = 'well';
        await bench.restart();
        await eventuallyHolds(
          () => bench.read(blobId),
          (answer) => answer.status === 404,
        );
      },
    );

    test('a deletion that data has committed counts at once although its process was killed', async () => {
      await withBench({}, async (own) => {
        const blobId = newDocumentId();
        await own.upload(text, Buffer.from('first'), { blobId, isIdChosen: true });
        own.commits.mood = { lostAs: 'INTERNAL' };
        await expect(remove(own, blobId)).rejects.toMatchObject({ code: 'INTERNAL' });
        own.commits.mood = 'well';
        expect((await own.read(blobId)).status).toBe(404);
        expect((await own.upload(text, Buffer.from('second'), { blobId, isIdChosen: true })).status).toBe(202);
        expect((await own.read(blobId)).body.toString()).toBe('second');
      });
    });

    test('a deletion that data has not committed is withdrawn', async () => {
      const blobId = newDocumentId();
      await bench.upload(text, Buffer.from('kept'), { blobId });
      // This is the state that a process leaves that was killed just before it asked data.
      await bench.pool.query(
        `update blob set delete_ticket = 'c7-DDDDDDDDDDDDDDDDDDDD', delete_asked_at = now() - interval '1 hour'
         where blob_id = $1`,
        [blobId],
      );
      await eventuallyHolds(
        () =>
          rows<{ ticket: string | null }>(
            bench.pool,
            sql`select delete_ticket as ticket from blob where blob_id = ${blobId}`,
          ),
        ([blob]) => blob?.ticket === null,
      );
      expect((await bench.read(blobId)).body.toString()).toBe('kept');
    });

    test('a collection that data has deleted loses its blobs, and only those from before; then the app', async () => {
      await withBench({}, async (own) => {
        await own.upload(text, Buffer.from('xx'), { blobId: 'b1' });
        await own.upload(text, Buffer.from('y'), { blobId: 'b2', collection: 'other' });
        const event = (type: string, aggregateId: string, payload: object) =>
          own.publish({ topic: 'usage', key: appId, aggregateId, aggregateSequence: 1n, type, payload });
        await event('collection.deleted', `${appId}/${collection}`, { app_id: appId, collection });
        await eventuallyHolds(
          () => own.files(),
          (files) => files.length === 1,
        );
        expect((await own.read('b1')).status).toBe(404);
        await own.upload(text, Buffer.from('zzz'), { blobId: 'b3' });
        expect((await own.read('b3')).body.toString()).toBe('zzz');
        await event('app.deleted', appId, { app_id: appId });
        await eventuallyHolds(
          () => own.files(),
          (files) => files.length === 0,
        );
        await event('document.stored', 'unrelated', {});

        const told = (await usageEvents(own, 6)).map(({ type, aggregateId, aggregateSequence, payload }) => {
          const { size_bytes, blob_count } = JSON.parse(payload.toString()) as Record<string, number>;
          return [type, aggregateId, aggregateSequence, size_bytes, blob_count];
        });
        const posters = `${appId}/${collection}`;
        expect(told).toEqual([
          ['blobs.usage', posters, '1', 2, 1],
          ['blobs.usage', `${appId}/other`, '1', 1, 1],
          ['blobs.usage', posters, '2', 0, 0],
          ['blobs.usage', posters, '3', 3, 1],
          ['blobs.usage', `${appId}/other`, '2', 0, 0],
          ['blobs.usage', posters, '4', 0, 0],
        ]);
      });
    });
  });

  /** Waits for `count` events for finance: transactions of other databases of this Postgres may hold them back. */
  async function usageEvents(own: Bench, count: number) {
    const request = { consumer: 'finance', after: null, limit: 100, topics: ['usage'], waitMs: 0 };
    const { events } = await eventuallyHolds(
      () => own.outbox.read(request, call()),
      (answer) => answer.events.length >= count,
    );
    return events;
  }

  test('each collection of a name counts its own blobs, and loses only its own when it is deleted, in whatever order', async () => {
    await withBench({}, async (own) => {
      const deleted = (number: number, aggregateSequence = 1n) =>
        own.publish({
          topic: 'usage',
          key: appId,
          aggregateId: `collection/${number}`,
          aggregateSequence,
          type: 'collection.deleted',
          payload: { app_id: appId, collection, collection_number: String(number) },
        });
      await own.upload(text, Buffer.from('u'), { blobId: 'b0' });
      own.commits.collectionNumber = 4;
      await own.upload(text, Buffer.from('xx'), { blobId: 'b1' });
      own.commits.collectionNumber = 7;
      await own.upload(text, Buffer.from('yyyyy'), { blobId: 'b2' });
      // The deletion of the first one arrives late: what the second one has is older than that by then.
      await deleted(4);
      await eventuallyHolds(
        () => own.read('b1'),
        (answer) => answer.status === 404,
      );
      expect((await own.read('b2')).body.toString()).toBe('yyyyy');
      await deleted(7);
      await eventuallyHolds(
        () => own.files(),
        (files) => files.length === 0,
      );
      const posters = `${appId}/${collection}`;
      expect(
        (await usageEvents(own, 6)).map(({ aggregateId, aggregateSequence, payload }) => {
          const { collection_number, size_bytes } = JSON.parse(payload.toString()) as Record<string, unknown>;
          return [aggregateId, aggregateSequence, collection_number, size_bytes];
        }),
      ).toEqual([
        [posters, '1', undefined, 1],
        // Blobs without a number count with those of the first one that has one.
        [`${posters}/4`, '1', '4', 3],
        [`${posters}/7`, '1', '7', 5],
        [`${posters}/4`, '2', '4', 1],
        [`${posters}/4`, '3', '4', 0],
        [`${posters}/7`, '2', '7', 0],
      ]);
    });
  });

  describe('blobs with the same bytes', () => {
    const contents = randomBytes(300_000);
    const store = async (own: Bench, changes: Parameters<Bench['upload']>[2] = {}, bytes = contents) => {
      const blobId = newDocumentId();
      expect((await own.upload(text, bytes, { blobId, ...changes })).status).toBe(202);
      return blobId;
    };
    const isThere = async (own: Bench, blobId: string, bytes = contents) =>
      expect((await own.read(blobId)).body.equals(bytes)).toBe(true);
    const holds = (own: Bench, count: number) =>
      eventuallyHolds(
        () => own.files(),
        (files) => files.length === count,
      );

    test('are stored once per app, and the bytes go with the last of them', async () => {
      await withBench({}, async (own) => {
        const blobs = [await store(own), await store(own), await store(own, { collection: 'other' })];
        await holds(own, 1);
        await store(own, {}, randomBytes(300_000));
        await store(own, { appId: 'theatre', appNumber: '8' });
        await holds(own, 3);
        await remove(own, blobs[0]!);
        await holds(own, 3);
        await isThere(own, blobs[1]!);
        await remove(own, blobs[1]!);
        await remove(own, blobs[2]!, 'other');
        await holds(own, 2);
        await isThere(own, await store(own));
        await holds(own, 3);
      });
    });

    test('keep them when another upload of them is refused or given up, or their collection is deleted', async () => {
      await withBench({ PENDING_GRACE_MS: 0 }, async (own) => {
        const blobId = await store(own, { collection: 'other' });
        own.commits.mood = new ServiceError('INVALID_ARGUMENT', 'SCHEMA_VIOLATION', 'no');
        expect((await own.upload(text, contents)).json()).toMatchObject({ reason: 'SCHEMA_VIOLATION' });
        own.commits.mood = 'well';
        const given = await store(own);
        // This is the state that a process leaves that was killed just before it asked data.
        await own.pool.query(
          `update blob set state = 'pending', tx_hash = null, height = null, ticket = 'c7-BBBBBBBBBBBBBBBBBBBB' where blob_id = $1`,
          [given],
        );
        await eventuallyHolds(
          () => states(own),
          (found) => found.length === 1,
        );
        await store(own);
        const payload = { app_id: appId, collection };
        await own.publish({
          topic: 'usage',
          key: appId,
          aggregateId: `${appId}/${collection}`,
          aggregateSequence: 1n,
          type: 'collection.deleted',
          payload,
        });
        await eventuallyHolds(
          () => states(own),
          (found) => found.includes('deleted'),
        );
        await own.restart();
        const read = {
          op: 'read',
          appId,
          collection: 'other',
          blobId,
          expiresAtMs: Date.now() + limitMs(10_000),
        } as const;
        const request = open(own.running.httpAddress, 'GET', signed(read));
        request.end();
        expect((await answerOf(request)).body.equals(contents)).toBe(true);
        await holds(own, 1);
      });
    });

    test('that arrive at the same moment end up as one', async () => {
      await withBench({}, async (own) => {
        const blobs = await Promise.all(Array.from({ length: 12 }, () => store(own)));
        await holds(own, 1);
        for (const blobId of blobs) await isThere(own, blobId);
        await Promise.all(blobs.map((blobId) => remove(own, blobId)));
        await holds(own, 0);
      });
    });

    test('can be stored and deleted at the same time, and none that is there lacks its bytes', async () => {
      await withBench({}, async (own) => {
        const churn = async () => {
          const last: string[] = [];
          for (let round = 0; round < 12; round++) {
            const blobId = await store(own);
            await isThere(own, blobId);
            if (round < 11) await remove(own, blobId);
            else last.push(blobId);
          }
          return last;
        };
        const left = (await Promise.all([churn(), churn(), churn(), churn()])).flat();
        for (const blobId of left) await isThere(own, blobId);
        await holds(own, 1);
        await Promise.all(left.map((blobId) => remove(own, blobId)));
        await holds(own, 0);
      });
    });
  });

  test('health looks at the database, the object store and the events', async () => {
    const implementation = bench.running.implementations.find(
      (one) => Object.keys(one.definition)[0] === Object.keys(healthDefinition)[0],
    )!;
    const handlers = implementation.handlers as unknown as {
      check(request: object): Promise<{ status: string; parts: Array<{ name: string }> }>;
    };
    // Transactions of others in the same cluster may hold events back for a while, which health reports.
    const { parts } = await eventuallyHolds(
      () => handlers.check({}),
      ({ status }) => status === 'HEALTHY',
    );
    expect(parts.map((part) => part.name)).toEqual(['database', 'storage', 'clock', 'object_store', 'events']);
  });
}
