import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir } from 'node:fs/promises';
import { request as send, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { testDatabase } from '@granary/testing/database';
import { eventuallyHolds } from '@granary/testing/eventually';
import { forkProgram } from '@granary/testing/programs';
import { secret } from './support/bench';

const mebibyte = 1024 * 1024;
/**
 * A transfer of any size may add so much to the process, because buffers of sockets and disk stay for a while, and
 * garbage is collected late.
 */
const growthMaxBytes = 150 * mebibyte;

let child: ChildProcess;
let port = 0;
let directory = '';

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-blobs-'));
  const environment = { DATABASE_URL: (await testDatabase()).url, INTERNAL_SECRET: secret, OBJECTS_DIR: directory };
  const env = { ...process.env, ...environment };
  child = await forkProgram(join(__dirname, 'support/transfer-process.ts'), [], { env });
  port = ((await once(child, 'message')) as [{ port: number }])[0].port;
});
afterAll(async () => {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
});

interface Figures {
  rssBytes: number;
  peakBytes: number;
  cpuMs: number;
}
async function figures(): Promise<Figures> {
  const answer = once(child, 'message');
  child.send('figures');
  return ((await answer) as [Figures])[0];
}

function open(method: string, blobId: string, headers: Record<string, string> = {}) {
  return send({
    port,
    host: '127.0.0.1',
    method,
    agent: false,
    headers: { 'x-blob-id': blobId, 'content-type': 'video/mp4', ...headers },
  });
}
const responseOf = async (request: ReturnType<typeof open>) =>
  ((await once(request, 'response')) as [IncomingMessage])[0];
const files = async () => {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile() && entry.name !== 'probe').length;
};

const block = Buffer.alloc(mebibyte, 'granary ');
function* blocks(count: number): Generator<Buffer> {
  for (let at = 0; at < count; at++) yield block;
}
function hashOf(count: number): string {
  const hash = createHash('sha256');
  for (const each of blocks(count)) hash.update(each);
  return hash.digest('hex');
}

test('512 MiB flow in and out through the gateway and the service, and neither holds them', async () => {
  const before = await figures();
  const upload = open('POST', 'large', { 'content-length': String(512 * mebibyte) });
  const answering = responseOf(upload);
  Readable.from(blocks(512)).pipe(upload);
  const answered = await answering;
  expect(JSON.parse(Buffer.concat(await answered.toArray()).toString())).toMatchObject({
    blob_id: 'large',
    status: 'Completed',
  });
  const uploaded = await figures();
  expect(uploaded.peakBytes - before.rssBytes).toBeLessThan(growthMaxBytes);

  const download = open('GET', 'large');
  download.end();
  const response = await responseOf(download);
  const hash = createHash('sha256');
  for await (const chunk of response as AsyncIterable<Buffer>) hash.update(chunk);
  expect(hash.digest('hex')).toBe(hashOf(512));
  const downloaded = await figures();
  expect(downloaded.peakBytes - before.rssBytes).toBeLessThan(growthMaxBytes);
});

test('a reader that does not read is not read ahead for', async () => {
  const before = await figures();
  const download = open('GET', 'large');
  download.end();
  const response = await responseOf(download);
  response.pause();
  // Others are served meanwhile.
  for (let round = 0; round < 20; round++) {
    const other = open('GET', 'large', { range: 'bytes=0-1048575' });
    other.end();
    expect(Buffer.concat(await (await responseOf(other)).toArray()).length).toBe(mebibyte);
  }
  expect((await figures()).peakBytes - before.rssBytes).toBeLessThan(growthMaxBytes);
  download.on('error', () => {});
  download.destroy();
});

test('a client that leaves in the middle leaves nothing behind the gateway either', async () => {
  const there = await files();
  const upload = open('POST', 'left', { 'content-length': String(64 * mebibyte) });
  upload.on('error', () => {});
  for (const each of blocks(8)) upload.write(each);
  await eventuallyHolds(files, (count) => count === there + 1);
  upload.destroy();
  await eventuallyHolds(files, (count) => count === there);
});

test('a refusal while the body is still coming reaches the client', async () => {
  const upload = open('POST', 'refused', { 'content-type': 'multipart/form-data; boundary=x' });
  upload.on('error', () => {});
  upload.write('--x\r\nContent-Disposition: form-data; name="other"\r\n\r\n');
  upload.write(block);
  const response = await responseOf(upload);
  expect(Buffer.concat(await response.toArray()).toString()).toBe('VALIDATION_FAILED');
  upload.destroy();
});

test.each([
  ['GET', {}, 400, 'BLOB_NOT_FOUND'],
  ['HEAD', {}, 400, ''],
])('an error of the service comes out as it was thrown (%s)', async (method, headers, status, body) => {
  const request = open(method, 'missing', headers);
  request.end();
  const response = await responseOf(request);
  expect(response.statusCode).toBe(status);
  expect(Buffer.concat(await response.toArray()).toString()).toBe(body);
});
