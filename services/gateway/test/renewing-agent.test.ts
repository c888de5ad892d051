import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { createAuthority, type Authority } from '@granary/testing/certificates';
import { PemFiles } from '@granary/shared/trust/pem-files';
import { RenewingAgent } from '../src/blob-proxy/renewing-agent';

test('blob transfers use renewed certificates for new connections', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'granary-agent-'));
  const paths = { ca: join(folder, 'ca'), cert: join(folder, 'cert'), key: join(folder, 'key') };
  const renew = async (authority: Authority) => {
    const { cert, key } = authority.issue();
    const contents = { ca: authority.cert, cert, key };
    for (const name of ['ca', 'cert', 'key'] as const) await writeFile(paths[name], contents[name]);
  };
  const optionsOf = (authority: Authority) => ({
    ...authority.issue(),
    ca: authority.cert,
    requestCert: true,
    rejectUnauthorized: true,
  });
  const [old, renewed] = [createAuthority('old'), createAuthority('renewed')];
  await renew(old);
  const server = createServer(optionsOf(old), (_, response) => response.end('answered'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const files = new PemFiles(
    { ca: ['CA', paths.ca], cert: ['CERT', paths.cert], key: ['KEY', paths.key] },
    createLogger('test', 'silent'),
  );
  const agent = new RenewingAgent({ keepAlive: true }, files);
  const ask = () =>
    new Promise<string>((resolve) => {
      const { port } = server.address() as AddressInfo;
      const asked = request({ host: 'localhost', port, agent }, (response) => {
        response.setEncoding('utf8').once('data', resolve);
      });
      asked.on('error', ({ message }) => resolve(message)).end();
    });
  try {
    expect(await ask()).toBe('answered');
    server.setSecureContext(optionsOf(renewed));
    // The connection of before is still good.
    expect(await ask()).toBe('answered');
    server.closeAllConnections();
    expect(await ask()).not.toBe('answered');
    await renew(renewed);
    expect(await ask()).toBe('answered');
  } finally {
    agent.destroy();
    server.close();
    await rm(folder, { recursive: true });
  }
});
