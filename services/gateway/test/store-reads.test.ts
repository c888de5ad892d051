import { createServer, request as send, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Server } from 'node:net';
import { createLogger } from '@granary/shared/logger';
import { newCall } from '@granary/shared/rpc/types';
import {
  directReadHeader,
  storeLengthHeader,
  storeUrlHeader,
  type DownloadPermit,
} from '@granary/shared/trust/transfer-permit';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import type { Download } from '../src/admission/transfers';
import { BlobProxy } from '../src/blob-proxy/proxy';

const bytes = Buffer.from(
  Array.from({ length: 300_000 }, (_, index) => String.fromCharCode(97 + (index % 26))).join(''),
);
const etag = '"the digest"';
const stops: Array<() => unknown> = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function serve(
  listener: (request: IncomingMessage, response: ServerResponse) => void,
  onConnection = () => {},
): Promise<string> {
  const server = createServer(listener).on('connection', onConnection);
  const address = await listen(server);
  stops.push(
    () => server.close(),
    () => server.closeAllConnections(),
  );
  return address;
}

/** The status and headers of a response with this range of the bytes. */
function headOf(range: string | undefined): { status: number; headers: Record<string, string>; body: Buffer } {
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(range ?? '') ?? [];
  if (first === undefined) return { status: 200, headers: { 'content-length': String(bytes.length) }, body: bytes };
  const end = last === '' ? bytes.length - 1 : Number(last);
  const body = bytes.subarray(Number(first), end + 1);
  const contentRange = `bytes ${first}-${end}/${bytes.length}`;
  return { status: 206, headers: { 'content-length': String(body.length), 'content-range': contentRange }, body };
}

type StoreAnswer = (request: IncomingMessage, response: ServerResponse) => void;

/** Sends the bytes, or the range of them, as a store does. */
const sendBytes: StoreAnswer = (request, response) => {
  const { status, headers, body } = headOf(request.headers.range);
  response.writeHead(status, headers).end(body);
};
/** Sends the first thousand bytes and closes the connection. */
const breakOff: StoreAnswer = (request, response) => {
  const { status, headers, body } = headOf(request.headers.range);
  response.writeHead(status, headers);
  response.write(body.subarray(0, 1_000), () => setImmediate(() => response.destroy()));
};

/** A blobs service that gives the URL of a store, a store that answers as `answer` says, and a gateway's proxy. */
async function start(answer: StoreAnswer) {
  const state = {
    answer,
    storeReads: 0,
    blobsReads: [] as Array<string | undefined>,
    isGone: false,
    restStatus: 206,
    connections: 0,
  };
  const onConnection = () => void state.connections++;
  const store = await serve((request, response) => {
    state.storeReads++;
    state.answer(request, response);
  }, onConnection);
  const blobs = await serve((request, response) => {
    const { range, 'if-match': ifMatch } = request.headers;
    const { status, headers, body } = headOf(range);
    const isDirect = request.headers[directReadHeader] === '1';
    if (state.isGone && !isDirect) {
      response.writeHead(404, { 'x-granary-error': 'NOT_FOUND BLOB_NOT_FOUND' }).end('{"message":"gone"}');
    } else if (isDirect) {
      const place = { [storeUrlHeader]: `http://${store}/key?signature`, [storeLengthHeader]: body.length };
      response.writeHead(status, { ...headers, ...place, etag, 'content-length': 0 }).end();
    } else {
      state.blobsReads.push(ifMatch === undefined ? range : `${range} of ${ifMatch}`);
      response.writeHead(ifMatch === undefined ? status : state.restStatus, { ...headers, etag }).end(body);
    }
  }, onConnection);
  const credentials = { permit: () => 'a permit', tls: undefined };
  const log = createLogger('test', 'silent');
  const warnings = jest.spyOn(log, 'warn');
  const proxy = new BlobProxy({ address: blobs, credentials, idleTimeoutMs: limitMs(5_000), log });
  stops.push(() => proxy.close());
  const transfer = { moved() {}, blocked() {}, unblocked() {}, ended() {}, onCancel() {} } as unknown as Download;
  const front = await serve((request, response) => {
    const call = newCall('test', limitMs(5_000));
    proxy.read(request, response, {} as DownloadPermit, call, transfer).catch((error: unknown) => {
      response.writeHead(500).end((error as Error).message);
    });
  });
  const read = (range?: string, signal?: AbortSignal) =>
    new Promise<{ status: number; headers: IncomingMessage['headers']; body: Buffer }>((resolve, reject) => {
      const headers = range === undefined ? {} : { range };
      send(`http://${front}/`, { headers, agent: false, signal }, (response) => {
        response.toArray().then((chunks: Buffer[]) => {
          resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(chunks) });
        }, reject);
      })
        .on('error', reject)
        .end();
    });
  return { state, read, warnings };
}

test.each([undefined, 'bytes=5-9', 'bytes=299999-'])('the bytes of %s come from the store', async (range) => {
  const { state, read } = await start(sendBytes);
  const expected = headOf(range);
  const { status, headers, body } = await read(range);
  expect([status, body.equals(expected.body)]).toEqual([expected.status, true]);
  expect(headers).toMatchObject({ ...expected.headers, etag });
  expect(Object.keys(headers).filter((name) => name.startsWith('x-granary'))).toEqual([]);
  expect([state.storeReads, state.blobsReads]).toEqual([1, []]);
});

test('reads one after the other use one connection to the blobs service and one to the store', async () => {
  const { state, read } = await start(sendBytes);
  for (let count = 0; count < 5; count++) expect((await read()).status).toBe(200);
  expect([state.storeReads, state.connections]).toEqual([5, 2]);
});

test.each([
  [undefined, `bytes=1000-299999 of ${etag}`],
  ['bytes=5-9999', `bytes=1005-9999 of ${etag}`],
])('a body of %s that breaks off goes on with the rest from the blobs service', async (range, rest) => {
  const { state, read } = await start(breakOff);
  const expected = headOf(range);
  const { status, body } = await read(range);
  expect([status, body.equals(expected.body)]).toEqual([expected.status, true]);
  expect(state.blobsReads).toEqual([rest]);
});

test('a rest that is answered with something else ends the connection', async () => {
  const { state, read } = await start(breakOff);
  state.restStatus = 307;
  await expect(read()).rejects.toThrow('aborted');
});

test('a store that takes requests and does not respond delays one read by seconds, on an idle connection too', async () => {
  const { state, read } = await start(sendBytes);
  await read();
  state.answer = () => {};
  for (let count = 1; count <= 2; count++) expect((await read()).body.equals(bytes)).toBe(true);
  expect([state.storeReads, state.blobsReads.length]).toEqual([2, 2]);
});

test('a body whose rest cannot be read either ends the connection, and is never short', async () => {
  const { state, read } = await start(breakOff);
  state.isGone = true;
  await expect(read()).rejects.toThrow('aborted');
});

const wrong: Array<[string, StoreAnswer]> = [
  ['refuses', (_, response) => response.writeHead(403).end('<Error/>')],
  ['fails', (_, response) => response.writeHead(503).end()],
  ['closes the connection', (request) => request.socket.destroy()],
  ['sends too many bytes', (_, response) => response.writeHead(200).end(Buffer.concat([bytes, bytes]))],
  ['sends another range', (_, response) => response.writeHead(206, headOf('bytes=1-300000').headers).end()],
];

test.each(wrong)(
  'while the store %s the bytes come through the blobs service, and it is tried rarely',
  async (_, answer) => {
    const { state, read, warnings } = await start(answer);
    const now = jest.spyOn(performance, 'now');
    now.mockReturnValue(1_000_000);
    for (let count = 1; count <= 3; count++) {
      const { status, body } = await read();
      expect([status, body.equals(bytes), state.blobsReads.length]).toEqual([200, true, count]);
    }
    expect(state.storeReads).toBe(1);
    now.mockReturnValue(1_031_000);
    const later = await Promise.all([read(), read()]);
    expect(later.every(({ body }) => body.equals(bytes))).toBe(true);
    expect(state.storeReads).toBe(2);
    // It is said once, and without the URL, which gives access.
    expect(JSON.stringify(warnings.mock.calls)).not.toContain('signature');
    expect(warnings).toHaveBeenCalledTimes(1);

    now.mockReturnValue(1_062_000);
    state.answer = sendBytes;
    expect((await read()).body.equals(bytes)).toBe(true);
    expect((await read()).body.equals(bytes)).toBe(true);
    expect([state.storeReads, state.blobsReads.length]).toEqual([4, 5]);
  },
);

test('an object that is gone is looked up again, and the store remains in use', async () => {
  const { state, read } = await start((_, response) => response.writeHead(404).end());
  expect((await read()).body.equals(bytes)).toBe(true);
  state.isGone = true;
  expect(await read()).toMatchObject({ status: 500, body: Buffer.from('gone') });
  expect(state.storeReads).toBe(2);
});

test('an idle connection that the store closes costs no read', async () => {
  const { state, read } = await start(sendBytes);
  await read();
  state.answer = (request) => request.socket.destroy();
  expect((await read()).body.equals(bytes)).toBe(true);
  state.answer = sendBytes;
  expect((await read()).body.equals(bytes)).toBe(true);
  expect([state.storeReads, state.blobsReads.length]).toEqual([3, 1]);
});

test('a client that goes away ends the read from the store, which remains in use', async () => {
  const client = new AbortController();
  let isClosed = false;
  const { state, read } = await start((_, response) => {
    response.once('close', () => (isClosed = true));
    client.abort();
  });
  await expect(read(undefined, client.signal)).rejects.toThrow('aborted');
  await eventually(() => isClosed);
  state.answer = sendBytes;
  expect((await read()).body.equals(bytes)).toBe(true);
  expect([state.storeReads, state.blobsReads]).toEqual([2, []]);
});
