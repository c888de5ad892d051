import { randomBytes } from 'node:crypto';
import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { ReadingAgent } from './buffered-agent';

const mebibyte = 1024 * 1024;
const bytes = randomBytes(8 * mebibyte);
const connections = new Set<Socket>();
const agent = new ReadingAgent({ keepAlive: true });
let server: Server;

beforeAll(async () => {
  server = createServer((request, response) => {
    connections.add(request.socket);
    if (request.url === '/known') response.setHeader('Content-Length', bytes.length);
    if (request.url === '/closed') response.setHeader('Connection', 'close').removeHeader('Transfer-Encoding');
    for (let at = 0; at < bytes.length; at += 99_991) response.write(bytes.subarray(at, at + 99_991));
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(() => {
  agent.destroy();
  server.close();
});

const open = (path: string) =>
  new Promise<IncomingMessage>((resolve, reject) => {
    const { port } = server.address() as AddressInfo;
    get({ host: '127.0.0.1', port, path, agent }, resolve).on('error', reject);
  });

test.each(['/known', '/chunked', '/closed'])('what was read stays as it came while more is read, %s', async (path) => {
  const [first, second] = await Promise.all([open(path), open(path)]);
  const bodies = await Promise.all([first.toArray(), second.toArray()]);
  for (const body of bodies) expect(Buffer.concat(body as Buffer[]).equals(bytes)).toBe(true);
});

test('a reader that pauses gets everything, and its connection is used again', async () => {
  const answer = await open('/known');
  const used = answer.socket;
  const chunks: Buffer[] = [];
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    if (chunks.length % 10 === 0) await delay(1);
  }
  expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
  const again = await open('/known');
  expect(again.socket).toBe(used);
  await again.toArray();
});

test('a connection that breaks within an answer is an error', async () => {
  const answer = await open('/known');
  for (const socket of connections) socket.destroy();
  await expect(answer.toArray()).rejects.toMatchObject({ code: 'ECONNRESET' });
});
