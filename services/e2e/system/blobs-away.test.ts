import { randomBytes } from 'node:crypto';
import { testBucket } from '@granary/testing/s3-bucket';
import { describeWith } from '@granary/testing/stack';
import { eventually } from '@granary/testing/eventually';
import { newApp, send, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { startOwnMinio, type OwnMinio } from '../support/own-minio';

interface Health {
  status: string;
  checks: { blobs: { status: string; object_store: { status: string } } };
}

describeWith(describe, 'minio')('an object store on S3', () => {
  let minio: OwnMinio;
  let bucket: ReturnType<typeof testBucket>;
  // For each test a server and a bucket of its own: one that failed may have left them stopped or in use.
  beforeEach(async () => {
    minio = await startOwnMinio();
    bucket = testBucket(minio);
  });
  afterEach(() => minio.stop());

  const withGranary = async (
    settings: Record<string, string>,
    work: (granary: Granary, app: TestApp, path: string) => Promise<void>,
  ) => {
    const granary = await startGranary('wire', { settings: { blobs: { ...bucket.settings, ...settings } } });
    try {
      const app = await newApp(granary);
      await work(granary, app, `/api/apps/${app.appId}/blobs/files`);
    } finally {
      await granary.stop();
    }
  };
  const png = { 'content-type': 'image/png' };

  test('while the object store is unavailable uploads get 503 and leave nothing visible, and everything recovers by itself', async () => {
    await withGranary({}, async (granary, app, path) => {
      const bytes = randomBytes(20_000_000);
      const before = await app.call<{ blob_id: string }>('POST', path, bytes, png);
      expect(before.status).toBe(202);
      const health = async () => (await send<Health>(granary.url, 'GET', '/health')).body;
      await eventually(async () => (await health()).checks.blobs.status === 'healthy');

      await minio.kill();
      for (const body of [randomBytes(1_000), randomBytes(20_000_000)]) {
        const refused = await app.call('POST', path, body, png);
        expect(refused).toMatchObject({ status: 503, body: { code: 'UNAVAILABLE' } });
        expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
      }
      const unread = await send(granary.url, 'GET', `${path}/${before.body.blob_id}`);
      expect([unread.status, unread.headers.get('retry-after')]).toEqual([503, expect.any(String) as string]);
      expect((await app.list('files')).body.records.length).toBe(1);
      await eventually(async () => {
        const { checks } = await health();
        return checks.blobs.status === 'unhealthy' && checks.blobs.object_store.status === 'unhealthy';
      });
      expect((await send(granary.url, 'GET', '/readyz')).status).toBe(200);

      await minio.start();
      const after = await app.call('POST', path, bytes, png);
      expect(after.status).toBe(202);
      const read = await fetch(`${granary.url}${path}/${before.body.blob_id}`);
      expect(Buffer.from(await read.arrayBuffer()).equals(bytes)).toBe(true);
      await eventually(async () => (await health()).checks.blobs.status === 'healthy');
      // Both blobs have the same bytes, and the refused ones left none.
      await eventually(async () => (await bucket.contents()).filter((key) => key.startsWith('objects/')).length === 1);
    });
  });

  test('an upload and a download continue after a restart of the object store', async () => {
    await withGranary({}, async (granary, app, path) => {
      const bytes = randomBytes(40_000_000);
      async function* slowly() {
        for (let at = 0; at < bytes.length; at += 1_000_000) {
          if (at === 20_000_000) void minio.kill().then(() => minio.start());
          yield await Promise.resolve(bytes.subarray(at, at + 1_000_000));
        }
      }
      const uploaded = await fetch(granary.url + path, {
        method: 'POST',
        headers: { 'x-app-key': app.key, ...png },
        body: slowly(),
        duplex: 'half',
      });
      expect(uploaded.status).toBe(202);
      const { blob_id: blobId } = (await uploaded.json()) as { blob_id: string };

      const chunks: Uint8Array[] = [];
      const read = await fetch(`${granary.url}${path}/${blobId}`);
      for await (const chunk of read.body as unknown as AsyncIterable<Uint8Array>) {
        if (chunks.length === 5) {
          await minio.kill();
          await minio.start();
        }
        chunks.push(chunk);
      }
      expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
    });
  });

  test('with presigned URLs the store serves the bytes with the same headers, and the gateway answers conditions', async () => {
    const presigned = { BLOBS_PRESIGNED: 'true', S3_PUBLIC_ENDPOINT: minio.endpoint };
    await withGranary(presigned, async (granary, app, path) => {
      const file = new FormData();
      file.set('blob', new Blob(['<script>1</script>'], { type: 'text/html' }), 'Schöne Seite.html');
      const { blob_id: blobId } = (await app.call<{ blob_id: string }>('POST', path, file)).body;
      const url = `${granary.url}${path}/${blobId}`;
      const sent = await fetch(url, { redirect: 'manual' });
      expect(sent.status).toBe(307);
      expect(sent.headers.get('location')).toMatch(new RegExp(`^${minio.endpoint}/`));
      expect(sent.headers.get('cache-control')).toBe('private, no-cache');
      const read = await fetch(url, { headers: { range: 'bytes=8-8' } });
      expect([read.status, await read.text()]).toEqual([206, '1']);
      expect(read.headers.get('content-type')).toBe('text/html');
      expect(read.headers.get('content-disposition')).toBe(
        `attachment; filename="Sch_ne Seite.html"; filename*=UTF-8''Sch%C3%B6ne%20Seite.html`,
      );
      const etag = sent.headers.get('etag')!;
      expect((await fetch(url, { headers: { 'if-none-match': etag }, redirect: 'manual' })).status).toBe(304);
      const head = await fetch(url, { method: 'HEAD', redirect: 'manual' });
      expect([head.status, head.headers.get('content-length')]).toEqual([200, '18']);
      // Who may not read is not sent on.
      const access = { access_policy: { read: 'private' } };
      expect((await app.call('PUT', `/api/apps/${app.appId}/collections/files`, access)).status).toBeLessThan(300);
      expect((await fetch(url, { redirect: 'manual' })).status).toBe(401);
    });
  });
});
