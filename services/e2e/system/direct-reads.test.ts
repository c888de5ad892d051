import { randomBytes } from 'node:crypto';
import { createServer, request as send, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describeWith, minioForTests } from '@granary/testing/stack';
import { testBucket } from '@granary/testing/s3-bucket';
import { newApp, type TestApp } from '../support/granary';
import { startGranary, type OwnGranary } from '../support/own-granary';

type Fate = 'pass' | 'refuse' | 'break off';

/** Stands before MinIO, counts reads by signed URLs, which only the gateway makes, and decides their fate. */
async function startStoreProxy(endpoint: string) {
  const state = { reads: 0, fate: 'pass' as Fate };
  const forward = (request: IncomingMessage, response: ServerResponse) => {
    const isSigned = request.url!.includes('X-Amz-Signature=');
    if (isSigned) state.reads++;
    const fate = isSigned ? state.fate : 'pass';
    if (fate === 'refuse') return void request.socket.destroy();
    const { method, url: path, headers } = request;
    const upstream = send(endpoint, { method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode!, answer.headers);
      if (fate === 'pass') return void answer.pipe(response);
      answer.once('data', (chunk: Buffer) => response.write(chunk, () => response.destroy()));
    });
    upstream.on('error', () => response.destroy());
    response.on('close', () => upstream.destroy());
    request.pipe(upstream);
  };
  const server: Server = createServer(forward);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  return { state, endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, stop };
}

describeWith(describe, 'minio')('downloads that the gateway reads from the store', () => {
  let proxy: Awaited<ReturnType<typeof startStoreProxy>>;
  let granary: OwnGranary;
  let app: TestApp;
  let path: string;
  const bytes = randomBytes(3_000_000);
  let url: string;

  beforeEach(async () => {
    const minio = await minioForTests();
    proxy = await startStoreProxy(minio.endpoint);
    const { settings } = testBucket(minio);
    granary = await startGranary('wire', { settings: { blobs: { ...settings, S3_ENDPOINT: proxy.endpoint } } });
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/blobs/files`;
    url = await upload(bytes, 'Schöne Seite.html', 'text/html');
  });
  afterEach(async () => {
    await granary.stop();
    await proxy.stop();
  });

  async function upload(content: Buffer, name: string, type: string): Promise<string> {
    const file = new FormData();
    file.set('blob', new Blob([content], { type }), name);
    const { status, body } = await app.call<{ blob_id: string }>('POST', path, file);
    expect(status).toBe(202);
    return `${granary.url}${path}/${body.blob_id}`;
  }

  async function read(range?: string) {
    const response = await fetch(url, { headers: range === undefined ? {} : { range } });
    const headers = Object.fromEntries(response.headers);
    for (const each of ['date', 'x-request-id', 'keep-alive']) delete headers[each];
    return { status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) };
  }

  test('they have the same bytes and headers as through the blobs service', async () => {
    const ranges = [undefined, 'bytes=100-1999999', 'bytes=-5', 'bytes=2999999-'];
    const direct: unknown[] = [];
    for (const range of ranges) direct.push(await read(range));
    expect(proxy.state.reads).toBe(ranges.length);
    expect((direct[0] as { body: Buffer }).body.equals(bytes)).toBe(true);
    proxy.state.fate = 'refuse';
    const through: unknown[] = [];
    for (const range of ranges) through.push(await read(range));
    expect(through).toEqual(direct);
    // The first tried the store on the idle connection of the read before, the second on a new one.
    expect(proxy.state.reads).toBeLessThanOrEqual(ranges.length + 2);
  });

  test('what has no bytes to send or may not be read does not reach the store', async () => {
    const { headers } = await read();
    const conditions = [
      { init: { headers: { 'if-none-match': headers['etag']! } }, status: 304 },
      { init: { headers: { 'if-match': '"another"' } }, status: 412 },
      { init: { headers: { range: 'bytes=3000000-' } }, status: 416 },
      { init: { method: 'HEAD' }, status: 200 },
    ];
    for (const { init, status } of conditions) expect((await fetch(url, init)).status).toBe(status);
    const empty = await upload(Buffer.alloc(0), 'empty.txt', 'text/plain');
    const answer = await fetch(empty);
    expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([200, '0', '']);
    const access = { access_policy: { read: 'private' } };
    expect((await app.call('PUT', `/api/apps/${app.appId}/collections/files`, access)).status).toBeLessThan(300);
    expect((await fetch(url)).status).toBe(401);
    expect(proxy.state.reads).toBe(1);
  });

  test('one that breaks off goes on with the rest through the blobs service', async () => {
    proxy.state.fate = 'break off';
    for (const range of [undefined, 'bytes=1000-2000000']) {
      const { body } = await read(range);
      expect(body.equals(range === undefined ? bytes : bytes.subarray(1_000, 2_000_001))).toBe(true);
    }
    expect(proxy.state.reads).toBe(2);
  });

  test('a blob that is deleted is gone at once', async () => {
    expect((await app.call('DELETE', new URL(url).pathname)).status).toBe(202);
    expect((await fetch(url)).status).toBe(404);
    expect(proxy.state.reads).toBe(0);
  });
});
