import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request as send, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { ServiceError } from '@granary/shared/errors';
import { createLogger } from '@granary/shared/logger';
import { permitErrorHeader, type DownloadPermit, type UploadPermit } from '@granary/shared/trust/transfer-permit';
import { newCall } from '@granary/shared/rpc/types';
import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';
import { Transfers } from '../src/admission/transfers';
import { BlobProxy } from '../src/blob-proxy/proxy';

const stops: Array<() => unknown> = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

/** What stands for a copy of the blobs service: takes in and gives out, and counts. */
async function startCopy(port = 0) {
  const taken: string[] = [];
  const server = createServer((request, response) => {
    void readAll(request).then((body) => {
      taken.push(body);
      if (request.method === 'POST') response.writeHead(202).end(JSON.stringify({ bytes: body.length }));
      else response.writeHead(200, { 'content-type': 'text/plain' }).end('a blob');
    });
  });
  const address = `127.0.0.1:${await listen(server, port)}`;
  const stop = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  stops.push(stop);
  return { server, taken, address, stop };
}

/** One that takes connections and hangs up on the first line of a request, as one does that ends at that moment. */
async function startHangUp() {
  let requests = 0;
  const server = createServer();
  const hangUp = ({ socket }: IncomingMessage) => {
    requests++;
    socket.destroy();
  };
  server.on('checkContinue', hangUp).on('request', hangUp);
  const address = `127.0.0.1:${await listen(server, 0)}`;
  stops.push(() => server.close());
  return { address, requests: () => requests };
}

/** One to which no connection can be made, and none is refused: it is frozen, and its queue of connections is full. */
async function startFrozen(): Promise<string> {
  const program = `require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, function () {
    process.stdout.write(String(this.address().port), () => process.kill(process.pid, 'SIGSTOP'));
  })`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  stops.push(() => child.kill('SIGKILL'));
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  const waiting = Array.from({ length: 8 }, () => connect(Number(port.toString()), '127.0.0.1').on('error', () => {}));
  stops.push(() => waiting.forEach((socket) => socket.destroy()));
  await eventually(() => waiting.some((socket) => !socket.connecting));
  return `127.0.0.1:${port.toString()}`;
}

async function listen(server: Server, port: number): Promise<number> {
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

async function readAll(stream: IncomingMessage): Promise<string> {
  const chunks = (await stream.toArray()) as Buffer[];
  return Buffer.concat(chunks).toString();
}

/** The gateway's part: an HTTP server whose requests go through the proxy. */
async function startFront(addresses: string[]) {
  const credentials = { permit: () => 'a permit', tls: undefined };
  const transfers = new Transfers({
    STREAM_CONCURRENCY: 100,
    STREAM_APP_PERCENT: 100,
    STREAM_CLIENT_PERCENT: 100,
    QUEUE_TIMEOUT_MS: 0,
    UPLOAD_TIMEOUT_MS: 60_000,
    UPLOAD_GRACE_MS: 1_000,
    DOWNLOAD_GRACE_MS: 1_000,
    EXPORTS: 8,
    EXPORTS_PER_APP: 2,
    IMPORTS: 2,
    IMPORTS_PER_APP: 2,
    TRANSFER_MIN_BYTES_PER_SECOND: 0,
  });
  const log = createLogger('test', 'silent');
  const proxy = new BlobProxy({ address: addresses.join(','), credentials, idleTimeoutMs: limitMs(5_000), log });
  const server = createServer((request, response) => {
    const call = newCall('test', limitMs(5_000));
    const moved =
      request.method === 'POST'
        ? transfers
            .upload({}, (transfer) => proxy.upload(request, {} as UploadPermit, call, transfer))
            .then((body) => void response.writeHead(202).end(body))
        : transfers.download({}, (transfer) => proxy.read(request, response, {} as DownloadPermit, call, transfer));
    moved.catch((error: unknown) => response.writeHead(500).end(error instanceof ServiceError ? error.code : 'other'));
  });
  const port = await listen(server, 0);
  stops.push(
    () => proxy.close(),
    () => server.close(),
    () => server.closeAllConnections(),
  );
  return (method: 'GET' | 'POST', body = '') =>
    new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
      send({ port, host: '127.0.0.1', method, agent: false }, (response) => {
        readAll(response).then((text) => resolve({ status: response.statusCode, text }), reject);
      })
        .on('error', reject)
        .end(body);
    });
}

test('uploads and downloads go to all copies in turn', async () => {
  const copies = [await startCopy(), await startCopy(), await startCopy()];
  const ask = await startFront(copies.map(({ address }) => address));
  for (let at = 0; at < 6; at++) {
    expect(await ask('POST', 'x'.repeat(at))).toEqual({ status: 202, text: `{"bytes":${at}}` });
    expect(await ask('GET')).toEqual({ status: 200, text: 'a blob' });
  }
  expect(copies.map(({ taken }) => taken.length)).toEqual([4, 4, 4]);
});

test('what a copy does not take goes whole to another, once', async () => {
  const gone = await startCopy();
  await gone.stop();
  const [copy, hangUp] = [await startCopy(), await startHangUp()];
  const ask = await startFront([gone.address, hangUp.address, copy.address]);
  const body = 'x'.repeat(1_000_000);
  for (let at = 0; at < 5; at++) {
    expect(await ask('POST', body)).toEqual({ status: 202, text: '{"bytes":1000000}' });
    expect(await ask('GET')).toEqual({ status: 200, text: 'a blob' });
  }
  expect(hangUp.requests()).toBeGreaterThan(0);
  expect(copy.taken.filter((each) => each === body)).toHaveLength(5);
  expect(copy.taken).toHaveLength(10);
});

test('a copy to which a connection is neither made nor refused costs neither an upload nor a download', async () => {
  const [frozen, copy] = [await startFrozen(), await startCopy()];
  const ask = await startFront([frozen, copy.address]);
  for (let at = 0; at < 2; at++) {
    expect(await ask('POST', 'x')).toEqual({ status: 202, text: '{"bytes":1}' });
    expect(await ask('GET')).toEqual({ status: 200, text: 'a blob' });
  }
});

test('a copy that has ended between two transfers costs neither an upload nor a download', async () => {
  const [one, other] = [await startCopy(), await startCopy()];
  const ask = await startFront([one.address, other.address]);
  // Both have idle connections now.
  for (let at = 0; at < 4; at++) expect((await ask('POST', 'before')).status).toBe(202);
  await one.stop();
  for (let at = 0; at < 4; at++) {
    expect((await ask('POST', 'after')).status).toBe(202);
    expect((await ask('GET')).status).toBe(200);
  }
  const again = await startCopy(Number(one.address.split(':')[1]));
  await other.stop();
  expect((await ask('POST', 'the other')).status).toBe(202);
  expect(again.taken).toContain('the other');
});

test('an upload that a copy of an older release does not know is refused as UNAVAILABLE', async () => {
  const refuse = (_: IncomingMessage, response: ServerResponse) => {
    response.writeHead(404, { [permitErrorHeader]: 'NOT_FOUND NOT_FOUND' });
    response.end('{"message":"There is nothing here","details":{}}');
  };
  const server = createServer().on('checkContinue', refuse).on('request', refuse);
  stops.push(() => server.close());
  const ask = await startFront([`127.0.0.1:${await listen(server, 0)}`]);
  expect(await ask('POST', 'x')).toEqual({ status: 500, text: 'UNAVAILABLE' });
});

test('without any copy a transfer is refused as UNAVAILABLE', async () => {
  const copy = await startCopy();
  await copy.stop();
  const ask = await startFront([copy.address]);
  expect(await ask('POST', 'x')).toEqual({ status: 500, text: 'UNAVAILABLE' });
  expect(await ask('GET')).toEqual({ status: 500, text: 'UNAVAILABLE' });
});
