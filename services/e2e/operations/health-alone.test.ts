import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { startPostgresProxy } from '@granary/testing/postgres-proxy';
import { operatorKey, send } from '../support/granary';
import { startGranaryHere } from '../support/own-granary';

interface Health {
  status: string;
  checks: Record<string, { status: string }>;
}

const statusOf = async ({ url }: { url: string }): Promise<number> =>
  (await send<Health>(url, 'GET', '/health')).status;

test('setting the clock back does not freeze the result of health', async () => {
  const proxy = await startPostgresProxy((await testDatabase()).url, () => 'pass');
  const granary = await startGranaryHere('direct', { databaseUrls: { data: proxy.url } });
  const clock = jest.spyOn(Date, 'now');
  try {
    expect(await statusOf(granary)).toBe(200);
    clock.mockImplementation(() => new Date().getTime() - 3_600_000);
    await proxy.stop();
    await eventually(async () => (await statusOf(granary)) === 503);
  } finally {
    clock.mockRestore();
    await granary.stop();
    await proxy.stop().catch(() => {});
  }
});

test('without any service the gateway still answers, with 503', async () => {
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
    for (const service of ['data', 'blobs', 'finance', 'payments', 'tasks']) {
      expect(answer.body.checks[service]!.status).toBe('unhealthy');
    }
  } finally {
    await gateway.stop();
  }
});
