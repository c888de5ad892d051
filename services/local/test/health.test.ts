import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { startPostgresProxy } from '@granary/shared/testing/postgres-proxy';
import { testDatabase } from '@granary/shared/testing/database';
import { eventually } from '@granary/shared/testing/eventually';
import { newApp, operatorKey, send, startGranary, transports } from './granary';

interface Health {
  status: string;
  version: string;
  checks: Record<string, { status: string; latency_ms: number; version?: string; [part: string]: unknown }>;
}

const services = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'];

describe.each(transports)('health (%s)', (transport) => {
  test('all six services with what they need are healthy; with its database gone data is not, and says so', async () => {
    const proxy = await startPostgresProxy((await testDatabase()).url, () => 'pass');
    const granary = await startGranary(transport, { databaseUrls: { data: proxy.url } });
    try {
      const app = await newApp(granary);
      const well = await send<Health>(granary.url, 'GET', '/health');
      expect(well.status).toBe(200);
      expect(well.body.status).toBe('healthy');
      expect(Object.keys(well.body.checks).sort()).toEqual([...services].sort());
      for (const check of Object.values(well.body.checks)) {
        expect(check).toMatchObject({
          status: 'healthy',
          latency_ms: expect.any(Number) as number,
          version: well.body.version,
        });
      }
      for (const service of ['data', 'blobs', 'finance', 'payments', 'tasks']) {
        expect(well.body.checks[service]).toMatchObject({ database: { status: 'healthy' } });
      }
      expect(well.body.checks['blobs']).toMatchObject({ object_store: { status: 'healthy' } });
      expect((await send(granary.url, 'GET', '/readyz')).status).toBe(200);

      await proxy.stop();
      const ill = await eventually(async () => {
        const answer = await send<Health>(granary.url, 'GET', '/health');
        return answer.status === 503 ? answer : undefined;
      });
      expect(ill.body.status).toBe('unhealthy');
      expect(ill.body.checks['data']).toMatchObject({ status: 'unhealthy', database: { status: 'unhealthy' } });
      expect(ill.body.checks['payments']).toMatchObject({ status: 'healthy' });
      expect(ill.text).not.toMatch(/127\.0\.0\.1|postgres|granary_test|password/i);
      const refused = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{}] });
      expect(refused.status).toBe(503);
      expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
      expect((await send(granary.url, 'GET', '/livez')).status).toBe(200);
    } finally {
      await granary.stop();
      await proxy.stop().catch(() => {});
    }
  });
});

test('with every service gone the gateway still answers, with 503', async () => {
  const nowhere = '127.0.0.1:1';
  const gateway = await startGateway(
    readConfig(gatewayConfig, {
      PORT: '0',
      OPERATOR_KEY: operatorKey,
      INTERNAL_SECRET: 'internal-secret-of-the-tests-0123456789',
      DATA_ADDRESS: nowhere,
      BLOBS_ADDRESS: nowhere,
      FINANCE_ADDRESS: nowhere,
      PAYMENTS_ADDRESS: nowhere,
      TASKS_ADDRESS: nowhere,
      BLOBS_HTTP_ADDRESS: nowhere,
    }),
    { log: createLogger('test', 'silent') },
  );
  try {
    const answer = await send<Health>(gateway.url, 'GET', '/health');
    expect(answer.status).toBe(503);
    expect(answer.body.status).toBe('unhealthy');
    expect(answer.body.checks['gateway']!.status).toBe('healthy');
    for (const service of services.slice(1)) expect(answer.body.checks[service]!.status).toBe('unhealthy');
  } finally {
    await gateway.stop();
  }
});
