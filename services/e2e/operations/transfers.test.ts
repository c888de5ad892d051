import { connect, type Socket } from 'node:net';
import { eventually } from '@granary/testing/eventually';
import { limitMs, waitMs } from '@granary/testing/speed';
import { newApp, transports, type TestApp } from '../support/granary';
import type { GatewaySettings, Settings } from '../support/granary-settings';
import { startGateway, startGranaryHere, type MeasuredGranary } from '../support/own-granary';
import { expectProblem } from '../support/problem-shape';
import { parseAnswer } from '../support/raw-http';

const mebibyte = 1024 * 1024;
/** How long a transfer may pause; a busy machine does not stand still for so long. */
const patienceMs = Math.min(waitMs(1_500), 5_000);
const png = { 'content-type': 'image/png' };

interface Peer {
  socket: Socket;
  received: () => string;
  /** Everything that was received until the connection was closed. */
  answer: Promise<string>;
}

let granary: MeasuredGranary;
let app: TestApp;
const peers: Peer[] = [];

async function start(
  { gateway, ...others }: Settings & { gateway: GatewaySettings },
  transport = transports[0]!,
): Promise<void> {
  granary = others.blobs
    ? await startGranaryHere(transport, { metrics: true, settings: { ...others, gateway } })
    : await startGateway(transport, gateway);
  app = await newApp(granary);
}

/** Resolves when the gateway has given back the places of all transfers, those of closed connections too. */
const noneUnderWay = () =>
  eventually(async () => {
    const texts = await Promise.all(
      granary.metricsAddresses.map(async (address) => (await fetch(`http://${address}/metrics`)).text()),
    );
    const counts = [...texts.join('\n').matchAll(/^granary_admission_in_flight\{class="(?:up|down)loads"\} (\d+)$/gm)];
    return counts.length > 0 && counts.every(([, count]) => count === '0');
  });

afterEach(() => {
  for (const { socket } of peers.splice(0)) socket.destroy();
});

/** A connection of its own from one of the addresses of the loopback interface. */
function open(bytes: string, localAddress = '127.0.0.1'): Peer {
  const { hostname, port } = new URL(granary.url);
  const socket = connect({ port: Number(port), host: hostname, localAddress });
  let received = '';
  const answer = new Promise<string>((resolve) => socket.on('close', () => resolve(received)));
  socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1'))).on('error', () => {});
  socket.write(bytes);
  const peer = { socket, answer, received: () => received };
  peers.push(peer);
  return peer;
}

const uploadHead = (length: number, type = 'image/png') =>
  [
    `POST /api/apps/${app.appId}/blobs/files HTTP/1.1`,
    'Host: x',
    `X-App-Key: ${app.key}`,
    `Content-Type: ${type}`,
    `Content-Length: ${length}`,
    '',
    '',
  ].join('\r\n');

/** Announces an upload, sends the beginning, and then a byte now and then. */
function drip({ everyMs, localAddress }: { everyMs?: number; localAddress?: string } = {}): Peer {
  const peer = open(`${uploadHead(1_000_000)}begun`, localAddress);
  if (everyMs !== undefined) {
    const timer = setInterval(() => peer.socket.write('x'), everyMs);
    peer.socket.on('close', () => clearInterval(timer));
  }
  return peer;
}

const upload = (body: string | Buffer = 'x') => app.call('POST', `/api/apps/${app.appId}/blobs/files`, body, png);

/** The address of a blob that is larger than all buffers on the way to a reader. */
async function largeBlob(): Promise<string> {
  const stored = await app.call<{ blob_id: string }>(
    'POST',
    `/api/apps/${app.appId}/blobs/files`,
    Buffer.alloc(24 * mebibyte, 'abcdefgh'),
    png,
  );
  expect(stored.status).toBe(202);
  return `/api/apps/${app.appId}/blobs/files/${stored.body.blob_id}`;
}

/** Asks for it and reads no more than the first that comes. */
function readNothing(path: string, localAddress?: string): Peer {
  const peer = open(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`, localAddress);
  peer.socket.once('data', () => peer.socket.pause());
  return peer;
}

async function expectTimedOut(peer: Peer): Promise<void> {
  const answer = parseAnswer(await peer.answer);
  expect(`${answer.status} ${expectProblem(answer).code}`).toBe('408 REQUEST_TIMEOUT');
}

describe.each(transports)('uploads that do not finish (%s)', (transport) => {
  beforeAll(() => start({ gateway: { UPLOAD_TIMEOUT_MS: '2000', TRANSFER_MIN_BYTES_PER_SECOND: '0' } }, transport));
  afterAll(() => granary.stop());

  test('an upload longer than UPLOAD_TIMEOUT_MS gets 408 within a second, however steadily bytes arrive', async () => {
    const beganMs = performance.now();
    await expectTimedOut(drip({ everyMs: 100 }));
    const tookMs = performance.now() - beganMs;
    expect(tookMs).toBeGreaterThan(1_900);
    expect(tookMs).toBeLessThan(2_000 + limitMs(1_000));
    expect((await upload()).status).toBe(202);
  });
});

describe.each([
  [
    'is slower than the minimum',
    { gateway: { TRANSFER_MIN_BYTES_PER_SECOND: '1000', UPLOAD_GRACE_MS: String(patienceMs) } },
  ],
  ['is idle for the gateway', { gateway: { TRANSFER_MIN_BYTES_PER_SECOND: '0', IDLE_TIMEOUT_MS: String(patienceMs) } }],
  [
    'is idle for the blobs service',
    { gateway: { TRANSFER_MIN_BYTES_PER_SECOND: '0' }, blobs: { IDLE_TIMEOUT_MS: String(patienceMs) } },
  ],
] as const)('an upload that %s', (_, settings) => {
  beforeAll(() => start(settings));
  afterAll(() => granary.stop());

  test('a stalled upload gets 408, as a raw body and as a form, and leaves nothing behind', async () => {
    const boundary = 'multipart/form-data; boundary=b';
    const form = '--b\r\nContent-Disposition: form-data; name="blob"; filename="a"\r\n\r\nbegun';
    await Promise.all([drip(), open(`${uploadHead(1_000_000, boundary)}${form}`)].map(expectTimedOut));
    expect((await app.list('files')).status).toBe(404);
  });

  test('an upload that pauses and continues is stored', async () => {
    // Pauses of 100 ms, together three times as long as it may be idle.
    const body = 'x'.repeat(1_000 * Math.ceil((3 * patienceMs) / 100));
    const { socket, answer } = open(uploadHead(body.length).replace('Host: x', 'Host: x\r\nConnection: close'));
    for (let sent = 0; sent < body.length; sent += 1_000) {
      socket.write(body.slice(sent, sent + 1_000));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect(parseAnswer(await answer).status).toBe(202);
  });
});

describe('concurrency of transfers', () => {
  beforeAll(() => start({ gateway: { STREAM_CONCURRENCY: '8', STREAM_CLIENT_PERCENT: '50', QUEUE_TIMEOUT_MS: '50' } }));
  afterAll(() => granary.stop());
  beforeEach(noneUnderWay);

  /** Resolves when all but `count` of the peers were refused, so that those are under way. */
  const onlyAdmitted = (count: number) =>
    eventually(() => {
      const refused = peers.filter(({ received }) => received().startsWith('HTTP/1.1 503'));
      return (
        refused.length === peers.length - count && refused.every(({ received }) => /"OVERLOADED"/.test(received()))
      );
    });

  test('slow uploads of one address leave capacity to others, and do not affect downloads', async () => {
    const path = await largeBlob();
    for (let at = 0; at < 20; at++) drip({ everyMs: 1_000, localAddress: '127.0.0.2' });
    await onlyAdmitted(4);
    for (let at = 0; at < 3; at++) {
      expect((await upload(`other ${at}`)).status).toBe(202);
      expect((await app.call('HEAD', path)).status).toBe(200);
    }
  });

  test('slow uploads of one app from many addresses leave capacity to other apps', async () => {
    for (let at = 0; at < 20; at++) drip({ everyMs: 1_000, localAddress: `127.0.0.${2 + at}` });
    await onlyAdmitted(6);
    expect((await upload()).status).toBe(503);
    const other = await newApp(granary);
    const stored = await other.call('POST', `/api/apps/${other.appId}/blobs/files`, 'x', png);
    expect(stored.status).toBe(202);
  });

  test('stalled downloads of one address leave capacity to others', async () => {
    const path = await largeBlob();
    for (let at = 0; at < 20; at++) readNothing(path, '127.0.0.2');
    await onlyAdmitted(4);
    for (let at = 0; at < 3; at++) expect((await app.call('HEAD', path)).status).toBe(200);
  });
});

describe('slow downloads', () => {
  const settings = { STREAM_CONCURRENCY: '1', STREAM_CLIENT_PERCENT: '100', QUEUE_TIMEOUT_MS: '50' };
  beforeAll(() => start({ gateway: { ...settings, DOWNLOAD_GRACE_MS: String(patienceMs) } }));
  afterAll(() => granary.stop());

  test('a download that is not read is cut off for others, one that is read slowly is not', async () => {
    const path = await largeBlob();
    await noneUnderWay();
    const silent = readNothing(path);
    await eventually(() => silent.received().startsWith('HTTP/1.1 200'));
    await eventually(async () => (await app.call('HEAD', path)).status === 200);
    silent.socket.resume();
    expect((await silent.answer).length).toBeLessThan(24 * mebibyte);
    await noneUnderWay();

    const { hostname, port } = new URL(granary.url);
    const slow = connect(Number(port), hostname);
    slow.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    let readBytes = 0;
    for await (const chunk of slow) {
      readBytes += (chunk as Buffer).length;
      // Takes four times the grace period, at a rate far above the minimum.
      const pauseMs = ((chunk as Buffer).length / (24 * mebibyte)) * 4 * patienceMs;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    expect(readBytes).toBeGreaterThan(24 * mebibyte);
  });
});
