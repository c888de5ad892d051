import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { connectToBroker } from './kafka-socket';

test('a socket to a broker that is away gathers no listeners, however often it is let go of', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  const socket = connectToBroker({ host: '127.0.0.1', port, onConnect: () => undefined });
  const before = socket.listenerCount('connect');
  for (let time = 0; time < 20; time++) socket.unref();
  await once(socket, 'error');
  for (let time = 0; time < 20; time++) socket.unref();
  expect(socket.listenerCount('connect')).toBe(before);
});
