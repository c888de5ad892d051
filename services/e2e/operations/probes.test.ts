import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dataConfig } from '@granary/data/config';
import { startData } from '@granary/data/service';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { stopAll } from '@granary/shared/service/lifecycle';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { startPostgresProxy } from '@granary/testing/postgres-proxy';
import { waitMs } from '@granary/testing/speed';
import { choosePorts } from '@granary/local/ports';
import { operatorKey } from '../support/granary';

const log = createLogger('probes', 'silent');
const INTERNAL_SECRET = 'internal-secret-of-the-tests-0123456789';
const nowhere = '127.0.0.1:1';
/** Long enough to be seen stopping by one who looks now and then. */
const drainDelayMs = String(Math.min(waitMs(3_000), 60_000));

const stops: Array<() => Promise<void>> = [];
afterEach(() => stopAll(stops.splice(0)));

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-probes-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

type Probe = readonly [status: number, text: string];
const noAnswer = [0, ''] as const;

/** The answer of a probe; 0 without one. */
const probe = (port: number, path: string): Promise<Probe> =>
  fetch(`http://127.0.0.1:${port}${path}`).then(
    async (response) => [response.status, await response.text()] as const,
    () => noAnswer,
  );

const until = (port: number, path: string, status: number, text: string) =>
  eventually(async () => {
    const found = await probe(port, path);
    return (found[0] === status && found[1] === text) || undefined;
  });

function data(databaseUrl: string, port: number, metricsPort: number, settings: Record<string, string> = {}) {
  const environment = {
    LISTEN: `127.0.0.1:${port}`,
    METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
    DATABASE_URL: databaseUrl,
    SKILLS_DIRECTORY: join(directory, 'skills'),
    INTERNAL_SECRET,
    ...settings,
  };
  return startData(readConfig(dataConfig, environment), { log });
}

async function proxied() {
  const proxy = await startPostgresProxy((await testDatabase()).url, () => 'pass');
  stops.push(() => proxy.stop());
  return proxy;
}

test('a service is alive from the beginning, ready once it has started, whatever its database does, until it stops', async () => {
  const proxy = await proxied();
  const [port = 0, metrics = 0] = await choosePorts(2);
  proxy.freeze();
  const starting = data(proxy.url, port, metrics, { DRAIN_DELAY_MS: drainDelayMs });
  await until(metrics, '/readyz', 503, 'starting\n');
  expect(await probe(metrics, '/livez')).toEqual([200, 'alive\n']);
  proxy.thaw();
  const service = await starting;
  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= service.stop());
  stops.push(stop);
  expect(await probe(metrics, '/readyz')).toEqual([200, 'ready\n']);

  proxy.freeze();
  expect(await probe(metrics, '/readyz')).toEqual([200, 'ready\n']);
  expect(await probe(metrics, '/livez')).toEqual([200, 'alive\n']);
  proxy.thaw();

  const stopped = stop();
  await until(metrics, '/readyz', 503, 'stopping\n');
  await stopped;
  expect(await probe(metrics, '/livez')).toEqual(noAnswer);
});

test('a gateway is ready once it has reached data, also while data lacks its database, until it stops', async () => {
  const proxy = await proxied();
  const [port = 0, metrics = 0, metricsOfData = 0] = await choosePorts(3);
  const gateway = await startGateway(
    readConfig(gatewayConfig, {
      PORT: '0',
      METRICS_LISTEN: `127.0.0.1:${metrics}`,
      DRAIN_DELAY_MS: drainDelayMs,
      OPERATOR_KEY: operatorKey,
      INTERNAL_SECRET,
      DATA_ADDRESS: `127.0.0.1:${port}`,
      BLOBS_ADDRESS: nowhere,
      FINANCE_ADDRESS: nowhere,
      PAYMENTS_ADDRESS: nowhere,
      TASKS_ADDRESS: nowhere,
      BLOBS_HTTP_ADDRESS: nowhere,
    }),
    { log },
  );
  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= gateway.stop());
  stops.push(stop);
  await until(metrics, '/readyz', 503, 'starting\n');
  expect(await probe(metrics, '/livez')).toEqual([200, 'alive\n']);

  const service = await data(proxy.url, port, metricsOfData);
  stops.push(() => service.stop());
  await until(metrics, '/readyz', 200, 'ready\n');

  await proxy.stop();
  // The public endpoint says whether documents can be read, as before.
  await eventually(async () => (await fetch(`${gateway.url}/readyz`)).status === 503 || undefined);
  expect(await probe(metrics, '/readyz')).toEqual([200, 'ready\n']);

  const stopped = stop();
  await until(metrics, '/readyz', 503, 'stopping\n');
  await stopped;
});
