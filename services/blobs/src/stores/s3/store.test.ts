import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { chunksOf, mebibyte, openTestStore, partBytes, readAll, storeOptions } from '@granary/testing/s3-bucket';
import { waitMs } from '@granary/testing/speed';
import { describeWith, minioForTests, type TestMinio } from '@granary/testing/stack';
import { openS3Store } from './store';

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

describeWith(describe, 'minio')('the object store on S3', () => {
  let minio: TestMinio;
  beforeAll(async () => {
    minio = await minioForTests();
  });

  test.each([0, 1, 300_000, partBytes, partBytes + 1, 2 * partBytes, 17 * mebibyte + 5])(
    '%i bytes come back as they were, once they are kept, and go when they are deleted',
    async (size) => {
      const { store, objects, uploads } = await openTestStore(minio);
      const bytes = randomBytes(size);
      const received = await store.receive(chunksOf(bytes));
      expect(received).toMatchObject({ sizeBytes: size, sha256: sha256(bytes) });
      expect(await store.stat(received.key)).toBeUndefined();
      expect(await store.read(received.key)).toBeUndefined();
      await received.keep();
      expect(await store.stat(received.key)).toEqual({ sizeBytes: size });
      expect((await readAll(store, received.key)).equals(bytes)).toBe(true);
      if (size > 10) {
        const range = { start: size - 10, end: size - 3 };
        expect(await readAll(store, received.key, range)).toEqual(bytes.subarray(size - 10, size - 2));
        expect(await readAll(store, received.key, { start: 0, end: 0 })).toEqual(bytes.subarray(0, 1));
      }
      expect([await objects(), await uploads()]).toEqual([[received.key], []]);
      await store.delete(received.key);
      await store.delete(received.key);
      expect(await store.read(received.key)).toBeUndefined();
      expect(await objects()).toEqual([]);
    },
  );

  test.each([1_000, 12 * mebibyte])('%i bytes that are discarded leave nothing', async (size) => {
    const { store, objects, uploads } = await openTestStore(minio);
    const received = await store.receive(chunksOf(randomBytes(size)));
    await received.discard();
    expect([await objects(), await uploads()]).toEqual([[], []]);
  });

  test.each([1, 6, 12, 16])('an error of the source after %i MiB is rethrown, and nothing is left', async (count) => {
    const { store, objects, uploads } = await openTestStore(minio);
    async function* failing() {
      yield* chunksOf(randomBytes(count * mebibyte));
      throw new Error('the client went away');
    }
    await expect(store.receive(failing())).rejects.toThrow('the client went away');
    expect([await objects(), await uploads()]).toEqual([[], []]);
  });

  test('uploads share a bounded pool of buffers in order, and small files need none of it', async () => {
    const { store } = await openTestStore(minio, { uploadBytesMax: 2 * partBytes });
    // Each pauses in its second part, and holds one buffer or both.
    let goOn = () => {};
    const paused = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    async function* pausing(bytes: Buffer) {
      yield* chunksOf(bytes.subarray(0, mebibyte));
      await paused;
      yield* chunksOf(bytes.subarray(mebibyte));
    }
    const contents = [1, 2, 3, 4].map(() => randomBytes(11 * mebibyte));
    const receiving = contents.slice(0, 3).map((bytes) => store.receive(pausing(bytes)));
    const small = await store.receive(chunksOf(randomBytes(100_000)));
    await small.keep();
    goOn();
    for (const [at, received] of (await Promise.all(receiving)).entries()) {
      await received.keep();
      expect((await readAll(store, received.key)).equals(contents[at]!)).toBe(true);
    }
  });

  test('a reader may be slower than the time limit of the store', async () => {
    const idleTimeoutMs = waitMs(2_000);
    const { store } = await openTestStore(minio, { idleTimeoutMs });
    const bytes = randomBytes(24 * mebibyte);
    const received = await store.receive(chunksOf(bytes));
    await received.keep();
    const stream = (await store.read(received.key))!;
    const chunks: Buffer[] = [];
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      if (chunks.length === 3) await delay(1.5 * idleTimeoutMs);
      chunks.push(chunk);
    }
    expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
  });

  test('two stores sweep while both receive, and what is kept or young stays', async () => {
    const { store, options, objects, uploads } = await openTestStore(minio);
    const other = await openS3Store(options);
    const kept: string[] = [];
    const known = (keys: readonly string[]) => Promise.resolve(new Set(keys.filter((key) => kept.includes(key))));
    let isDone = false;
    const sweeping = [store, other].map(async (one) => {
      // Nothing in the bucket is a minute old.
      while (!isDone) await one.sweep!(new Date(Date.now() - 60_000), known);
    });
    const receiving = [store, other, store, other].map(async (one, at) => {
      const bytes = randomBytes(at < 2 ? 11 * mebibyte : 10_000);
      const received = await one.receive(chunksOf(bytes));
      kept.push(received.key);
      await received.keep();
      expect((await readAll(store, received.key)).equals(bytes)).toBe(true);
    });
    await Promise.all(receiving);
    isDone = true;
    await Promise.all(sweeping);
    // As crashes leave them: an upload that was not finished, and an object without a record.
    await store.receive(chunksOf(randomBytes(6 * mebibyte)));
    await (await other.receive(chunksOf(Buffer.from('x')))).keep();
    expect([(await objects()).length, (await uploads()).length]).toEqual([5, 2]);
    expect(await store.sweep!(new Date(Date.now() - 60_000), known)).toBe(0);
    const removed = await Promise.all([
      store.sweep!(new Date(Date.now() - -60_000), known),
      other.sweep!(new Date(Date.now() - -60_000), known),
    ]);
    expect(Math.max(...removed)).toBeGreaterThanOrEqual(1);
    expect((await objects()).sort()).toEqual([...kept].sort());
    expect(await uploads()).toEqual([]);
  });

  test('a missing bucket is created, by several stores at once; a bucket of another owner is refused, another prefix in it is not', async () => {
    const options = storeOptions(minio);
    await Promise.all([openS3Store(options), openS3Store(options), openS3Store(options)]);
    await expect(openS3Store({ ...options, owner: 'somebody else' })).rejects.toThrow(/another installation/);
    await openS3Store({ ...options, prefix: '', owner: 'somebody else' });
  });

  test.each([
    ['wrong keys', { secretKey: 'wrong-secret' }, 'ConfigError', /AccessDenied/],
    ['no server', { endpoint: 'http://127.0.0.1:1', transferRetryMs: 300 }, 'NotAvailableError', /ECONNREFUSED/],
  ])('%s: the start fails with a sentence that contains no secret', async (_, more, name, why) => {
    const opening = openS3Store(storeOptions(minio, more)).catch((error: Error) => error);
    const error = (await opening) as Error;
    expect(error.name).toBe(name);
    expect(error.message).toMatch(why);
    expect(error.message).not.toContain('secret');
  });

  test('presigned URLs give read access without keys, with the requested headers', async () => {
    const { store } = await openTestStore(minio);
    expect('presign' in store).toBe(false);
    const other = await openTestStore(minio, { publicEndpoint: minio.endpoint });
    const received = await other.store.receive(chunksOf(Buffer.from('0123456789')));
    await received.keep();
    const headers = {
      contentType: 'text/html',
      contentDisposition: 'attachment; filename="ä.html"',
      cacheControl: 'private',
    };
    const url = await other.store.presign!(received.key, headers);
    const answer = await fetch(url, { headers: { range: 'bytes=2-3' } });
    expect([answer.status, await answer.text()]).toEqual([206, '23']);
    expect(answer.headers.get('content-type')).toBe('text/html');
    const forged = url.replace(
      /(X-Amz-Signature=)(.)/,
      (_, name: string, digit: string) => name + (digit === '0' ? '1' : '0'),
    );
    expect((await fetch(forged)).status).toBe(403);
  });
});
