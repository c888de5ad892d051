import { randomBytes } from 'node:crypto';
import { createServer, request as send, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually, eventuallyResolves } from '@granary/testing/eventually';
import { limitMs, waitMs } from '@granary/testing/speed';
import { startOwnMinio, type OwnMinio } from '../../e2e/support/own-minio';
import { chunksOf, mebibyte, nothingKnown, openTestStore, partBytes, readAll } from '@granary/testing/s3-bucket';
import { describeWith } from '@granary/testing/stack';
import { openS3Store } from '../src/stores/s3/store';

describeWith(describe, 'minio')('the object store on S3, when S3 has trouble', () => {
  let minio: OwnMinio;
  beforeAll(async () => {
    minio = await startOwnMinio();
  });
  afterAll(() => minio.stop());

  test('the source is not read faster than the store takes in', async () => {
    const { store } = await openTestStore(minio, { idleTimeoutMs: 60_000 });
    let givenBytes = 0;
    async function* endless() {
      for (;;) {
        givenBytes += mebibyte;
        yield await Promise.resolve(Buffer.alloc(mebibyte));
        if (givenBytes > 200 * mebibyte) throw new Error('read on and on');
      }
    }
    minio.freeze();
    const receiving = store.receive(endless()).catch((error: Error) => error.message);
    let before = -1;
    // Nothing is taken any more, over several rounds.
    await eventually(async () => {
      const isStill = before === givenBytes;
      before = givenBytes;
      await delay(100);
      return isStill;
    });
    expect(givenBytes).toBeLessThanOrEqual(2 * partBytes + 2 * mebibyte);
    minio.thaw();
    expect(await receiving).toBe('read on and on');
  });

  test('a store that stops answering makes the upload fail in time', async () => {
    const { store, uploads } = await openTestStore(minio, {
      idleTimeoutMs: limitMs(1_000),
      transferRetryMs: waitMs(1_500),
    });
    minio.freeze();
    const refused = { code: 'UNAVAILABLE' };
    await expect(store.receive(chunksOf(Buffer.alloc(6 * mebibyte)))).rejects.toMatchObject(refused);
    const received = await store.receive(chunksOf(Buffer.from('small')));
    await expect(received.keep()).rejects.toMatchObject(refused);
    await received.discard();
    await expect(store.probe()).rejects.toMatchObject(refused);
    minio.thaw();
    await eventuallyResolves(() => store.probe());
    // What it did after it was given up, the sweep finds.
    await eventually(async () => {
      await store.sweep!(new Date(Date.now() - -60_000), nothingKnown);
      return (await uploads()).length === 0;
    });
  });

  test('a store that stops in the middle of a download makes it fail in time', async () => {
    const { store } = await openTestStore(minio, {
      idleTimeoutMs: limitMs(2_000),
      transferRetryMs: waitMs(1_000),
    });
    const received = await store.receive(chunksOf(randomBytes(32 * mebibyte)));
    await received.keep();
    const stream = (await store.read(received.key))!;
    let isFrozen = false;
    const reading = (async () => {
      for await (const _ of stream) {
        if (!isFrozen) minio.freeze();
        isFrozen = true;
      }
    })();
    await expect(reading).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    minio.thaw();
  });

  describe('when MinIO is killed', () => {
    afterEach(() => minio.kill().then(() => minio.start()));

    // A slow machine takes longer to start it again than what is by default waited for.
    const transferRetryMs = limitMs(15_000);

    test('in the middle of an upload, the upload goes on once it is back', async () => {
      const { store } = await openTestStore(minio, { transferRetryMs });
      const bytes = randomBytes(22 * mebibyte);
      let given = 0;
      async function* source() {
        for await (const chunk of chunksOf(bytes)) {
          given += chunk.length;
          if (given === 12 * mebibyte) void minio.kill().then(() => minio.start());
          yield chunk;
        }
      }
      const received = await store.receive(source());
      await received.keep();
      expect((await readAll(store, received.key)).equals(bytes)).toBe(true);
    });

    test('and stays away, uploads fail as unavailable; later nothing of them can be seen, and they can be swept', async () => {
      const { store, objects, uploads, hasParts } = await openTestStore(minio, { transferRetryMs: 1_000 });
      async function* source() {
        yield* chunksOf(randomBytes(12 * mebibyte));
        await minio.kill();
        yield* chunksOf(randomBytes(12 * mebibyte));
      }
      await expect(store.receive(source())).rejects.toMatchObject({ code: 'UNAVAILABLE' });
      const small = await store.receive(chunksOf(Buffer.from('small')));
      await expect(small.keep()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
      await expect(store.read(small.key)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
      await expect(store.probe()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
      await minio.start();
      await store.probe();
      expect(await objects()).toEqual([]);
      const [note] = await uploads();
      expect(await hasParts(note!)).toBe(true);
      expect(await store.sweep!(new Date(Date.now() - -60_000), nothingKnown)).toBe(1);
      expect(await hasParts(note!)).toBe(false);
      expect(await uploads()).toEqual([]);
      const again = await store.receive(chunksOf(Buffer.from('small')));
      await again.keep();
      expect((await readAll(store, again.key)).toString()).toBe('small');
    });

    test('in the middle of a download, the rest follows once it is back', async () => {
      const { store } = await openTestStore(minio, { transferRetryMs });
      const bytes = randomBytes(32 * mebibyte);
      const received = await store.receive(chunksOf(bytes));
      await received.keep();
      const stream = (await store.read(received.key))!;
      const chunks: Buffer[] = [];
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        if (chunks.length === 10) {
          await minio.kill();
          await minio.start();
        }
        chunks.push(chunk);
      }
      expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
    });

    test('in the middle of a download and stays away, the download fails and does not end short', async () => {
      const { store } = await openTestStore(minio, { transferRetryMs: 1_000 });
      const received = await store.receive(chunksOf(randomBytes(32 * mebibyte)));
      await received.keep();
      const stream = (await store.read(received.key))!;
      let got = 0;
      const reading = (async () => {
        for await (const chunk of stream as AsyncIterable<Buffer>) {
          if (got === 0) await minio.kill();
          got += chunk.length;
        }
      })();
      await expect(reading).rejects.toMatchObject({ code: 'UNAVAILABLE' });
      expect(got).toBeLessThan(32 * mebibyte);
    });
  });

  describe('through a proxy that does harm', () => {
    let proxy: Server;
    /** What happens to the next requests; true: it was dealt with. */
    let harm: (request: IncomingMessage, respond: (status: number) => void) => boolean | 'corrupt';
    let endpoint = '';
    beforeEach(async () => {
      harm = () => false;
      proxy = createServer((request, response) => {
        const kind = harm(request, (status) => response.writeHead(status).end('<Error><Code>SlowDown</Code></Error>'));
        if (kind === true) return;
        const { hostname, port } = new URL(minio.endpoint);
        const { url, method, headers } = request;
        const upstream = send({ hostname, port, path: url, method, headers }, (answer) => {
          response.writeHead(answer.statusCode!, answer.headers);
          answer.pipe(response);
        });
        upstream.on('error', () => response.destroy());
        if (kind !== 'corrupt') return request.pipe(upstream);
        request.once('data', (chunk: Buffer) => {
          chunk[chunk.length - 1]! ^= 1;
          upstream.write(chunk);
          request.pipe(upstream);
        });
      });
      await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
      endpoint = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    });
    afterEach(() => {
      proxy.closeAllConnections();
      proxy.close();
    });
    // The signature covers the host, so both sides of the proxy call themselves by the name of the proxy.
    const through = async () => {
      const { options, uploads, objects } = await openTestStore(minio);
      return { store: await openS3Store({ ...options, endpoint: `http://${endpoint}` }), uploads, objects };
    };

    test.each([
      ['put', 1_000],
      ['part', 6 * mebibyte],
    ])('a corrupted byte is noticed (%s)', async (_, size) => {
      const { store, objects, uploads } = await through();
      harm = (request) => (request.method === 'PUT' && request.headers['content-length'] !== '0' ? 'corrupt' : false);
      const storing = async () => {
        const received = await store.receive(chunksOf(randomBytes(size)));
        try {
          await received.keep();
        } catch (error) {
          await received.discard();
          throw error;
        }
      };
      await expect(storing()).rejects.toThrow(/SHA256|sha256|digest/i);
      expect([await objects(), await uploads()]).toEqual([[], []]);
    });

    test.each([
      ['500', (respond: (status: number) => void) => respond(500)],
      ['503', (respond: (status: number) => void) => respond(503)],
      ['a connection that breaks', undefined],
    ])('every kind of call survives %s now and then', async (_, answer) => {
      const { store, objects, uploads } = await through();
      let count = 0;
      harm = (request, respond) => {
        if (++count % 2 === 0) return false;
        if (answer) {
          request.resume();
          answer(respond);
        } else request.socket.destroy();
        return true;
      };
      for (const size of [1_000, 11 * mebibyte]) {
        const bytes = randomBytes(size);
        const received = await store.receive(chunksOf(bytes));
        await received.keep();
        expect((await readAll(store, received.key)).equals(bytes)).toBe(true);
        expect(await store.stat(received.key)).toEqual({ sizeBytes: size });
        await store.delete(received.key);
        const other = await store.receive(chunksOf(bytes));
        await other.discard();
      }
      await store.probe();
      await store.sweep!(new Date(Date.now() - 60_000), nothingKnown);
      expect([await objects(), await uploads()]).toEqual([[], []]);
    });

    test('an answer to the completion that got lost is not a failure', async () => {
      const { store } = await through();
      const bytes = randomBytes(6 * mebibyte);
      const received = await store.receive(chunksOf(bytes));
      let isLost = false;
      harm = (request) => {
        if (isLost || request.method !== 'POST') return false;
        isLost = true;
        const { hostname, port } = new URL(minio.endpoint);
        const { url, method, headers } = request;
        request.pipe(
          send({ hostname, port, path: url, method, headers }, (answer) => {
            answer.resume().once('end', () => request.socket.destroy());
          }),
        );
        return true;
      };
      await received.keep();
      expect(isLost).toBe(true);
      expect((await readAll(store, received.key)).equals(bytes)).toBe(true);
    });

    test('a store without room refuses to take in more as STORAGE_FULL, without trying again, and is read as ever', async () => {
      const { store } = await through();
      const bytes = randomBytes(1_000);
      const before = await store.receive(chunksOf(bytes));
      await before.keep();
      let refusals = 0;
      // As MinIO answers with XMinioStorageFull.
      harm = (request, respond) => {
        if (request.method === 'GET') return false;
        request.resume();
        refusals++;
        respond(507);
        return true;
      };
      const full = { code: 'RESOURCE_EXHAUSTED', reason: 'STORAGE_FULL' };
      const small = await store.receive(chunksOf(bytes));
      await expect(small.keep()).rejects.toMatchObject(full);
      await expect(store.probe()).rejects.toMatchObject(full);
      expect(refusals).toBe(2);
      await expect(store.receive(chunksOf(randomBytes(6 * mebibyte)))).rejects.toMatchObject(full);
      expect((await readAll(store, before.key)).equals(bytes)).toBe(true);
    });

    test('a store that always fails makes everything unavailable', async () => {
      const { store } = await through();
      harm = (request, respond) => {
        request.resume();
        respond(503);
        return true;
      };
      const refused = { code: 'UNAVAILABLE' };
      await expect(store.receive(chunksOf(randomBytes(6 * mebibyte)))).rejects.toMatchObject(refused);
      await expect(store.stat('00/00/00000000000000000000000000000000')).rejects.toMatchObject(refused);
      await expect(store.read('00/00/00000000000000000000000000000000')).rejects.toMatchObject(refused);
      await expect(store.delete('00/00/00000000000000000000000000000000')).rejects.toMatchObject(refused);
    });
  });
});
