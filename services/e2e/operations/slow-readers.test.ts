import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { waitMs } from '@granary/testing/speed';
import { newApp, send, transports, type TestApp } from '../support/granary';
import { startGateway, type MeasuredGranary } from '../support/own-granary';
import { expectProblem } from '../support/problem-shape';
import { closeConnections, sendRaw } from '../support/raw-http';

const mebibyte = 1024 ** 2;
/** Readers below the minimum rate are cut off after it; a busy machine does not stand still for so long. */
const graceMs = Math.min(waitMs(1_500), 5_000);
const impatient = { READER_GRACE_MS: String(graceMs), READER_MIN_BYTES_PER_SECOND: '4096' };

describe.each(transports)('answers that are not read (%s)', (transport) => {
  let granary: MeasuredGranary | undefined;
  const readers: Socket[] = [];
  afterEach(async () => {
    closeConnections();
    for (const reader of readers.splice(0)) reader.destroy();
    await granary?.stop();
    granary = undefined;
  });

  async function start(settings: Record<string, string>): Promise<void> {
    granary = await startGateway(transport, settings);
  }

  /** An app with a public collection of so many documents of 100 KB. */
  async function appWith(documents: number): Promise<TestApp> {
    const app = await newApp(granary!);
    for (let n = 0; n < documents; n += 40) {
      const count = Math.min(40, documents - n);
      await app.store(
        'big',
        Array.from({ length: count }, () => ({ text: 'x'.repeat(100_000) })),
      );
    }
    return app;
  }

  const pathOf = (app: TestApp) => `/api/apps/${app.appId}/collections/big/data?limit=1000`;

  /** Asks for the collection, reads the head of the answer and then nothing. */
  function stall(app: TestApp, localAddress = '127.0.0.1'): Promise<{ socket: Socket; status: number }> {
    const { port, hostname: host } = new URL(granary!.url);
    const socket = connect({ port: Number(port), host, localAddress });
    readers.push(socket);
    socket.write(`GET ${pathOf(app)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    return new Promise((resolve, reject) => {
      socket.on('error', reject).once('data', (chunk: Buffer) => {
        socket.pause().off('error', reject);
        socket.on('error', () => {});
        resolve({ socket, status: Number(chunk.toString('latin1').split(' ')[1]) });
      });
    });
  }

  /** Reads the rest of an answer; gives how many bytes came. */
  function readOn(socket: Socket): Promise<number> {
    let received = 0;
    return new Promise((resolve) => {
      socket.on('data', (chunk: Buffer) => (received += chunk.length)).once('close', () => resolve(received));
      socket.resume();
    });
  }

  async function metric(name: string): Promise<number> {
    const texts = await Promise.all(
      granary!.metricsAddresses.map(async (address) => (await fetch(`http://${address}/metrics`)).text()),
    );
    const line = texts.flatMap((text) => text.split('\n')).find((text) => text.startsWith(`${name} `));
    return Number(line?.slice(name.length + 1));
  }
  const memoryUsed = () => metric('granary_body_budget_used_bytes');
  const cut = (reason: string) => metric(`granary_slow_clients_total{direction="answer",reason="${reason}"}`);

  test('an answer queued behind a download does not count as unread', async () => {
    await start(impatient);
    const app = await appWith(10);
    const size = 12_000_000;
    const png = { 'content-type': 'image/png' };
    const path = `/api/apps/${app.appId}/blobs/files`;
    const { body } = await app.call<{ blob_id: string }>('POST', path, Buffer.alloc(size, 1), png);
    const { port, hostname: host } = new URL(granary!.url);
    const socket = connect(Number(port), host);
    readers.push(socket);
    const head = (target: string, connection: string) =>
      `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: ${connection}\r\n\r\n`;
    socket.write(head(`${path}/${body.blob_id}`, 'keep-alive') + head(pathOf(app), 'close'));
    let received = 0;
    // The download takes three times as long as the grace period of the answer behind it.
    for await (const chunk of socket) {
      received += (chunk as Buffer).length;
      await delay(((chunk as Buffer).length / size) * 3 * graceMs);
    }
    expect(received).toBeGreaterThan(size + 1_000_000);
    expect(await cut('too_slow')).toBe(0);
  });

  test('a reader below the minimum rate is cut off, and the memory of its answer is released', async () => {
    await start(impatient);
    const app = await appWith(150);
    const { socket, status } = await stall(app);
    expect(status).toBe(200);
    expect(await memoryUsed()).toBeGreaterThan(15_000_000);
    await eventually(async () => (await memoryUsed()) === 0);
    expect(await cut('too_slow')).toBeGreaterThanOrEqual(1);
    expect(await readOn(socket)).toBeLessThan(15_000_000);
  });

  test('a large unread answer is evicted for another, and a smaller one is kept', async () => {
    await start({ BODY_BUDGET_BYTES: String(32 * mebibyte) });
    const [small, large] = [await appWith(60), await appWith(150)];
    const given = await stall(large, '127.0.0.2');
    const kept = await stall(small, '127.0.0.3');
    expect([given.status, kept.status]).toEqual([200, 200]);
    // Refused until the large one has not moved for a second.
    await eventually(async () => (await send(granary!.url, 'GET', pathOf(large))).status === 200);
    expect(await cut('evicted')).toBe(1);
    expect(await readOn(given.socket)).toBeLessThan(15_000_000);
    expect(await readOn(kept.socket)).toBeGreaterThan(5_900_000);
  });

  test('large answers do not use the reserve for small bodies', async () => {
    await start({ BODY_BUDGET_BYTES: String(16 * mebibyte), SMALL_BODY_RESERVE_PERCENT: '50' });
    const [within, beyond] = [await appWith(80), await appWith(90)];
    const refused = await sendRaw(granary!.url, { method: 'GET', path: pathOf(beyond) });
    expect(`${refused.status} ${expectProblem(refused).code}`).toBe('503 OVERLOADED');
    expect((await stall(within)).status).toBe(200);
    const text = 'x'.repeat(60_000);
    const stored = await Promise.all(Array.from({ length: 50 }, (_, n) => beyond.store('small', [{ n, text }])));
    expect(new Set(stored.map(({ status }) => status))).toEqual(new Set([202]));
  });
});
