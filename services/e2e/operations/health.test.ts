import { Client } from 'pg';
import { startPostgresProxy, type PostgresProxy } from '@granary/testing/postgres-proxy';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { newApp, send, transports, type Granary } from '../support/granary';
import { startGranary } from '../support/own-granary';

interface Health {
  status: string;
  version: string;
  checks: Record<string, { status: string; latency_ms: number; version?: string; [part: string]: unknown }>;
}

const services = ['gateway', 'data', 'blobs', 'finance', 'payments', 'tasks'];

describe.each(transports)('health (%s)', (transport) => {
  test('all six services and their dependencies are healthy, and without its database data is reported as unhealthy', async () => {
    const proxy = await startPostgresProxy((await testDatabase()).url, () => 'pass');
    const granary = await startGranary(transport, { databaseUrls: { data: proxy.url } });
    try {
      const app = await newApp(granary);
      // On a busy machine what has just started may answer late, and is degraded for as long.
      const well = await eventually(async () => {
        const answer = await send<Health>(granary.url, 'GET', '/health');
        return answer.body.status === 'healthy' && answer;
      });
      expect(well.status).toBe(200);
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
        return answer.status === 503 && answer.body.checks['payments']!.status === 'healthy' && answer;
      });
      expect(ill.body.status).toBe('unhealthy');
      expect(ill.body.checks['data']).toMatchObject({ status: 'unhealthy', database: { status: 'unhealthy' } });
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

interface Part {
  status: string;
  latency_ms: number;
  message?: string;
}

const healthOf = async (granary: { url: string }) => {
  const { status, body } = await send<Health>(granary.url, 'GET', '/health');
  return { status, body, database: body.checks['data']!['database'] as Part | undefined };
};
const isReady = async (granary: { url: string }) => (await send(granary.url, 'GET', '/readyz')).status === 200;

describe.each(transports)('a faulty database (%s)', (transport) => {
  /** Freezes the database until a look finds it late; again where a busy machine has looked too late for that. */
  const freezeUntilLate = (proxy: PostgresProxy, granary: Granary, unhealthyAfterMs: number) =>
    eventually(async () => {
      await eventually(async () => (await healthOf(granary)).body.status === 'healthy');
      proxy.freeze();
      const found = await eventually(async () => {
        // Where data itself answers too late for the gateway, nothing is said of its database.
        const { database, ...health } = await healthOf(granary);
        return database !== undefined && database.status !== 'healthy' && { ...health, database };
      });
      if (found.database.status === 'degraded' && (await isReady(granary))) return found;
      if (found.database.status === 'unhealthy')
        expect(found.database.latency_ms).toBeGreaterThanOrEqual(unhealthyAfterMs);
      proxy.thaw();
      return undefined;
    });

  test('a slow database is degraded, with its latency, unhealthy only after the limit, and healthy once it answers', async () => {
    const proxy = await startPostgresProxy((await testDatabase()).url, () => 'pass');
    // Below the 5 s after which a connection that cannot be opened is given up.
    const unhealthyAfterMs = 3_000;
    const limit = { HEALTH_UNHEALTHY_AFTER_MS: String(unhealthyAfterMs) };
    const granary = await startGranary(transport, {
      databaseUrls: { data: proxy.url },
      settings: { data: limit, gateway: limit },
    });
    try {
      const late = await freezeUntilLate(proxy, granary, unhealthyAfterMs);
      expect(late.status).toBe(200);
      expect(late.body.status).toBe('degraded');
      expect(late.database).toMatchObject({ status: 'degraded', message: 'has not answered yet' });
      // The patience is 700 ms; a timer of Node fires early by as long as its loop was busy when it was set.
      expect(late.database.latency_ms).toBeGreaterThanOrEqual(600);

      const overdue = await eventually(async () => {
        const found = await healthOf(granary);
        return found.database?.message === 'did not answer in time' && found;
      });
      expect([overdue.body.status, overdue.database!.status]).toEqual(['unhealthy', 'unhealthy']);
      expect(overdue.database!.latency_ms).toBeGreaterThanOrEqual(unhealthyAfterMs);
      await eventually(async () => !(await isReady(granary)));

      proxy.thaw();
      await eventually(async () => (await healthOf(granary)).body.status === 'healthy');
      await eventually(() => isReady(granary));
    } finally {
      proxy.thaw();
      await granary.stop();
      await proxy.stop();
    }
  });

  test('a read-only database is unhealthy, reads work, the gateway stays ready, and writes recover by themselves', async () => {
    const { url } = await testDatabase();
    const granary = await startGranary(transport, { databaseUrls: { data: url } });
    const admin = new Client({ connectionString: url });
    await admin.connect();
    const name = new URL(url).pathname.slice(1);
    // Connections that are open keep the setting that they began with.
    const setReadOnly = async (isReadOnly: boolean) => {
      await admin.query('set default_transaction_read_only = off');
      await admin.query(`alter database ${name} set default_transaction_read_only = ${isReadOnly ? 'on' : 'off'}`);
      await admin.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = $1 and pid <> pg_backend_pid() and backend_type = 'client backend'`,
        [name],
      );
    };
    try {
      const app = await newApp(granary);
      await app.store('films', [{ id: 'one' }]);
      await setReadOnly(true);
      const found = await eventually(async () => {
        const health = await healthOf(granary);
        return health.database?.message?.includes('read-only') && health;
      });
      expect(found.status).toBe(503);
      expect(found.database).toMatchObject({ status: 'unhealthy' });
      const refused = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{}] });
      expect(refused.status).toBe(503);
      expect((await app.list('films')).body.records).toHaveLength(1);
      expect(await isReady(granary)).toBe(true);

      await setReadOnly(false);
      await eventually(async () => (await healthOf(granary)).body.status === 'healthy');
      await eventually(
        async () => (await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{}] })).status === 202,
      );
    } finally {
      await admin.end();
      await granary.stop();
    }
  });
});
