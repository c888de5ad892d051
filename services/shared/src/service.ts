import type { Check } from './health';
import { databaseCheck, healthImplementation } from './health';
import { prepareOutbox } from './bus/epoch';
import { busMigrations } from './bus/migrations';
import { startServer, type Implementation } from './grpc/server';
import { stopAll, type Running } from './lifecycle';
import { createLogger, type Logger } from './logger';
import { applyMigrations, migrate } from './postgres/migrate';
import { assertSafePostgres, createPool, type Pool } from './postgres/pool';

/** What the configuration of every service holds, see `commonConfig`. */
export interface CommonConfig {
  LISTEN: string;
  DATABASE_URL: string;
  DATABASE_POOL_SIZE: number;
  LOG_LEVEL: string;
}

/** What a test or the single process may replace. */
export interface Overrides {
  log?: Logger;
  /** False: no gRPC server; callers in the same process use `implementations`. */
  listen?: boolean;
}

export interface Context {
  pool: Pool;
  log: Logger;
}

/** What a service is made of, once its database is ready. */
export interface Parts {
  implementations: Implementation[];
  checks?: Record<string, Check>;
  /** Ends workers and whatever else holds the process alive; runs before the pool closes. */
  stop?: () => Promise<void>;
  failed?: Promise<never>;
}

export interface RunningService extends Running {
  implementations: Implementation[];
  /** host:port of the gRPC server, undefined when it does not listen. */
  address?: string;
}

/**
 * The one way in which a service with a database starts: pool, safety of Postgres, migrations, its own parts, gRPC
 * server with health. Stops in reverse order. With `bus` its database has the tables of events, `outbox` and the rest
 * (see bus/migrations.ts), before its own migrations run.
 */
export async function startService(
  name: string,
  config: CommonConfig,
  migrations: string,
  overrides: Overrides,
  build: (context: Context) => Promise<Parts>,
  options: { bus?: boolean } = {},
): Promise<RunningService> {
  const log = overrides.log ?? createLogger(name, config.LOG_LEVEL);
  const pool = createPool({
    url: config.DATABASE_URL,
    size: config.DATABASE_POOL_SIZE,
    applicationName: `granary-${name}`,
    log,
  });
  const stops: Array<() => Promise<void>> = [() => pool.end()];
  try {
    await assertSafePostgres(pool);
    if (options.bus) {
      await applyMigrations(pool, 'bus', busMigrations);
      await prepareOutbox(pool);
    }
    await migrate(pool, migrations);
    const parts = await build({ pool, log });
    if (parts.stop) stops.push(parts.stop);
    const health = healthImplementation({ database: databaseCheck(pool), ...parts.checks });
    const implementations = [...parts.implementations, health as unknown as Implementation];
    const running: RunningService = { implementations, stop: () => stopAll(stops) };
    if (parts.failed) running.failed = parts.failed;
    if (overrides.listen !== false) {
      const server = await startServer(config.LISTEN, implementations, log);
      stops.push(() => server.stop());
      running.address = server.address;
      log.info({ address: server.address }, 'listening');
    }
    return running;
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}
