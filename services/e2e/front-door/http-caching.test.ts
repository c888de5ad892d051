import { request, type IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:net';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import {
  borrowGranary,
  newApp,
  operatorKey,
  randomText,
  transports,
  type Granary,
  type TestApp,
} from '../support/granary';
import { startGranary } from '../support/own-granary';

interface Raw {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** One request with exactly these headers; the answer as it came over the wire. */
function ask(
  url: string,
  path: string,
  headers: Record<string, string> = {},
  { method = 'GET', body }: { method?: string; body?: object } = {},
): Promise<Raw> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url + path, { method, headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', reject);
      response.on('end', () =>
        resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(chunks) }),
      );
    });
    outgoing.on('error', reject);
    outgoing.end(body && JSON.stringify(body));
  });
}

const decoders: Record<string, (body: Buffer) => Buffer> = {
  br: brotliDecompressSync,
  gzip: gunzipSync,
  identity: (body) => body,
};
const encodingOf = ({ headers }: Raw) => headers['content-encoding'] ?? 'identity';
const decoded = (answer: Raw) => decoders[encodingOf(answer)]!(answer.body).toString();
const jsonType = { 'content-type': 'application/json' };

describe.each(transports)('compression and revalidation (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let page: string;
  let plain: Raw;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    const films = Array.from({ length: 2_000 }, (_, n) => ({ id: `film-${n}`, title: `Film “${n}”`, year: 1900 + n }));
    await app.store('films', films);
    page = `/api/apps/${app.appId}/collections/films/data?limit=2000`;
    plain = await ask(granary.url, page);
  });
  afterAll(() => granary.stop());

  const get = (path: string, accepted?: string, headers: Record<string, string> = {}) =>
    ask(granary.url, path, { ...(accepted === undefined ? {} : { 'accept-encoding': accepted }), ...headers });

  test.each([
    ['gzip', 'gzip'],
    ['br', 'br'],
    ['gzip, deflate, br, zstd', 'br'],
    ['gzip;q=1.0, br;q=0.5', 'gzip'],
    ['br;q=0, gzip', 'gzip'],
    ['*', 'br'],
    ['*;q=0.5, br;q=0', 'gzip'],
    ['GZIP', 'gzip'],
    ['identity, gzip;q=0.5', 'identity'],
    ['gzip;q=0, br;q=0', 'identity'],
    ['deflate, zstd', 'identity'],
    ['', 'identity'],
    [';;;,q=,gzip;q=x', 'identity'],
  ])('Accept-Encoding "%s" is answered with %s, and the same text', async (accepted, encoding) => {
    const answer = await get(page, accepted);
    expect([answer.status, encodingOf(answer), answer.headers.vary]).toEqual([200, encoding, 'Accept-Encoding']);
    expect(decoded(answer)).toBe(plain.body.toString());
    if (encoding !== 'identity') expect(answer.body.length).toBeLessThan(plain.body.length / 3);
    expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
  });

  test('without Accept-Encoding an answer is plain, with its length', async () => {
    expect(plain.headers).toMatchObject({ 'content-length': String(plain.body.length), vary: 'Accept-Encoding' });
    expect(plain.headers['content-encoding']).toBeUndefined();
    expect((JSON.parse(plain.body.toString()) as { records: object[] }).records).toHaveLength(2_000);
  });

  test('HEAD has the headers of GET and no body', async () => {
    const head = await ask(granary.url, page, { 'accept-encoding': 'gzip' }, { method: 'HEAD' });
    expect([head.status, encodingOf(head), head.headers.vary, head.body.length]).toEqual([
      200,
      'gzip',
      'Accept-Encoding',
      0,
    ]);
  });

  test('short answers, errors and blobs are not compressed', async () => {
    const key = { 'x-app-key': app.key };
    const uploaded = await app.call<{ blob_id: string }>(
      'POST',
      `/api/apps/${app.appId}/blobs/texts`,
      'text '.repeat(1_000),
      { 'content-type': 'text/plain' },
    );
    const unknownField = `/api/apps/${app.appId}/collections/films/data?${'x'.repeat(2_000)}=1`;
    for (const [path, status] of [
      ['/', 200],
      [`/api/apps/${app.appId}/blobs/texts/${uploaded.body.blob_id}`, 200],
      [unknownField, 400],
    ] as const) {
      const answer = await get(path, 'gzip, br', key);
      expect([path, answer.status, encodingOf(answer)]).toEqual([path, status, 'identity']);
    }
  });

  test('an answer with an app key is never compressed, however long the text beside it', async () => {
    const headers = { 'x-operator-key': operatorKey, 'accept-encoding': 'gzip, br', ...jsonType };
    const long = { name: 'x', description: 'd'.repeat(5_000) };
    const created = await ask(granary.url, '/api/applications', headers, { method: 'POST', body: long });
    expect([created.status, encodingOf(created), created.headers.vary]).toEqual([201, 'identity', undefined]);
    const { app_id: appId, app_key: appKey } = JSON.parse(created.body.toString()) as Record<string, string>;
    expect(appKey).toMatch(/^app_/);
    const targets = Array.from({ length: 100 }, (_, n) => `some-application-${n}`);
    const body = { name: 'agents', permissions: ['Pay'], pay_limits: { allowed_target_apps: targets } };
    const path = `/api/apps/${appId}/regenerate-key`;
    const made = await ask(granary.url, path, { ...headers, 'x-app-key': appKey! }, { method: 'POST', body });
    expect([made.status, encodingOf(made), made.body.length > 1_024]).toEqual([200, 'identity', true]);
    const listed = await get(`/api/apps/${appId}/keys`, 'gzip', { 'x-app-key': appKey! });
    expect([listed.status, encodingOf(listed)]).toEqual([200, 'gzip']);
  });

  test.each(['/openapi.json', '/docs'])('HEAD %s has the headers of GET and no body', async (path) => {
    for (const encoding of ['identity', 'gzip', 'br']) {
      const found = await get(path, encoding);
      const head = await ask(granary.url, path, { 'accept-encoding': encoding }, { method: 'HEAD' });
      expect([head.status, head.body.length, found.body.length > 1_024]).toEqual([200, 0, true]);
      const varying = { date: undefined, 'x-request-id': undefined };
      expect({ ...head.headers, ...varying }).toEqual({ ...found.headers, ...varying });
    }
  });

  test.each(['/openapi.json', '/docs', 'skills.md'])(
    '%s has an ETag for each encoding, and answers it with 304',
    async (name) => {
      const path = name === 'skills.md' ? `/api/skills/${app.appId}/skills.md` : name;
      const etags = new Set<string>();
      for (const encoding of ['identity', 'gzip', 'br']) {
        const first = await get(path, encoding);
        const etag = first.headers.etag!;
        expect([encodingOf(first), etag]).toEqual([encoding, expect.stringMatching(/^"[\w-]+"$/)]);
        etags.add(etag);
        for (const known of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
          const again = await get(path, encoding, { 'if-none-match': known });
          expect([again.status, again.body.length, again.headers.etag]).toEqual([304, 0, etag]);
          expect(again.headers).toMatchObject({ vary: 'Accept-Encoding', 'cache-control': 'no-cache' });
          expect(again.headers['content-type']).toBeUndefined();
        }
        const changed = await get(path, encoding, { 'if-none-match': '"other"' });
        expect([changed.status, decoded(changed)]).toEqual([200, decoded(first)]);
      }
      expect(etags.size).toBe(3);
      // What is stored in one encoding is not what would be answered in another.
      const [identity] = etags;
      expect((await get(path, 'br', { 'if-none-match': identity! })).status).toBe(200);
    },
  );

  test('the ETag of a skills document changes with the document', async () => {
    const path = `/api/skills/${app.appId}/skills.md`;
    const { etag } = (await get(path)).headers;
    await app.call('PUT', path, '# Ours', { 'content-type': 'text/markdown' });
    const changed = await get(path, undefined, { 'if-none-match': etag! });
    expect([changed.status, changed.headers.etag === etag]).toEqual([200, false]);
  });

  test('clients that do not read compressed pages, or disconnect, delay no other', async () => {
    const { hostname, port } = new URL(granary.url);
    // More than the buffers of sockets take, compressed or not.
    for (let call = 0; call < 4; call++) {
      await app.store(
        'big',
        Array.from({ length: 24 }, () => ({ text: randomText(150_000) })),
      );
    }
    const path = `/api/apps/${app.appId}/collections/big/data`;
    const lines = [`GET ${path} HTTP/1.1`, 'Host: x', 'Accept-Encoding: gzip'];
    const sockets = Array.from({ length: 4 }, () => {
      const socket = connect(Number(port), hostname).on('error', () => {});
      socket.pause().write(`${lines.join('\r\n')}\r\n\r\n`);
      return socket;
    });
    const whole = await get(path);
    for (const accepted of ['gzip', 'br']) {
      const answer = await get(path, accepted);
      expect([encodingOf(answer), decoded(answer) === whole.body.toString()]).toEqual([accepted, true]);
    }
    for (const socket of sockets) socket.destroy();
    expect(decoded(await get(page, 'gzip'))).toBe(plain.body.toString());
  });
});

describe('a gateway with COMPRESSION=false', () => {
  let granary: Granary;
  beforeAll(async () => {
    granary = await startGranary('direct', { settings: { gateway: { COMPRESSION: 'false' } } });
  });
  afterAll(() => granary.stop());

  test('with COMPRESSION=false nothing is compressed, and revalidation works', async () => {
    const answer = await ask(granary.url, '/openapi.json', { 'accept-encoding': 'gzip, br' });
    expect([encodingOf(answer), answer.headers.vary]).toEqual(['identity', undefined]);
    const headers = { 'accept-encoding': 'gzip, br', 'if-none-match': answer.headers.etag! };
    expect((await ask(granary.url, '/openapi.json', headers)).status).toBe(304);
  });
});
