import { createServer, request as send, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Budget, readBody } from '@granary/gateway/body';

const budget = new Budget(1_000);
/** What reading the body of a request came to: its bytes, or the reason of the error. */
const outcomes: string[] = [];

const server = createServer((request, response) => {
  readBody(request, response, { limitBytes: 800, timeoutMs: 10_000, budget }).then(
    (body) => {
      outcomes.push(String(body.length));
      if (request.url === '/hold') held.push(() => response.end());
      else response.end();
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
beforeEach(() => outcomes.splice(0));

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
