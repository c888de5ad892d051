import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request as requestHttp } from 'node:http';
import { connect, constants, type ClientHttp2Session, type OutgoingHttpHeaders } from 'node:http2';
import { createServer, request as requestHttps, type Server } from 'node:https';
import type { AddressInfo, LookupFunction } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { Browser } from 'playwright-core';
import { choosePorts } from '@granary/local/ports';
import { createAuthority, type Authority, type Certificate } from '@granary/testing/certificates';
import { eventually } from '@granary/testing/eventually';
import { describeWith, nginxForTests } from '@granary/testing/stack';
import { openPage, startBrowser } from '../support/browser';
import { randomText } from '../support/granary';
import { endAllProcesses, endProcess, OwnStart, track } from '../support/own-process';

const template = readFileSync(path.join(__dirname, '../../../deploy/nginx/granary.conf'), 'utf8');
const feedGuide = readFileSync(path.join(__dirname, '../../../docs/feed.md'), 'utf8');
const name = 'api.example.com';
/** The host of the app whose pages use Granary, an origin of its own. */
const appName = 'app.example.com';
const restarts = 5;

/**
 * The file of the guide with the ports, the address and the certificate of this test, in what nginx needs around it.
 */
async function writeConfiguration(
  directory: string,
  { ports, upstream, certificate }: { ports: readonly number[]; upstream: string; certificate: Certificate },
): Promise<void> {
  const [http, https] = ports;
  const file = (base: string): string => path.join(directory, base);
  await writeFile(file('cert.pem'), certificate.cert);
  await writeFile(file('key.pem'), certificate.key);
  await mkdir(file('temporary'));
  const configuration = template
    .replace(/^ *listen \[::\]:.*\n/gm, '')
    .replace('listen 80;', `listen 127.0.0.1:${http};`)
    .replace('listen 443 ', `listen 127.0.0.1:${https} `)
    .replace('127.0.0.1:8080', upstream)
    .replace(/\/etc\/\S*fullchain\.pem/, file('cert.pem'))
    .replace(/\/etc\/\S*privkey\.pem/, file('key.pem'));
  await writeFile(file('granary.conf'), configuration);
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  const folders = kinds.map((kind) => `${kind}_temp_path ${file(`temporary/${kind}`)};`).join(' ');
  await writeFile(
    file('nginx.conf'),
    `daemon off; ${process.getuid?.() === 0 ? 'user root;' : ''} worker_processes 1; pid ${file('pid')};
    events {} http { access_log off; ${folders} include ${file('granary.conf')}; }`,
  );
}

interface ProxyAnswer {
  status: number;
  headers: Record<string, unknown>;
  body: Buffer;
}

describeWith(describe, 'nginx')('nginx with the file of the guide', () => {
  let directory: string;
  /** Not in the other one, which only its owner may enter: Postgres runs as another user where this one is root. */
  let dataDir: string;
  let granary: OwnStart;
  let settings: Record<string, string>;
  let nginx: ChildProcess | undefined;
  let ports: number[];
  let authority: Authority;
  let certificate: Certificate;
  let session: ClientHttp2Session;

  beforeAll(async () => {
    [directory, dataDir] = await Promise.all([
      mkdtemp(path.join(os.tmpdir(), 'granary-proxy-')),
      mkdtemp(path.join(os.tmpdir(), 'granary-proxied-')),
    ]);
    authority = createAuthority();
    certificate = authority.issue({ names: [name] });
    ports = await choosePorts(3);
    const program = await nginxForTests();
    // A port of its own, so that it can be had again after a restart.
    const PORT = String(ports[2]);
    const CORS_ORIGINS = `https://${appName}`;
    settings = { PORT, TRUST_PROXY: 'loopback', LOG_LEVEL: 'info', MAX_BLOB_BYTES: '30000000', CORS_ORIGINS };
    granary = await OwnStart.ready('npm start', dataDir, settings);
    await writeConfiguration(directory, { ports, upstream: new URL(granary.url).host, certificate });
    const args = ['-e', 'stderr', '-p', directory, '-c', path.join(directory, 'nginx.conf')];
    nginx = track(spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] }));
    const origin = `https://${name}:${ports[1]}`;
    await eventually(async () => {
      session = connect(origin, { ca: authority.cert, lookup: toLoopback });
      return once(session, 'connect').then(
        () => true,
        () => false,
      );
    });
  });

  afterAll(async () => {
    session?.destroy();
    // A signal that it cannot see would leave its workers behind.
    if (nginx) await endProcess(nginx, 'SIGTERM');
    await endAllProcesses();
    for (const made of [directory, dataDir]) await rm(made, { recursive: true, force: true });
  });

  /** A request over HTTP/2, its body in pieces. */
  async function call(headers: OutgoingHttpHeaders, pieces: readonly Buffer[] = []): Promise<ProxyAnswer> {
    const stream = session.request({ 'x-app-key': granary.app.key, ...headers }, { endStream: pieces.length === 0 });
    const answered = once(stream, 'response');
    let isAnswered = false;
    void answered.then(() => (isAnswered = true));
    for (const piece of pieces) {
      if (isAnswered) break;
      if (!stream.write(piece)) await Promise.race([once(stream, 'drain'), answered]);
    }
    stream.end();
    const [received] = (await answered) as [Record<string, unknown>];
    return { status: Number(received[constants.HTTP2_HEADER_STATUS]), headers: received, body: await buffer(stream) };
  }

  test('speaks HTTP/2 with clients, on one connection for many requests at once', async () => {
    expect(session.alpnProtocol).toBe('h2');
    const body = Buffer.from(
      JSON.stringify({ root: `${granary.app.appId}::notes`, data: [{ id: 'a', text: randomText(200_000) }] }),
    );
    const post = { ':method': 'POST', 'content-type': 'application/json' };
    expect((await call({ ...post, ':path': '/store' }, [body])).status).toBe(202);
    const reads = Array.from({ length: 50 }, () => call({ ':path': '/health' }));
    expect(new Set((await Promise.all(reads)).map(({ status }) => status))).toEqual(new Set([200]));
  });

  test('still speaks HTTP/1.1 with those that ask for it, and sends plain HTTP to HTTPS', async () => {
    const options = { host: '127.0.0.1', servername: name, path: '/health', headers: { host: name } };
    // Node's client of HTTPS speaks HTTP/1.1 only.
    const old = requestHttps({ ...options, port: ports[1], ca: authority.cert }).end();
    const [answer] = (await once(old, 'response')) as [{ statusCode: number; httpVersion: string; resume(): void }];
    answer.resume();
    expect([answer.statusCode, answer.httpVersion]).toEqual([200, '1.1']);
    const plain = requestHttp({ ...options, port: ports[0] }).end();
    const [moved] = (await once(plain, 'response')) as [{ statusCode: number; headers: object; resume(): void }];
    moved.resume();
    expect([moved.statusCode, moved.headers]).toMatchObject([308, { location: `https://${name}/health` }]);
  });

  test('lets uploads and downloads through whole, and leaves it to Granary what is too large', async () => {
    const files = `/api/apps/${granary.app.appId}/blobs/files`;
    const upload = { ':method': 'POST', ':path': files, 'content-type': 'application/octet-stream' };
    const pieces = Array.from({ length: 20 }, (_, at) => Buffer.alloc(1_000_000, at));
    const stored = await call(upload, pieces);
    expect(stored.status).toBe(202);
    const { blob_id: id } = JSON.parse(stored.body.toString()) as { blob_id: string };
    await eventually(async () => (await call({ ':path': `${files}/${id}` })).status === 200);
    expect((await call({ ':path': `${files}/${id}` })).body.equals(Buffer.concat(pieces))).toBe(true);
    const tooLarge = await call({ ...upload, 'content-length': 40_000_000 }, [...pieces, ...pieces]);
    expect([tooLarge.status, tooLarge.headers['content-type']]).toEqual([413, 'application/json; charset=utf-8']);
  });

  test('passes a long cursor on, and tells the address of the client, not one that the client makes up', async () => {
    const films = Buffer.from(JSON.stringify({ root: `${granary.app.appId}::films`, data: [{ id: 'a' }] }));
    await call({ ':method': 'POST', ':path': '/store', 'content-type': 'application/json' }, [films]);
    const cursor = 'x'.repeat(11_000);
    const read = await call({ ':path': `/api/apps/${granary.app.appId}/collections/films/data?cursor=${cursor}` });
    expect(read.status).toBe(400);
    expect(read.headers['content-type']).toBe('application/json; charset=utf-8');
    await call({ ':path': '/health', 'x-forwarded-for': '192.0.2.77' });
    await call({ ':path': '/readyz' });
    await eventually(async () => granary.output().includes('/readyz'));
    expect(granary.output()).not.toContain('192.0.2.77');
  });

  describeWith(describe, 'chromium')('in Chromium', () => {
    let app: Server;
    let browser: Browser;
    /** Requests of the page for a token that the app had none for. */
    let refusals = 0;

    beforeAll(async () => {
      const appCertificate = authority.issue({ names: [appName] });
      app = createServer(appCertificate, (request, response) => {
        if (request.url !== '/token') return void response.setHeader('content-type', 'text/html').end(followingPage);
        void makeToken().then(({ status, body }) => {
          if (status !== 201) refusals += 1;
          response.writeHead(status).end(body);
        });
      });
      await once(app.listen(0, '127.0.0.1'), 'listening');
      const { port } = app.address() as AddressInfo;
      const hosts = { [`${name}:443`]: `127.0.0.1:${ports[1]}`, [`${appName}:443`]: `127.0.0.1:${port}` };
      browser = await startBrowser({ hosts, certificates: [certificate.cert, appCertificate.cert] });
    });

    afterAll(async () => {
      await browser?.close();
      app?.close();
    });

    const json = { ':method': 'POST', 'content-type': 'application/json' };

    /** The app has the key of Granary; its pages have tokens. */
    function makeToken(): Promise<ProxyAnswer> {
      const body = Buffer.from(JSON.stringify({ subscriptions: [{ as: 'all', collection: 'followed' }] }));
      return call({ ...json, ':path': `/api/apps/${granary.app.appId}/feed-tokens` }, [body]);
    }

    async function store(id: string): Promise<string> {
      const body = JSON.stringify({ root: `${granary.app.appId}::followed`, data: [{ id }] });
      expect((await call({ ...json, ':path': '/store' }, [Buffer.from(body)])).status).toBe(202);
      return id;
    }

    test('the page of docs/feed.md, of another origin, shows each change once through restarts of Granary', async () => {
      // The collection has to exist for a token, and the page begins after this document.
      await store('before');
      const ids: string[] = [];
      const page = await openPage(browser, 'about:blank');
      let isReady = false;
      const devTools = await page.context().newCDPSession(page);
      devTools.on('Network.eventSourceMessageReceived', ({ eventName }) => (isReady ||= eventName === 'ready'));
      await devTools.send('Network.enable');
      await page.goto(`https://${appName}/`);
      await eventually(() => isReady);
      const items = page.locator('li');
      const isShown = (id: string) =>
        eventually(async () => (await items.allTextContents()).includes(id), 60_000, { title: `the page shows ${id}` });
      for (let restart = 0; restart < restarts; restart += 1) {
        ids.push(await store(`${restart} shown`));
        await isShown(`${restart} shown`);
        // It is on its way to the page, or not yet, when Granary ends.
        ids.push(await store(`${restart} on its way`));
        await granary.end(restart % 2 === 0 ? 'SIGKILL' : 'SIGTERM');
        const refusalsBefore = refusals;
        // The app has no token for the page until Granary is back.
        if (restart % 3 === 0) await eventually(() => refusals > refusalsBefore);
        granary = await OwnStart.ready('npm start', dataDir, settings);
      }
      ids.push(await store('last'));
      await isShown('last');
      expect(await items.allTextContents()).toEqual(ids);
    });
  });
});

/** A page of the app with the program of docs/feed.md for browsers, which shows the ids of documents. */
const [, program = ''] = /^```js\n(let cursor.*?)^```$/ms.exec(feedGuide) ?? [];
const followingPage = `<!doctype html>
<title>Followed</title>
<ul></ul>
<script>
  const URL = 'https://${name}';
  async function freshToken() {
    const response = await fetch('/token');
    if (!response.ok) throw new Error('no token: ' + response.status);
    return (await response.json()).token;
  }
  function show({ id }) {
    document.querySelector('ul').append(Object.assign(document.createElement('li'), { textContent: id }));
  }
  ${program}
</script>`;

/** Resolves the name of the guide to this machine. */
const toLoopback: LookupFunction = (_, { all }, done) => {
  if (all) done(null, [{ address: '127.0.0.1', family: 4 }]);
  else done(null, '127.0.0.1', 4);
};
