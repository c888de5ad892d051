import { mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { connect as connectPlain, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, createSecureContext, TLSSocket } from 'node:tls';
import { openClient } from '@granary/shared/grpc/client';
import { startServer } from '@granary/shared/grpc/server';
import { createPool, row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { newCall } from '@granary/shared/rpc/types';
import { createAuthority, type Authority, type Certificate } from '@granary/testing/certificates';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { openTrust } from '@granary/shared/trust/trust';
import { dataDefinition, log, stops, multiplexed, wishes } from './support/mux-fixture';

afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

const INTERNAL_SECRET = 'the secret of the tests of renewed certificates';
const tlsCheckEveryMs = 20;

/** PEM files as a secret of Kubernetes is mounted: links through a folder that is replaced at once. */
async function mountedFiles() {
  const folder = await mkdtemp(join(tmpdir(), 'granary-renewal-'));
  stops.push(() => rm(folder, { recursive: true, force: true }));
  let generation = 0;
  const replace = async (files: Record<string, string>) => {
    const next = await mkdtemp(join(folder, '..version-'));
    for (const [name, content] of Object.entries(files)) await writeFile(join(next, name), content);
    await symlink(next, join(folder, `..next-${++generation}`));
    await rename(join(folder, `..next-${generation}`), join(folder, '..data'));
  };
  return {
    replace,
    renew: (authority: Authority) => {
      const { cert, key } = authority.issue();
      return replace({ 'ca.crt': authority.cert, 'tls.crt': cert, 'tls.key': key });
    },
    paths: {
      ca: join(folder, '..data', 'ca.crt'),
      cert: join(folder, '..data', 'tls.crt'),
      key: join(folder, '..data', 'tls.key'),
    },
  };
}

type Files = Awaited<ReturnType<typeof mountedFiles>>;

const settingsOf = ({ paths }: Files) => ({
  INTERNAL_SECRET,
  TLS_CA_FILE: paths.ca,
  TLS_CERT_FILE: paths.cert,
  TLS_KEY_FILE: paths.key,
  TLS_VERIFY_CLIENTS: true,
});

async function serve(files: Files, listen = '127.0.0.1:0') {
  const service = wishes();
  const data: Implementation = { ...service.implementation, access: { gateway: '*' } };
  const trust = openTrust('data', settingsOf(files), log, { tlsCheckEveryMs }).server();
  const server = await startServer(listen, [data], log, trust);
  stops.push(() => server.stop());
  return server;
}

/** Whether a server's new connections have a certificate of the authority. */
const isSignedBy = (authority: Authority, address: string): Promise<boolean> =>
  new Promise((resolve) => {
    const [host = '', port = ''] = address.split(':');
    const socket = connectTls({ host, port: Number(port), ca: authority.cert, ...authority.issue() }, () => {
      resolve(socket.authorized);
      socket.destroy();
    });
    socket.on('error', () => resolve(false));
  });

test('a gRPC server and its callers use renewed files for new connections, and open ones stay', async () => {
  const [old, renewed] = [createAuthority('old'), createAuthority('renewed')];
  const [ofServer, ofClient] = [await mountedFiles(), await mountedFiles()];
  await Promise.all([ofServer.renew(old), ofClient.renew(old)]);
  const server = await serve(ofServer);
  const trust = openTrust('gateway', settingsOf(ofClient), log, { tlsCheckEveryMs });
  const address = server.address.replace('127.0.0.1', 'localhost');
  const opened = openClient(
    dataDefinition,
    { address },
    { log, multiplexed, credentials: () => trust.towards('data'), repeatable: ['listDocuments', 'getCommit'] },
  );
  stops.push(() => Promise.resolve(opened.close()));
  const call = () => newCall('test', limitMs(20_000));
  const answered = () =>
    Promise.all([
      opened.client.listDocuments({ appId: 'films', body: Buffer.from('{}') }, call()),
      // A unary call: it gets as far as the handler, which finds no wish in it.
      expect(opened.client.getCommit({ ticketId: 'a' }, call())).rejects.toMatchObject({ code: 'INTERNAL' }),
    ]);
  await answered();
  expect([await isSignedBy(old, server.address), await isSignedBy(renewed, server.address)]).toEqual([true, false]);

  await ofServer.renew(renewed);
  await eventually(() => isSignedBy(renewed, server.address));
  expect(await isSignedBy(old, server.address)).toBe(false);
  await answered();

  // Its next connections are to a server that knows only the renewed ones.
  await ofClient.renew(renewed);
  await server.stop();
  await serve(ofServer, server.address);
  await answered();
});

test.each<[what: string, files: (next: Certificate, authority: Authority) => Record<string, string>]>([
  [
    'a key that does not belong to the certificate',
    ({ cert }, authority) => ({ 'ca.crt': authority.cert, 'tls.crt': cert, 'tls.key': authority.issue().key }),
  ],
  ['no key', ({ cert }, authority) => ({ 'ca.crt': authority.cert, 'tls.crt': cert })],
  ['an authority that is none', ({ cert, key }) => ({ 'ca.crt': 'none', 'tls.crt': cert, 'tls.key': key })],
])('with %s in the files the last ones stay in use, until the files are right', async (_, wrong) => {
  const [old, renewed] = [createAuthority('old'), createAuthority('renewed')];
  const files = await mountedFiles();
  await files.renew(old);
  const server = await serve(files);
  const isSeen = new Promise<void>((resolve) => warned.add(resolve));
  await files.replace(wrong(renewed.issue(), renewed));
  await isSeen;
  expect(await isSignedBy(old, server.address)).toBe(true);
  await files.renew(renewed);
  await eventually(() => isSignedBy(renewed, server.address));
});

/** What waits for the next warning of the log. */
const warned = new Set<() => void>();
beforeAll(() => {
  const { warn } = log;
  jest.spyOn(log, 'warn').mockImplementation((...args: Parameters<typeof warn>) => {
    for (const resolve of warned) resolve();
    warned.clear();
    return warn.apply(log, args);
  });
});

/** Ends TLS in front of Postgres; collects the certificates of clients. */
async function tlsPostgres(target: string, authority: () => Authority) {
  const { hostname, port } = new URL(target);
  const clients: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write('S');
      const { cert, key } = authority().issue();
      const secureContext = createSecureContext({ cert, key, ca: authority().cert });
      const secure = new TLSSocket(socket, { isServer: true, secureContext, requestCert: true });
      secure.on('error', () => {});
      secure.once('secure', () => {
        clients.push(secure.getPeerCertificate().fingerprint256);
        const upstream = connectPlain(Number(port), hostname);
        upstream.on('error', () => {}).on('close', () => socket.destroy());
        socket.on('close', () => upstream.destroy());
        secure.pipe(upstream).pipe(secure);
      });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return {
    host: `localhost:${(server.address() as AddressInfo).port}`,
    clients,
    cut: () => {
      for (const socket of sockets) socket.destroy();
    },
  };
}

test('connections to Postgres use the certificates that the files of the URL hold then', async () => {
  let authority = createAuthority('old');
  const files = await mountedFiles();
  await files.renew(authority);
  const database = (await testDatabase()).url;
  const postgres = await tlsPostgres(database, () => authority);
  const url = Object.assign(new URL(database), { host: postgres.host });
  const { ca: sslrootcert, cert: sslcert, key: sslkey } = files.paths;
  url.search = new URLSearchParams({ sslmode: 'verify-full', sslrootcert, sslcert, sslkey }).toString();
  const pool = createPool({ url: url.href, size: 1, applicationName: 'test', log });
  stops.push(() => pool.end());
  const ask = () => row(pool, sql`select 1 as one`);
  expect(await ask()).toEqual({ one: 1 });
  authority = createAuthority('renewed');
  await files.renew(authority);
  postgres.cut();
  await eventually(() => ask().catch(() => undefined));
  const [first, last] = [postgres.clients[0], postgres.clients.at(-1)];
  expect(first).not.toBe(last);
});
