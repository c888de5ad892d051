import { setTimeout as delay } from 'node:timers/promises';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { eventually } from '@granary/testing/eventually';
import { waitMs } from '@granary/testing/speed';
import { gatewayConfig } from '../src/config';
import { startGateway, type RunningGateway } from '../src/service';

const limit = 20;
const ageMs = waitMs(2_000);
const nowhere = '127.0.0.1:1';
const sockets: Socket[] = [];
let gateway: RunningGateway;
/** A data service that accepts connections and never answers. */
let silent: Server;

beforeEach(async () => {
  silent = createServer((socket) => void sockets.push(socket.on('error', () => {})));
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const config = readConfig(gatewayConfig, {
    PORT: '0',
    OPERATOR_KEY: 'operator-key-of-the-tests',
    INTERNAL_SECRET: 'internal-secret-of-the-tests-0123456789',
    DATA_ADDRESS: `127.0.0.1:${(silent.address() as AddressInfo).port}`,
    REQUEST_TIMEOUT_MS: '60000',
    BLOBS_ADDRESS: nowhere,
    FINANCE_ADDRESS: nowhere,
    PAYMENTS_ADDRESS: nowhere,
    TASKS_ADDRESS: nowhere,
    BLOBS_HTTP_ADDRESS: nowhere,
    CONNECTIONS: String(limit),
    CONNECTION_AGE_MS: String(ageMs),
  });
  gateway = await startGateway(config, { log: createLogger('test', 'silent') });
});
afterEach(async () => {
  const closed = new Promise((resolve) => silent.close(resolve));
  const destroySockets = () => sockets.splice(0).forEach((socket) => socket.destroy());
  destroySockets();
  await gateway.stop();
  // The gateway may have connected again meanwhile.
  destroySockets();
  await closed;
});

/**
 * A connection from a local address; `received` is what came over it, and it is closed when the other side closed it.
 */
async function open(localAddress: string) {
  const socket = connect({ port: gateway.port, host: '127.0.0.1', localAddress });
  sockets.push(socket);
  let received = '';
  socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1'))).on('error', () => {});
  await new Promise((resolve) => socket.once('connect', resolve));
  return { socket, received: () => received };
}
const livez = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n';

test('a client that hoards idle connections loses its oldest to others, who keep theirs', async () => {
  const other = await open('127.0.0.3');
  const hoard: Socket[] = [];
  for (let at = 0; at < limit + 10; at++) hoard.push((await open('127.0.0.2')).socket);
  await eventually(() => hoard.filter(({ destroyed }) => destroyed).length === 11);
  expect(hoard.findIndex(({ destroyed }) => !destroyed)).toBe(11);
  const newcomer = await open('127.0.0.4');
  for (const each of [other, newcomer]) {
    each.socket.write(livez);
    await eventually(() => each.received().startsWith('HTTP/1.1 200'));
  }
});

test('where all connections are busy a new one is refused with 503, and served once there is room', async () => {
  const head =
    'POST /list HTTP/1.1\r\nHost: x\r\nX-App-Key: app_x\r\nContent-Length: 10\r\nContent-Type: application/json\r\n\r\n';
  const busy = await Promise.all(Array.from({ length: limit }, () => open('127.0.0.2')));
  // The first request is answered when the head of the second, which came in the same packet, has been read.
  for (const { socket, received } of busy) {
    socket.write(livez + head);
    await eventually(() => received().startsWith('HTTP/1.1 200'));
  }
  const refused = await open('127.0.0.3');
  await eventually(() => refused.socket.destroyed);
  expect(refused.received()).toMatch(
    /^HTTP\/1\.1 503 Service Unavailable\r\n[^]*Retry-After: 1\r\n[^]*"code":"OVERLOADED"/,
  );
  for (const { socket } of busy) socket.destroy();
  await eventually(async () => {
    const { socket, received } = await open('127.0.0.3');
    socket.write(livez);
    // The gateway may not have noticed yet that the others are gone.
    await eventually(() => received() !== '' || socket.destroyed);
    return received().startsWith('HTTP/1.1 200');
  });
});

test('a connection ends at its age, with the answer to a request, and what is pipelined behind that is not processed', async () => {
  const { socket, received } = await open('127.0.0.6');
  const openedAtMs = performance.now();
  const answers = () => received().split('HTTP/1.1 200').length - 1;
  let sent = 0;
  while (performance.now() - openedAtMs < ageMs / 2) {
    socket.write(livez);
    sent += 1;
    await eventually(() => answers() === sent);
  }
  expect(received()).not.toMatch(/^Connection: close\r$/im);
  await delay(ageMs * 1.2 - (performance.now() - openedAtMs));
  // Idle connections stay: a request may be on its way.
  expect(socket.destroyed).toBe(false);
  socket.write(livez + livez + livez);
  await eventually(() => socket.destroyed);
  expect(answers()).toBe(sent + 1);
  expect(received().match(/^Connection: close\r$/gim)).toHaveLength(1);
});
