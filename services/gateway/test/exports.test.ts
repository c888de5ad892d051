import { createServer, get, request, type IncomingMessage, type Server } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { brotliDecompressSync, createBrotliDecompress, createGunzip, gunzipSync } from 'node:zlib';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { ServiceError } from '@granary/shared/errors';
import type { ExportPageRequest } from '@granary/shared/gen/granary/data/v1/ExportPageRequest';
import type { ExportPageResponse } from '@granary/shared/gen/granary/data/v1/ExportPageResponse';
import { createLogger } from '@granary/shared/logger';
import type { Call } from '@granary/shared/rpc/types';
import { eventually, eventuallyResolves } from '@granary/testing/eventually';
import { Transfers, type TransferSettings } from '../src/admission/transfers';
import type { Clients } from '../src/clients/clients';
import { KeyWatch } from '../src/clients/key-watch';
import type { ExportRequest } from '../src/export/export-request';
import { sendExport } from '../src/export/send-export';
import { Compression } from '../src/http/compression';
import { transferSettings } from './support/transfer-settings';

const wanted: ExportRequest = {
  appId: 'demo',
  collection: 'notes',
  format: 'ndjson',
  height: undefined,
  after: undefined,
  find: Buffer.alloc(0),
  select: Buffer.alloc(0),
  hasHistory: false,
  hasDeleted: false,
  columns: undefined,
  escapesFormulas: false,
};

/** A data service with so many pages of about half a megabyte. */
class DataDouble {
  readonly requests: ExportPageRequest[] = [];
  readonly calls: Call[] = [];
  pages = 3;
  emptyPages = 0;
  validKeys = ['key'];
  error: { atPage: number; error: ServiceError } | undefined;
  /** Pages behind the first one come once this is resolved. */
  laterPages: Promise<void> = Promise.resolve();

  exportPage = async (page: ExportPageRequest, call: Call): Promise<ExportPageResponse> => {
    this.requests.push(page);
    this.calls.push(call);
    const number = page.after === null ? 0 : Number(page.after.id);
    if (this.error?.atPage === number) throw this.error.error;
    if (number > 0) await this.laterPages;
    return {
      height: '7',
      collectionNumber: '1',
      lines: number < this.emptyPages ? Buffer.alloc(0) : linesOf(number),
      last: number + 1 < this.pages ? { id: String(number + 1), version: '0' } : null,
      fields: [],
      hints: [],
    };
  };

  findValidKeys = (): Promise<{ keyIds: string[] }> => Promise.resolve({ keyIds: this.validKeys });
}

const linesOf = (page: number): Buffer =>
  Buffer.from(
    Array.from({ length: 500 }, (_, index) => `{"id":"${page}-${index}","t":"${'x'.repeat(1_000)}"}\n`).join(''),
  );

const unavailable = new ServiceError('UNAVAILABLE', 'OVERLOADED', 'Not now');

let data: DataDouble;
let server: Server;
let errors: unknown[];
let transfers: Transfers;

async function start(overrides: Partial<TransferSettings> = {}, idleTimeoutMs = 600_000): Promise<void> {
  data = new DataDouble();
  const raised: unknown[] = [];
  errors = raised;
  transfers = new Transfers({ ...transferSettings, ...overrides });
  const keyWatch = new KeyWatch(data, createLogger('gateway', 'silent'));
  const clients = { data } as unknown as Pick<Clients, 'data'>;
  const compression = new Compression({ isEnabled: true, concurrency: 2 });
  const config = { IDLE_TIMEOUT_MS: idleTimeoutMs };
  const parts = { clients, transfers, keyWatch, compression, config };
  server = createServer((incoming, outgoing) => {
    const signal = new Cancellation();
    const call: Call = { requestId: 'r', signal, deadlineMs: Date.now() };
    outgoing.once('close', () => signal.abort());
    const { searchParams } = new URL(incoming.url!, 'http://localhost');
    const format = (searchParams.get('format') ?? 'ndjson') as ExportRequest['format'];
    const appId = searchParams.get('app') ?? 'demo';
    const columns = searchParams.get('columns')?.split(',');
    sendExport(
      parts,
      { ...wanted, format, appId, columns },
      {
        incoming,
        outgoing,
        call,
        keys: { app: appId, address: '127.0.0.1' },
        keyId: 'key',
        begin: (headers) => outgoing.writeHead(200, headers),
      },
    ).catch((error: unknown) => {
      raised.push(error);
      if (!outgoing.headersSent) outgoing.writeHead(error instanceof ServiceError ? 503 : 500).end();
      else outgoing.destroy();
    });
  });
  server.setTimeout(idleTimeoutMs);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}

async function stop(): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

async function restart(overrides: Partial<TransferSettings>, idleTimeoutMs?: number): Promise<void> {
  await stop();
  await start(overrides, idleTimeoutMs);
}

beforeEach(() => start());
afterEach(stop);

const addressOf = (query = '') => `http://127.0.0.1:${(server.address() as AddressInfo).port}/${query}`;

const open = (query = '', headers: Record<string, string> = {}): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    get(addressOf(query), { agent: false, headers }, resolve).on('error', reject);
  });

async function read(response: IncomingMessage): Promise<{ bytes: Buffer; isWhole: boolean }> {
  const chunks: Buffer[] = [];
  response.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', () => {});
  response.resume();
  await new Promise((resolve) => response.once('close', resolve));
  return { bytes: Buffer.concat(chunks), isWhole: response.complete };
}

const whole = Buffer.concat([0, 1, 2].map(linesOf));

test('an export has all pages, each of the height and the collection of the first', async () => {
  const response = await open();
  expect(response.headers).toMatchObject({
    'content-type': 'application/x-ndjson; charset=utf-8',
    'content-disposition': 'attachment; filename="demo-notes-7.ndjson"',
    'x-granary-height': '7',
    'transfer-encoding': 'chunked',
  });
  const { bytes, isWhole } = await read(response);
  expect([bytes.equals(whole), isWhole]).toEqual([true, true]);
  expect(data.requests.map(({ height, collectionNumber, after }) => [height, collectionNumber, after?.id])).toEqual([
    [undefined, undefined, undefined],
    ['7', '1', '1'],
    ['7', '1', '2'],
  ]);
});

test('the deadline of its request is none of its pages, of which each has one of its own', async () => {
  const startedAtMs = Date.now();
  await read(await open());
  const leftMs = data.calls.map(({ deadlineMs }) => deadlineMs - startedAtMs);
  expect(leftMs).toHaveLength(3);
  for (const ms of leftMs) expect(ms).toBeGreaterThanOrEqual(30_000);
});

test.each([
  ['gzip', gunzipSync],
  ['br', brotliDecompressSync],
] as const)('an export is compressed by %s for a client that takes it', async (encoding, decompress) => {
  const response = await open('', { 'accept-encoding': encoding });
  expect(response.headers).toMatchObject({ 'content-encoding': encoding, vary: 'Accept-Encoding' });
  const { bytes } = await read(response);
  expect(bytes.length).toBeLessThan(whole.length / 10);
  expect(decompress(bytes).equals(whole)).toBe(true);
});

test('a JSON array and CSV have every document once, across pages and parts', async () => {
  const json = await read(await open('?format=json'));
  const documents = JSON.parse(json.bytes.toString()) as Array<{ id: string }>;
  const ids = [0, 1, 2].flatMap((page) => Array.from({ length: 500 }, (_, index) => `${page}-${index}`));
  expect(documents.map(({ id }) => id)).toEqual(ids);
  const csv = await read(await open('?format=csv'));
  expect(
    csv.bytes
      .toString()
      .split('\r\n')
      .map((line) => line.split(',')[0]),
  ).toEqual(['id', ...ids, '']);
});

describe('while no document comes', () => {
  let release: () => void;
  beforeEach(async () => {
    await restart({}, 1_000);
    data.emptyPages = 2;
    data.laterPages = new Promise((resolve) => (release = resolve));
  });

  test.each([
    ['ndjson', 'identity'],
    ['ndjson', 'gzip'],
    ['ndjson', 'br'],
    ['json', 'identity'],
  ])('%s by %s has empty lines, which are no documents', async (format, encoding) => {
    const response = await open(`?format=${format}`, { 'accept-encoding': encoding });
    const decoder = encoding === 'gzip' ? createGunzip() : encoding === 'br' ? createBrotliDecompress() : undefined;
    let text = '';
    const decoded = decoder ? response.pipe(decoder) : response;
    decoded.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const ended = new Promise((resolve) => decoded.once('end', resolve));
    // More than one, so that the connection is kept for longer than it may be idle.
    await eventually(() => text.length >= 3);
    expect(text).toMatch(/^\n+$/);
    release();
    await ended;
    const documents =
      format === 'json' ? (JSON.parse(text) as object[]) : text.split('\n').filter((line) => line !== '');
    expect(documents).toHaveLength(500);
    expect(response.complete).toBe(true);
  });

  test.each(['csv', 'csv&columns=id'])(
    '%s has no line that is none of its table, and is not cut off',
    async (query) => {
      let idle = 0;
      server.on('connection', (socket) => socket.on('timeout', () => (idle += 1)));
      const answer = open(`?format=${query}`).then(read);
      await eventually(() => idle > 0);
      release();
      const { bytes, isWhole } = await answer;
      expect([bytes.toString().split('\r\n').length, isWhole]).toEqual([502, true]);
    },
  );
});

test('HEAD has the headers and no more than the first page is read for it', async () => {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request(addressOf('?format=csv'), { method: 'HEAD', agent: false }, resolve).on('error', reject).end();
  });
  expect(response.headers).toMatchObject({ 'x-granary-height': '7' });
  expect((await read(response)).bytes.length).toBe(0);
  expect(data.requests.length).toBeLessThanOrEqual(2);
});

test('HTTP/1.0 is refused, where a broken answer would look whole', async () => {
  const text = await new Promise<string>((resolve, reject) => {
    let answer = '';
    const { port } = server.address() as AddressInfo;
    const socket = connect(port, '127.0.0.1', () => socket.write('GET / HTTP/1.0\r\n\r\n'));
    socket.on('data', (chunk: Buffer) => (answer += chunk.toString()));
    socket.on('error', reject).on('close', () => resolve(answer));
  });
  expect(text).not.toContain('2-499');
  expect(errors).toEqual([expect.objectContaining({ reason: 'VALIDATION_FAILED' })]);
  expect(data.requests).toEqual([]);
});

test('the columns are those of the first page that has documents', async () => {
  data.emptyPages = 2;
  const { bytes } = await read(await open('?format=csv'));
  expect(bytes.toString()).toMatch(/^id,t\r\n2-0,x/);
});

test('a client that does not read has one page read ahead of it, whatever there is', async () => {
  data.pages = 1_000;
  const response = await open();
  response.pause();
  await eventually(() => data.requests.length > 1);
  let before = 0;
  // The sockets of both sides take some pages; after that nothing moves.
  await eventually(
    () => {
      const isStill = data.requests.length === before;
      before = data.requests.length;
      return isStill;
    },
    60_000,
    { everyMs: 500 },
  );
  expect(data.requests.length).toBeLessThan(100);
  response.destroy();
  await eventually(() => transfers.exportPlaces.counts().inside === 0);
});

test('what fails before the head is refused, and what fails later is no whole answer', async () => {
  data.error = { atPage: 0, error: unavailable };
  expect((await open()).statusCode).toBe(503);
  data.error = { atPage: 2, error: unavailable };
  const { bytes, isWhole } = await read(await open());
  expect(isWhole).toBe(false);
  expect(bytes.equals(whole.subarray(0, bytes.length))).toBe(true);
  expect(transfers.exportPlaces.counts().inside).toBe(0);
});

test('an export ends when its key is revoked', async () => {
  data.pages = 1_000;
  const response = await open();
  response.pause();
  await eventually(() => data.requests.length > 1);
  data.validKeys = [];
  await eventually(() => errors.length > 0);
  expect(errors).toEqual([expect.objectContaining({ reason: 'UNAUTHENTICATED' })]);
  expect((await read(response)).isWhole).toBe(false);
});

test('an app has so many exports at a time, others theirs, and who waits too long is refused', async () => {
  data.pages = 1_000;
  const stalled = [await open(), await open()];
  for (const response of stalled) response.pause();
  expect((await open()).statusCode).toBe(503);
  expect(errors).toEqual([expect.objectContaining({ reason: 'OVERLOADED' })]);
  const other = await open('?app=other');
  other.pause();
  expect(other.statusCode).toBe(200);
  expect((await open('?app=third')).statusCode).toBe(503);
  const waiting = open();
  stalled[0]!.destroy();
  expect((await waiting).statusCode).toBe(200);
  expect(transfers.exportPlaces.counts()).toMatchObject({ inside: 3, limit: 3 });
});

test('a client that takes nothing for a while loses its place to the next one', async () => {
  await restart({ EXPORTS_PER_APP: 1 });
  data.pages = 1_000;
  const stalled = await open();
  stalled.pause();
  const next = await eventuallyResolves(async () => {
    const response = await open();
    response.pause();
    expect(response.statusCode).toBe(200);
    return response;
  });
  expect(transfers.exportPlaces.counts()).toMatchObject({ inside: 1, evicted: 1 });
  expect((await read(stalled)).isWhole).toBe(false);
  next.destroy();
});

test('a client that reads too slowly is cut off', async () => {
  await restart({ DOWNLOAD_GRACE_MS: 1_000 });
  data.pages = 1_000;
  const slow = await open();
  slow.pause();
  await eventually(() => transfers.counts().slowExports === 1);
  await eventually(() => errors.length > 0);
  expect(errors).toEqual([expect.objectContaining({ reason: 'CANCELLED' })]);
  expect((await read(slow)).isWhole).toBe(false);
});
