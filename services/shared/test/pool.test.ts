import { createServer, type AddressInfo } from 'node:net';
import { createLogger } from '@granary/shared/logger';
import { createPool } from '@granary/shared/postgres/pool';
import { transaction } from '@granary/shared/postgres/transaction';

const message = (type: string, body: Buffer | string) => {
  const content = Buffer.from(body);
  const length = Buffer.alloc(4);
  length.writeInt32BE(content.length + 4);
  return Buffer.concat([Buffer.from(type), length, content]);
};
const welcome = [message('R', Buffer.alloc(4)), message('Z', 'I')];
const farewell = message('E', 'SFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0');

test('a connection that breaks at the very moment at which it is handed out fails what wanted it, and nothing else', async () => {
  // Both arrive in one piece, so that the farewell is read before whoever gets the connection can do anything with it.
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(Buffer.concat([...welcome, farewell])));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const pool = createPool({
    url: `postgres://nobody@127.0.0.1:${(server.address() as AddressInfo).port}/nothing`,
    size: 1,
    applicationName: 'pool-test',
    log: createLogger('pool-test', 'silent'),
  });
  try {
    await expect(transaction(pool, () => Promise.resolve())).rejects.toThrow(/connection/i);
  } finally {
    await pool.end();
    await new Promise((resolve) => server.close(resolve));
  }
});
