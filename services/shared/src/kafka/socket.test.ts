import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { createAuthority } from '@granary/testing/certificates';
import { connectToBroker } from './socket';

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

test('with TLS it talks to a broker whose certificate is signed by the authority, by name or by address', async () => {
  const authority = createAuthority();
  const { cert, key } = authority.issue();
  const server = createTlsServer({ cert, key }, (socket) => socket.end('hello')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const greeting = async (host: string, ca: string) => {
    const socket = connectToBroker({ host, port, ssl: { ca }, onConnect: () => undefined });
    const [data] = (await once(socket, 'data')) as [Buffer];
    return data.toString();
  };
  try {
    for (const host of ['localhost', '127.0.0.1']) {
      expect(await greeting(host, authority.cert)).toBe('hello');
      await expect(greeting(host, createAuthority().cert)).rejects.toThrow();
    }
  } finally {
    server.close();
    await once(server, 'close');
  }
});
