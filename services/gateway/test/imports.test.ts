import { createServer, request, type ClientRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { crc32 } from 'node:zlib';
import { invalid, ServiceError } from '@granary/shared/errors';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { ImportPartRequest } from '@granary/shared/gen/granary/data/v1/ImportPartRequest';
import { createLogger } from '@granary/shared/logger';
import { eventually } from '@granary/testing/eventually';
import { Transfers, type TransferSettings } from '../src/admission/transfers';
import type { Clients } from '../src/clients/clients';
import { KeyWatch } from '../src/clients/key-watch';
import { receiveFile } from '../src/imports/receive-file';
import { transferSettings } from './support/transfer-settings';

const line = Buffer.from(`${'x'.repeat(999)}\n`);
const lines = (count: number): Buffer => Buffer.concat(Array.from({ length: count }, () => line));
const lineFeed = 0x0a;

/** A data service that takes whole lines, and remembers what it took. */
class DataDouble {
  readonly parts: ImportPartRequest[] = [];
  stored: Buffer = Buffer.alloc(0);
  status = 'open';
  validKeys = ['key'];
  /** Called before a part is taken. */
  before: (part: ImportPartRequest) => Promise<void> = () => Promise.resolve();

  importPart = async (part: ImportPartRequest): Promise<Import> => {
    this.parts.push(part);
    await this.before(part);
    if (this.status === 'open' && Number(part.offset) === this.stored.length) {
      const end = part.isLast ? part.bytes.length : part.bytes.lastIndexOf(lineFeed) + 1;
      this.stored = Buffer.concat([this.stored, part.bytes.subarray(0, end)]);
      if (part.isLast) this.status = 'completed';
    }
    return this.state();
  };

  findValidKeys = (): Promise<{ keyIds: string[] }> => Promise.resolve({ keyIds: this.validKeys });

  state(): Import {
    const counts = { lines: '0', written: '0', skipped: '0', failed: '0', height: '0' };
    const times = { createdAt: '', updatedAt: '', expiresAt: '' };
    return {
      importId: 'j1-x',
      collection: 'notes',
      options: Buffer.from('{}'),
      status: this.status,
      offset: String(this.stored.length),
      checksum: String(crc32(this.stored)),
      ...counts,
      ...times,
      error: null,
      replayed: false,
    };
  }
}

let data: DataDouble;
let server: Server;
let errors: unknown[];
let transfers: Transfers;
let options: { isComplete: boolean; maxBytes: number };

async function start(overrides: Partial<TransferSettings> = {}): Promise<void> {
  data = new DataDouble();
  const raised: unknown[] = [];
  errors = raised;
  options = { isComplete: true, maxBytes: 100_000_000 };
  transfers = new Transfers({ ...transferSettings, ...overrides });
  const keyWatch = new KeyWatch(data, createLogger('gateway', 'silent'));
  const parts = { clients: { data } as unknown as Pick<Clients, 'data'>, transfers, keyWatch };
  server = createServer((incoming, outgoing) => {
    const keys = { app: 'demo', address: '127.0.0.1' };
    const call = { requestId: 'r', trace: undefined };
    receiveFile(parts, { incoming, call, keys, keyId: 'key' }, () =>
      Promise.resolve({
        target: { appId: 'demo', appNumber: '1', importId: 'j1-x', isPaid: false },
        state: data.state(),
        start: Number(incoming.headers['upload-offset'] ?? 0),
        otherContent: () => new ServiceError('FAILED_PRECONDITION', 'IMPORT_OFFSET_MISMATCH', 'Other content'),
        ...options,
      }),
    ).then(
      ({ offset }) => outgoing.end(offset),
      (error: unknown) => {
        raised.push(error);
        incoming.resume();
        outgoing.writeHead(error instanceof ServiceError ? 400 : 500).end(String((error as ServiceError).reason));
      },
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}

async function stop(): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

async function restart(overrides: Partial<TransferSettings>): Promise<void> {
  await stop();
  await start(overrides);
}

beforeEach(() => start());
afterEach(stop);

/** Opens a request; `answer` is the text of its answer, undefined where the connection ended without one. */
function open(headers: Record<string, string> = {}): { sent: ClientRequest; answer: Promise<string | undefined> } {
  const { port } = server.address() as AddressInfo;
  const sent = request({ port, method: 'POST', agent: false, headers });
  const answer = new Promise<string | undefined>((resolve) => {
    sent.on('error', () => resolve(undefined));
    sent.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve(text)).on('error', () => resolve(undefined));
    });
  });
  return { sent, answer };
}

async function sendAll(bytes: Buffer, headers: Record<string, string> = {}): Promise<string | undefined> {
  const { sent, answer } = open(headers);
  sent.end(bytes);
  return answer;
}

const reasons = () => errors.map((error) => (error instanceof ServiceError ? error.reason : error));
const inside = () => transfers.importPlaces.counts().inside;

test('a file is sent in parts of bounded size, and what is behind the last whole line is sent again', async () => {
  const file = Buffer.concat([lines(6_500), Buffer.from('rest')]);
  expect(await sendAll(file)).toBe(String(file.length));
  expect(data.stored.equals(file)).toBe(true);
  expect(Math.max(...data.parts.map(({ bytes }) => bytes.length))).toBeLessThan(2.2 * 1024 * 1024);
  expect(data.parts.map(({ isLast }) => isLast)).toEqual([...data.parts.slice(1).map(() => false), true]);
  expect(inside()).toBe(0);
});

test('the lines of a part that does not end the file are stored, and what is behind them is not', async () => {
  options.isComplete = false;
  expect(await sendAll(Buffer.concat([lines(3), Buffer.from('rest')]))).toBe('3000');
  expect(await sendAll(Buffer.from('rest'), { 'upload-offset': '3000' })).toBe('3000');
  options.isComplete = true;
  expect(await sendAll(Buffer.from('rest'), { 'upload-offset': '3000' })).toBe('3004');
});

test('lines that came before a client disconnects are stored, and its place is free', async () => {
  const { sent } = open();
  sent.write(Buffer.concat([lines(20), Buffer.from('half')]));
  await eventually(async () => Promise.resolve(inside() === 1));
  await new Promise((resolve) => setTimeout(resolve, 50));
  sent.destroy();
  await eventually(async () => Promise.resolve(inside() === 0));
  expect([data.stored.length, reasons()]).toEqual([20_000, ['CANCELLED']]);
});

test('what another sender has stored meanwhile is passed over where it is the same, and refused where it is not', async () => {
  const file = lines(5_000);
  data.before = () => {
    data.before = () => Promise.resolve();
    data.stored = Buffer.from(file.subarray(0, 3_000_000));
    return Promise.resolve();
  };
  expect(await sendAll(file)).toBe('5000000');
  expect(data.stored.equals(file)).toBe(true);
  await restart({});
  data.stored = Buffer.from('y'.repeat(2_000));
  expect(await sendAll(file)).toBe('IMPORT_OFFSET_MISMATCH');
  await restart({});
  data.stored = Buffer.concat([file, line]);
  expect(await sendAll(file)).toBe('IMPORT_OFFSET_MISMATCH');
  await restart({});
  data.stored = file.subarray(0, 1_000);
  data.status = 'completed';
  expect(await sendAll(file)).toBe('IMPORT_OFFSET_MISMATCH');
  expect(await sendAll(file.subarray(0, 1_000))).toBe('1000');
  expect(data.parts).toEqual([]);
});

test('an import of a revoked key ends, and what had come is not stored', async () => {
  const { sent, answer } = open();
  sent.write(lines(10));
  await eventually(async () => Promise.resolve(inside() === 1));
  data.validKeys = [];
  expect(await answer).toBe('UNAUTHENTICATED');
  expect([data.stored.length, inside()]).toEqual([0, 0]);
  sent.destroy();
});

test('a client that sends too slowly is cut off once its lines are stored', async () => {
  await restart({ UPLOAD_GRACE_MS: 300, TRANSFER_MIN_BYTES_PER_SECOND: 100_000 });
  const { sent, answer } = open();
  sent.write(lines(2));
  expect(await answer).toBe('REQUEST_TIMEOUT');
  expect(data.stored.length).toBe(2_000);
  sent.destroy();
});

test('it is not the client that is slow while a part is being stored', async () => {
  await restart({ UPLOAD_GRACE_MS: 300, TRANSFER_MIN_BYTES_PER_SECOND: 100_000 });
  data.before = () => new Promise((resolve) => setTimeout(resolve, 900));
  expect(await sendAll(lines(100))).toBe('100000');
});

test('a file that is too large is refused where it is, and its beginning is stored', async () => {
  options.maxBytes = 5_000_000;
  expect(await sendAll(lines(6_000), { 'transfer-encoding': 'chunked' })).toBe('PAYLOAD_TOO_LARGE');
  expect(data.stored.length).toBeLessThanOrEqual(5_000_000);
});

test('an error of the data service is that of the import, and gives its place back', async () => {
  data.before = () => Promise.reject(invalid('Not like this'));
  expect(await sendAll(lines(10))).toBe('VALIDATION_FAILED');
  expect(inside()).toBe(0);
});

test('an import that waits too long for a place is refused, and so are forms and other encodings', async () => {
  const held = [open(), open()];
  for (const { sent } of held) sent.write(lines(1));
  await eventually(async () => Promise.resolve(inside() === 2));
  expect(await sendAll(lines(1))).toBe('OVERLOADED');
  for (const { sent } of held) sent.end();
  expect((await Promise.all(held.map(({ answer }) => answer))).map(Number)).toContain(1_000);
  const before = data.parts.length;
  expect(await sendAll(lines(1), { 'content-type': 'multipart/form-data; boundary=x' })).toBe('UNSUPPORTED_MEDIA_TYPE');
  expect(await sendAll(lines(1), { 'content-encoding': 'br' })).toBe('UNSUPPORTED_MEDIA_TYPE');
  expect([data.parts.length, inside()]).toEqual([before, 0]);
});
