import { createServer, request as send, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { KeyedBudget } from '@granary/shared/concurrency/keyed-budget';
import { Bodies } from '@granary/gateway/admission/bodies';
import { readBody } from '@granary/gateway/http/body';
import { limitMs } from '@granary/testing/speed';

const settings = {
  WAITING_BODIES: 6,
  WAITING_BODIES_PER_APP: 6,
  WAITING_BODIES_PER_CLIENT: 3,
  BODY_TIMEOUT_MS: limitMs(60_000),
  // No test that begins some bodies takes so long.
  BODY_GRACE_MS: limitMs(2_000),
  BODY_MIN_BYTES_PER_SECOND: 100,
};
const budget = new KeyedBudget({ total: 1_000, perKey: { app: 1_000, address: 1_000 } });
const bodies = new Bodies({ budget, reserveBytes: 0 }, settings);
/** What reading the body of a request came to: its bytes, or the reason of the error. */
const outcomes: string[] = [];

const server = createServer((request, response) => {
  const address = String(request.headers['x-address']);
  readBody(request, response, { limitBytes: 800, bodies, keys: { address } }).then(
    ({ bytes, release }) => {
      outcomes.push(String(bytes.length));
      const end = () => {
        release();
        response.end();
      };
      if (request.url === '/hold') held.push(end);
      else end();
    },
    (error: { reason: string }) => {
      outcomes.push(error.reason);
      response.end();
    },
  );
});
const held: Array<() => void> = [];

beforeAll(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
afterAll(() => new Promise((resolve) => server.close(resolve)));
beforeEach(() => void outcomes.splice(0));

function post(path: string, chunks: string[], headers: Record<string, string> = {}): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const { port } = server.address() as AddressInfo;
    const request = send({ port, host: '127.0.0.1', method: 'POST', path, headers, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response));
    });
    request.on('error', reject);
    for (const chunk of chunks) request.write(chunk);
    request.end();
  });
}

const until = async (isDone: () => boolean) => {
  while (!isDone()) await new Promise((resolve) => setTimeout(resolve, 5));
};

test('a body is read up to the limit, whether its length was announced or not', async () => {
  await post('/', ['x'.repeat(400), 'x'.repeat(400)]);
  await post('/', ['x'.repeat(800)], { 'content-length': '800' });
  await post('/', ['x'.repeat(400), 'x'.repeat(401)]);
  await post('/', ['x'.repeat(801)], { 'content-length': '801' });
  expect(outcomes).toEqual(['800', '800', 'PAYLOAD_TOO_LARGE', 'PAYLOAD_TOO_LARGE']);
});

test('a compressed body is refused', async () => {
  await post('/', ['x'], { 'content-encoding': 'gzip' });
  expect(outcomes).toEqual(['UNSUPPORTED_MEDIA_TYPE']);
});

test('bodies that are held count against the budget until their requests are answered', async () => {
  const first = post('/hold', ['x'.repeat(600)]);
  await until(() => held.length === 1);
  await post('/', ['x'.repeat(600)]);
  expect(outcomes).toEqual(['600', 'OVERLOADED']);
  held.pop()!();
  await first;
  await post('/', ['x'.repeat(600)]);
  expect(outcomes).toEqual(['600', 'OVERLOADED', '600']);
});

/** Begins with a body of which only the first byte comes. */
function begin(address: string): Promise<IncomingMessage> {
  const { port } = server.address() as AddressInfo;
  const headers = { 'x-address': address, 'content-length': '100' };
  const request = send({ port, host: '127.0.0.1', method: 'POST', headers, agent: false });
  request.on('error', () => {});
  const arrived = new Promise<IncomingMessage>((resolve) => {
    server.once('request', (incoming: IncomingMessage) => incoming.once('data', () => resolve(incoming)));
  });
  request.write('x');
  begun.push(() => request.destroy());
  return arrived;
}
const begun: Array<() => void> = [];
afterEach(async () => {
  for (const end of begun.splice(0)) end();
  await until(() => bodies.counts().waiting === 0);
});

test('of the bodies that wait the one that has not moved for longest gives way, of the client that has most', async () => {
  await begin('a');
  for (let n = 0; n < 3; n += 1) await begin('b');
  expect(bodies.counts().waiting).toBe(4);
  await begin('b');
  await until(() => outcomes.length === 1);
  await begin('a');
  await begin('c');
  expect(outcomes).toEqual(['OVERLOADED']);
  expect(bodies.counts().waiting).toBe(6);
  await post('/', ['x'.repeat(100)], { 'x-address': 'd' });
  expect(outcomes).toEqual(['OVERLOADED', 'OVERLOADED', '100']);
  expect(bodies.counts()).toMatchObject({ waiting: 5, evicted: 2 });
});

test('a body that comes too slowly is refused long before its time is over', async () => {
  await begin('a');
  await until(() => outcomes.length > 0);
  expect(outcomes).toEqual(['REQUEST_TIMEOUT']);
  expect(bodies.counts()).toMatchObject({ waiting: 0, tooSlow: 1 });
});

test('what a client sent before it went away is given back', async () => {
  const { port } = server.address() as AddressInfo;
  for (let round = 1; round <= 3; round += 1) {
    const arrived = new Promise((resolve) => {
      server.once('request', (incoming: IncomingMessage) => incoming.once('data', resolve));
    });
    const request = send({ port, host: '127.0.0.1', method: 'POST', agent: false });
    request.on('error', () => {});
    request.write('x'.repeat(700));
    await arrived;
    request.destroy();
    await until(() => outcomes.length === round);
  }
  expect(outcomes).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED']);
  await post('/', ['x'.repeat(800)]);
  expect(outcomes.at(-1)).toBe('800');
});
