import { connect, type Socket } from 'node:net';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import {
  borrowGranary,
  newApp,
  send,
  transports,
  type Granary,
  type StoreAnswer,
  type TestApp,
} from '../support/granary';
import { startGranary } from '../support/own-granary';
import { expectProblem } from '../support/problem-shape';
import { closeConnections, exchangeBytes, parseAnswer, sendRaw } from '../support/raw-http';

const mebibyte = 1024 * 1024;
const nested = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;
/** JSON text of exactly so many bytes: white space is part of a body. */
const padded = (text: string, size: number) => `${text.slice(0, -1)}${' '.repeat(size - Buffer.byteLength(text))}}`;

describe.each(transports)('limits (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let root: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(async () => {
    closeConnections();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    root = `${app.appId}::films`;
  });
  const store = (text: string) => app.call<StoreAnswer>('POST', '/store', text);
  const storeOne = (document: string) => store(`{"root":"${root}","data":[${document}]}`);

  test('a document is accepted up to each of its limits, and is returned as it was written', async () => {
    const documents = [
      `{"id":"size","a":"${'x'.repeat(mebibyte - 20)}"}`,
      `{"id":"depth","a":${'['.repeat(63)}${']'.repeat(63)}}`,
      `{"id":"${'i'.repeat(256)}"}`,
      `{"id":"${'😀'.repeat(256)}"}`,
      `{"id":"digits","n":${'1'.repeat(64)},"m":-0.${'1'.repeat(63)}}`,
      '{"id":"exponents","n":1e308,"m":-1E-308,"o":0e0,"p":-0,"q":1.0000}',
      '{"id":"keys","":1,"a.b":2,"$gt":3,"toString":4,"constructor":{"prototype":5},"\\u0001":"\\ud83d\\ude00"}',
    ];
    expect(Buffer.byteLength(documents[0]!)).toBe(mebibyte);
    for (const document of documents) expect((await storeOne(document)).status).toBe(202);
    const listed = (await app.list('films', { limit: 10 })).text;
    for (const document of documents) expect(listed.includes(document)).toBe(true);
    for (const beyond of [
      `{"id":"size","a":"${'x'.repeat(mebibyte - 19)}"}`,
      `{"id":"depth","a":${'['.repeat(64)}${']'.repeat(64)}}`,
      `{"id":"${'😀'.repeat(257)}"}`,
    ]) {
      expect([400, 413]).toContain((await storeOne(beyond)).status);
    }
  });

  test('a body is accepted up to its limit, and refused one byte above it, with the limit', async () => {
    for (const [method, path, text, size] of [
      ['POST', '/store', `{"root":"${root}","data":[{}]}`, 5 * mebibyte],
      ['POST', '/list', `{"root":"${root}"}`, 512 * 1024],
      ['POST', `/api/apps/${app.appId}/payout/settings`, '{}', 64 * 1024],
    ] as const) {
      expect((await app.call(method, path, padded(text, size))).status).toBeLessThan(300);
      const refused = await app.call(method, path, padded(text, size + 1));
      expect(refused).toMatchObject({
        status: 413,
        body: { code: 'PAYLOAD_TOO_LARGE', details: { limit_bytes: size } },
      });
      const chunked = await fetch(granary.url + path, {
        method,
        headers: { 'x-app-key': app.key, 'content-type': 'application/json' },
        body: new Blob([padded(text, size + 1)]).stream(),
        duplex: 'half',
      });
      expect(chunked.status).toBe(413);
    }
  });

  test('a query is accepted up to each of its limits', async () => {
    await app.store('films', [{ id: 'a', n: 3, a: JSON.parse(nested(14)) as object }]);
    for (const query of [
      { limit: 10_000 },
      { offset: 1_000_000 },
      { find: JSON.parse(nested(16)) as object },
      { find: { or: Array.from({ length: 256 }, (_, n) => ({ n })) } },
      { find: { n: { in: Array.from({ length: 1_000 }, (_, n) => n) } } },
      { find: { and: Array.from({ length: 128 }, (_, n) => ({ or: [{ n: { is: n } }, { n: 3 }] })) } },
      { sort: Array.from({ length: 16 }, (_, n) => `f${n}`) },
    ]) {
      expect([JSON.stringify(query).slice(0, 80), (await app.list('films', query)).status]).toEqual([
        JSON.stringify(query).slice(0, 80),
        200,
      ]);
    }
  });

  test('a call stores up to 10,000 documents, together or not at all', async () => {
    const data = (count: number, last: string) =>
      `{"root":"${root}","data":[${Array.from({ length: count - 1 }, (_, n) => `{"id":"${n}"}`).join(',')},${last}]}`;
    expect((await store(data(10_000, '{"id":"last"}'))).body.results).toHaveLength(10_000);
    expect((await store(data(10_000, '{"id":1,"id":2}'))).status).toBe(400);
    expect((await store(data(10_001, '{}'))).status).toBe(400);
    expect((await app.call('GET', `/api/apps/${app.appId}/collections/films/stats`)).body).toMatchObject({
      document_count: 10_000,
      version_count: 10_000,
    });
  });

  test('a result over 32 MiB is refused, and its parts can be read', async () => {
    for (let n = 0; n < 9; n++) {
      await app.store(
        'films',
        Array.from({ length: 4 }, (_, m) => ({ id: `${n}-${m}`, a: 'x'.repeat(mebibyte - 30) })),
      );
    }
    const refused = await app.list('films');
    expect(refused).toMatchObject({ status: 413, body: { code: 'RESULT_TOO_LARGE' } });
    const open = await send(granary.url, 'GET', `/api/apps/${app.appId}/collections/films/data`);
    expect(open).toMatchObject({ status: 413, body: { code: 'RESULT_TOO_LARGE' } });
    expect((await app.list('films', { limit: 31 })).body.records).toHaveLength(31);
    expect((await app.list('films', { offset: 31 })).body.records).toHaveLength(5);
  });

  test('a collection has at most 64 indexes', async () => {
    const create = (n: number) =>
      app.call('POST', `/api/apps/${app.appId}/indexes`, {
        name: `i${n}`,
        collection: 'films',
        field_name: `f${n}`,
        index_type: 'btree',
      });
    for (let n = 0; n < 64; n++) expect((await create(n)).status).toBe(201);
    expect(await create(64)).toMatchObject({ status: 400, body: { code: 'LIMIT_EXCEEDED' } });
    expect((await create(0)).status).toBe(200);
    await app.store('films', [Object.fromEntries(Array.from({ length: 70 }, (_, n) => [`f${n}`, n]))]);
    const found = await send(granary.url, 'GET', `/api/apps/${app.appId}/collections/films/data?f63=63&f0=0`);
    expect(found.body).toMatchObject({ total: 1 });
  });

  describe('malformed and interrupted requests', () => {
    const head = (line: string, ...headers: string[]) => `${[line, 'Host: x', ...headers].join('\r\n')}\r\n\r\n`;
    const malformed: Array<[string, string, number, string]> = [
      ['no HTTP', 'hello\r\n\r\n', 400, 'MALFORMED_REQUEST'],
      ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 'MALFORMED_REQUEST'],
      ['another version', head('GET /health HTTP/3.0'), 400, 'MALFORMED_REQUEST'],
      ['no host', 'GET /health HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'VALIDATION_FAILED'],
      ['a header without a colon', head('GET /health HTTP/1.1', 'nonsense'), 400, 'MALFORMED_REQUEST'],
      ['a header name with a space', head('GET /health HTTP/1.1', 'X Y: 1'), 400, 'MALFORMED_REQUEST'],
      ['a NUL in a header', head('GET /health HTTP/1.1', 'X-App-Key: a\0b'), 400, 'MALFORMED_REQUEST'],
      ['a folded header', head('GET /health HTTP/1.1', 'X-A: 1', ' 2', 'Connection: close'), 400, 'MALFORMED_REQUEST'],
      ['a negative length', head('POST /store HTTP/1.1', 'Content-Length: -1'), 400, 'MALFORMED_REQUEST'],
      ['a length in words', head('POST /store HTTP/1.1', 'Content-Length: two'), 400, 'MALFORMED_REQUEST'],
      ['a length with a sign', head('POST /store HTTP/1.1', 'Content-Length: +2'), 400, 'MALFORMED_REQUEST'],
      ['two lengths', head('POST /store HTTP/1.1', 'Content-Length: 2', 'Content-Length: 3'), 400, 'MALFORMED_REQUEST'],
      [
        'two kinds of length',
        head('POST /store HTTP/1.1', 'Content-Length: 2', 'Transfer-Encoding: chunked'),
        400,
        'MALFORMED_REQUEST',
      ],
      ['a huge length', head('POST /store HTTP/1.1', `Content-Length: ${'9'.repeat(30)}`), 400, 'MALFORMED_REQUEST'],
      [
        'an encoding before chunked',
        head('POST /store HTTP/1.1', 'Transfer-Encoding: chunked, identity'),
        400,
        'MALFORMED_REQUEST',
      ],
      ['a lower-case method', head('get /health HTTP/1.1'), 405, 'METHOD_NOT_ALLOWED'],
      ['an unknown method', head('BREW /health HTTP/1.1'), 405, 'METHOD_NOT_ALLOWED'],
      ['a tunnel', head('CONNECT example.org:443 HTTP/1.1'), 405, 'METHOD_NOT_ALLOWED'],
      ['a long path', head(`GET /${'a'.repeat(20_000)} HTTP/1.1`), 431, 'HEADERS_TOO_LARGE'],
      ['a long header', head('GET /health HTTP/1.1', `X-A: ${'a'.repeat(17_000)}`), 431, 'HEADERS_TOO_LARGE'],
      [
        'many headers',
        head('GET /health HTTP/1.1', ...Array.from({ length: 2_000 }, (_, n) => `X-${n}: ${n}`)),
        431,
        'HEADERS_TOO_LARGE',
      ],
    ];

    test.each(malformed)('%s is refused in the shape of every error', async (_, bytes, status, code) => {
      const answer = parseAnswer(await exchangeBytes(granary.url, Buffer.from(bytes, 'latin1')));
      expect(`${answer.status} ${(answer.json as { code?: string } | undefined)?.code}`).toBe(`${status} ${code}`);
      expectProblem({ ...answer, headers: { allow: 'OPTIONS', ...answer.headers } });
    });

    test('headers up to 16 KiB are accepted', async () => {
      const answer = await sendRaw(granary.url, {
        method: 'GET',
        path: '/livez',
        headers: { 'X-A': 'a'.repeat(15_000) },
      });
      expect(answer.status).toBe(200);
    });

    /** The head of a store whose body is said to have `length` bytes, and no more of it than `begun`. */
    const beginStore = (length: number | 'chunked', begun: string): Promise<Socket> => {
      const { hostname, port } = new URL(granary.url);
      return new Promise((resolve, reject) => {
        const socket = connect(Number(port), hostname, () => {
          const size = length === 'chunked' ? 'Transfer-Encoding: chunked' : `Content-Length: ${length}`;
          const type = 'Content-Type: application/json';
          socket.write(head('POST /store HTTP/1.1', `X-App-Key: ${app.key}`, type, size) + begun, () =>
            resolve(socket),
          );
        });
        socket.on('error', reject);
      });
    };
    const body = () => `{"root":"${root}","data":[{"id":"half"}]}`;

    test('an interrupted body stores nothing, however much of it has arrived', async () => {
      const text = body();
      const sockets = await Promise.all([
        beginStore(text.length + 1, text),
        beginStore(text.length, text.slice(0, 20)),
        beginStore(text.length, ''),
        beginStore('chunked', `${text.length.toString(16)}\r\n${text}\r\n`),
        beginStore('chunked', '5\r\n{"roo'),
      ]);
      const closed = sockets.map((socket) => new Promise((resolve) => socket.on('close', resolve)));
      for (const socket of sockets) socket.destroy();
      await Promise.all(closed);
      await app.store('other', [{ id: 'after' }]);
      expect(await app.list('films')).toMatchObject({ status: 404, body: { code: 'COLLECTION_NOT_FOUND' } });
      expect((await app.call('GET', `/api/applications/${app.appId}`)).body).toMatchObject({ height: 1 });
    });

    test('malformed chunks end the connection, and no request is read from their bytes', async () => {
      const smuggled = head('DELETE /api/applications/x HTTP/1.1');
      for (const chunks of [
        'zz\r\n{}\r\n0\r\n\r\n',
        '-1\r\n{}\r\n',
        '5\r\n{}\r\n0\r\n\r\n',
        `2\r\n{}garbage\r\n0\r\n\r\n`,
      ]) {
        const bytes =
          head('POST /store HTTP/1.1', 'Transfer-Encoding: chunked', 'Connection: close') + chunks + smuggled;
        const received = await exchangeBytes(granary.url, bytes);
        // One answer at most: where it would come too late, the connection is cut without.
        expect(received).toMatch(/^(HTTP\/1\.1 40[01] (?![^]*HTTP\/1\.1)[^]*)?$/);
      }
    });

    test('two requests in one packet are both answered, in order', async () => {
      const received = await exchangeBytes(
        granary.url,
        head('GET /livez HTTP/1.1') + head('GET /nothing HTTP/1.1') + head('GET / HTTP/1.1', 'Connection: close'),
      );
      expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 404', 'HTTP/1.1 200']);
    });
  });
});

describe('a gateway with low limits', () => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await startGranary('direct', {
      settings: { gateway: { CONCURRENCY: '1', QUEUE_TIMEOUT_MS: '50', BODY_GRACE_MS: '2000' } },
    });
    app = await newApp(granary);
  });
  afterAll(() => granary.stop());

  test('a gateway refuses requests beyond its limits early, with Retry-After, and stays healthy', async () => {
    await app.store('films', [{ id: 'a' }]);
    const database = new Client({ connectionString: granary.databaseUrls.data });
    await database.connect();
    // A write that waits for the lock of its app takes the one place there is.
    await database.query('begin');
    await database.query(
      'select from head h join application a on a.number = h.app_number where a.app_id = $1 for update of h',
      [app.appId],
    );
    const held = app.store('films', [{ id: 'b' }]);
    await eventually(async () => (await send(granary.url, 'GET', '/')).status === 503);
    const refused = await sendRaw(granary.url, { method: 'GET', path: '/' });
    expect(`${refused.status} ${expectProblem(refused).code}`).toBe('503 OVERLOADED');
    expect((await send(granary.url, 'GET', '/health')).status).toBe(200);
    expect((await send(granary.url, 'GET', '/livez')).status).toBe(200);
    // Who it is, and what the request says, is found out before.
    expect((await sendRaw(granary.url, { method: 'POST', path: '/list', body: '{}' })).status).toBe(401);
    await database.query('rollback');
    await database.end();
    await held;
    await eventually(async () => (await send(granary.url, 'GET', '/')).status === 200);
  });

  test('a gateway serves others while a body does not arrive, and refuses that request in the end', async () => {
    const { hostname, port } = new URL(granary.url);
    const socket = connect(Number(port), hostname);
    const headers = [`X-App-Key: ${app.key}`, 'Content-Type: application/json', 'Content-Length: 1000', 'Host: x'];
    let received = '';
    const answer = new Promise<string>((resolve) => socket.on('close', () => resolve(received)));
    socket.on('data', (chunk: Buffer) => (received += chunk.toString())).on('error', () => {});
    socket.write(`POST /store HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n{"root":`);
    for (let n = 0; n < 20; n += 1) await app.store('films', [{ id: `${n}` }]);
    const timedOut = parseAnswer(await answer);
    expect(`${timedOut.status} ${expectProblem(timedOut).code}`).toBe('408 REQUEST_TIMEOUT');
  });

  test('a gateway answers a route that is not implemented before the body arrives', async () => {
    const { hostname, port } = new URL(granary.url);
    const socket = connect(Number(port), hostname);
    const answer = new Promise<string>((resolve) => socket.once('data', (chunk: Buffer) => resolve(chunk.toString())));
    const headers = [`X-App-Key: ${app.key}`, 'Content-Length: 60000', 'Host: x'];
    socket.write(`POST /query/sql HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n{`);
    expect(await answer).toMatch(/^HTTP\/1\.1 501 /);
    socket.destroy();
  });
});
