import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { startData } from '@granary/data/service';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { stopAll } from '@granary/shared/service/lifecycle';
import { testDatabase } from '@granary/testing/database';
import { choosePorts } from '@granary/local/ports';
import { newApp, operatorKey } from '../support/granary';

const log = createLogger('ipv6', 'silent');
const INTERNAL_SECRET = 'internal-secret-of-the-tests-0123456789';
const nowhere = '127.0.0.1:1';

const stops: Array<() => Promise<void>> = [];
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'granary-ipv6-'));
});
afterAll(async () => {
  await stopAll(stops);
  await rm(directory, { recursive: true, force: true });
});

test('services that listen on IPv6 addresses in brackets answer calls, transfers, probes and requests', async () => {
  const [metrics = 0] = await choosePorts(1);
  const common = { INTERNAL_SECRET, LISTEN: '[::1]:0' };
  const data = await startData(
    readConfig(dataConfig, {
      ...common,
      DATABASE_URL: (await testDatabase()).url,
      SKILLS_DIRECTORY: join(directory, 'skills'),
      METRICS_LISTEN: `[::1]:${metrics}`,
    }),
    { log },
  );
  stops.push(() => data.stop());
  expect(data.address).toMatch(/^\[::1\]:\d+$/);
  const blobs = await startBlobs(
    readConfig(blobsConfig, {
      ...common,
      DATABASE_URL: (await testDatabase()).url,
      DATA_ADDRESS: data.address,
      OBJECTS_DIR: join(directory, 'objects'),
      HTTP_LISTEN: '[::1]:0',
    }),
    { log },
  );
  stops.push(() => blobs.stop());
  const gateway = await startGateway(
    readConfig(gatewayConfig, {
      PORT: '0',
      HOST: '::1',
      OPERATOR_KEY: operatorKey,
      INTERNAL_SECRET,
      DATA_ADDRESS: data.address,
      BLOBS_ADDRESS: blobs.address,
      BLOBS_HTTP_ADDRESS: blobs.httpAddress,
      FINANCE_ADDRESS: nowhere,
      PAYMENTS_ADDRESS: nowhere,
      TASKS_ADDRESS: nowhere,
    }),
    { log },
  );
  stops.push(() => gateway.stop());
  expect(gateway.url).toMatch(/^http:\/\/\[::1\]:\d+$/);

  expect((await fetch(`http://[::1]:${metrics}/readyz`)).status).toBe(200);
  const app = await newApp(gateway);
  const path = `/api/apps/${app.appId}/blobs/files`;
  const stored = await app.call<{ blob_id: string }>('POST', path, Buffer.from('bytes'), {
    'content-type': 'image/png',
  });
  expect(stored.status).toBe(202);
  expect((await app.call('GET', `${path}/${stored.body.blob_id}`)).text).toBe('bytes');
});
