import { once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import type { ForwardedRequest } from './request-line.ts';
import { RequestProxy } from './request-proxy.ts';

let service: Server;
let proxy: RequestProxy;
let url: string;
let told: ForwardedRequest[];
let onTold: (() => void) | undefined;
let isRunning: boolean;

/** Starts a service and a proxy before it. */
async function start(listener: RequestListener, prefix = ''): Promise<void> {
  service = createServer(listener).listen(0, '127.0.0.1');
  await once(service, 'listening');
  told = [];
  proxy = new RequestProxy(`http://127.0.0.1:${(service.address() as AddressInfo).port}${prefix}`, (request) => {
    told.push(request);
    onTold?.();
  });
  // Clients keep connections, also to a proxy of before at the same port.
  url = await proxy.start(await freePort());
  isRunning = true;
}
afterEach(async () => {
  if (isRunning) await proxy.stop();
  service.closeAllConnections();
  service.close();
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

/** Resolves once this many requests have ended. */
const tell = (count: number): Promise<void> =>
  new Promise((resolve) => {
    onTold = () => told.length >= count && resolve();
    onTold();
  });

async function bodyOf(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** Sends a request with a `Host`, which `fetch` does not let be chosen. */
async function statusFor(host: string): Promise<number | undefined> {
  const sent = httpRequest(url, { headers: { host } }).end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  response.resume();
  await once(response, 'end');
  return response.statusCode;
}

test('a request and its answer are passed on as they are', async () => {
  const incomings: IncomingMessage[] = [];
  const bodies: string[] = [];
  await start((incoming, outgoing) => {
    incomings.push(incoming);
    const headers = { ETag: '"1"', 'Set-Cookie': ['a=1', 'b=2'], Connection: 'close, X-Hop', 'X-Hop': '1' };
    void bodyOf(incoming).then((body) => {
      bodies.push(body);
      outgoing.writeHead(201, 'Made', headers).end('{"a":1}');
    });
  }, '/base');
  for (const [method, body] of [
    ['PUT', 'text'],
    ['DELETE', 'more'],
    ['GET', null],
  ] as const) {
    const response = await fetch(`${url}/x/%2f?b=%20&token=t`, { method, body, headers: { 'X-App-Key': 'k' } });
    expect([response.status, response.statusText, await response.text()]).toEqual([201, 'Made', '{"a":1}']);
    expect([response.headers.get('etag'), response.headers.getSetCookie()]).toEqual(['"1"', ['a=1', 'b=2']]);
    expect(response.headers.has('x-hop')).toBe(false);
  }
  expect(bodies).toEqual(['text', 'more', '']);
  const { port } = service.address() as AddressInfo;
  for (const incoming of incomings) {
    expect(incoming.url).toBe('/base/x/%2f?b=%20&token=t');
    expect(incoming.headers).toMatchObject({ 'x-app-key': 'k', host: `127.0.0.1:${port}` });
  }
  await tell(3);
  expect(told[0]).toMatchObject({
    method: 'PUT',
    path: '/x/%2f?b=%20&token=t',
    status: 201,
    bytes: 7,
    end: 'answered',
  });
  expect(told[0]).not.toHaveProperty('code');
});

test('a refusal is told with its code, also where it is compressed', async () => {
  const body = { code: 'NOT_FOUND', error: 'There is none', details: {} };
  await start((incoming, outgoing) => {
    const isZipped = incoming.url === '/zipped';
    outgoing.writeHead(404, {
      'Content-Type': 'application/json; charset=utf-8',
      ...(isZipped && { 'Content-Encoding': 'gzip' }),
    });
    outgoing.end(isZipped ? gzipSync(JSON.stringify(body)) : JSON.stringify(body));
  });
  for (const path of ['/plain', '/zipped']) {
    expect(await (await fetch(url + path)).json()).toEqual(body);
  }
  await tell(2);
  expect(told.map(({ code, error }) => [code, error])).toEqual(Array(2).fill(['NOT_FOUND', 'There is none']));
});

test('a feed comes event by event, and is closed at the service when the program closes it', async () => {
  let closed!: Promise<unknown>;
  let next!: () => void;
  await start((_, outgoing) => {
    closed = once(outgoing, 'close');
    outgoing.writeHead(200, { 'Content-Type': 'application/x-ndjson' }).flushHeaders();
    next = () => void outgoing.write('{}\n');
  });
  const controller = new AbortController();
  const response = await fetch(url, { signal: controller.signal });
  const reader = response.body!.getReader();
  for (let events = 0; events < 3; events += 1) {
    next();
    expect(Buffer.from((await reader.read()).value!).toString()).toBe('{}\n');
  }
  controller.abort();
  await closed;
  await tell(1);
  expect(told[0]).toMatchObject({ status: 200, bytes: 9, end: 'closed' });
});

test('an answer that breaks off breaks off for the program, and one that never came is refused', async () => {
  await start((incoming, outgoing) => {
    if (incoming.url === '/half') outgoing.write('half', () => outgoing.destroy());
    else outgoing.destroy();
  });
  await expect(fetch(`${url}/half`).then((response) => response.text())).rejects.toThrow();
  const refused = await fetch(`${url}/none`);
  expect([refused.status, await refused.json()]).toMatchObject([502, { code: 'UNAVAILABLE', details: {} }]);
  await tell(2);
  expect(told).toMatchObject([
    { status: 200, bytes: 4, end: 'broken' },
    { status: 502, code: 'UNAVAILABLE', end: 'answered' },
  ]);
});

test('an upload is read no faster than the service takes it, and sent when the service says so', async () => {
  let isWanted!: (incoming: IncomingMessage) => void;
  const arrived = new Promise<IncomingMessage>((resolve) => (isWanted = resolve));
  await start((_, outgoing) => outgoing.end());
  service.on('checkContinue', (incoming: IncomingMessage, outgoing) => {
    isWanted(incoming);
    incoming.once('end', () => outgoing.end('stored'));
  });
  const sent = httpRequest(url, { method: 'PUT', headers: { Expect: '100-continue', 'Transfer-Encoding': 'chunked' } });
  let wasContinued = false;
  sent.on('continue', () => (wasContinued = true));
  sent.flushHeaders();
  const incoming = await arrived;
  expect(wasContinued).toBe(false);
  incoming.socket.write('HTTP/1.1 100 Continue\r\n\r\n');
  await once(sent, 'continue');
  const chunk = Buffer.alloc(64 * 1_024);
  let written = 0;
  // Nobody reads: what fits into the buffers between is taken, and no more.
  while (await isTaken(sent, chunk)) written += chunk.length;
  expect(written).toBeGreaterThan(0);
  let read = 0;
  incoming.on('data', (part: Buffer) => (read += part.length));
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  expect(await bodyOf(response)).toBe('stored');
  expect(read).toBe(written + chunk.length);
});

/** Writes; whether it was taken, or everything between is full. */
async function isTaken(sent: ReturnType<typeof httpRequest>, chunk: Buffer): Promise<boolean> {
  if (sent.write(chunk)) return true;
  const full = new Promise<false>((resolve) => setTimeout(() => resolve(false), 300));
  return Promise.race([once(sent, 'drain').then(() => true as const), full]);
}

test('only programs that call it by a name of this machine are served', async () => {
  await start((_, outgoing) => outgoing.end());
  const { port } = new URL(url);
  for (const host of ['localhost', `127.0.0.1:${port}`, `LOCALHOST:${port}`, '[::1]:80']) {
    expect([host, await statusFor(host)]).toEqual([host, 200]);
  }
  for (const host of [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '10.0.0.1',
    '127.0.0.1@evil',
  ]) {
    expect([host, await statusFor(host)]).toEqual([host, 403]);
  }
});

test('a target that is no path is refused', async () => {
  await start((_, outgoing) => outgoing.end());
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.end('GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [answer] = (await once(socket, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1\.1 400 /);
  socket.destroy();
});

test('requests under way end with it, and are told; a port that is taken is not taken over', async () => {
  await start(() => {});
  const other = new RequestProxy(url, () => {});
  await expect(other.start(Number(new URL(url).port))).rejects.toThrow('another program has the port');
  const waiting = fetch(url);
  const failed = expect(waiting).rejects.toThrow();
  await once(service, 'request');
  await proxy.stop();
  isRunning = false;
  await failed;
  expect(told).toMatchObject([{ status: undefined, end: 'stopped' }]);
});
