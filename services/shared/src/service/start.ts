import { setTimeout as delay } from 'node:timers/promises';
import type { Check } from '../health/check';
import { databaseCheck, healthAccess, healthImplementation } from './health-rpc';
import { openBus, type Bus, type BusConfig } from '../bus/bus';
import { KafkaRelay } from '../bus/kafka-relay';
import type { Signal } from '../concurrency/signal';
import { startServer } from '../grpc/server';
import { startTrimmingAnswers } from '../idempotency/trim';
import type { Implementation } from '../rpc/implementation';
import { leavingMs, stopAll, type Leaving, type Running } from './lifecycle';
import { createLogger, type Logger } from '../logger';
import { openDatabaseClock, type DatabaseClock } from '../postgres/clock';
import type { CancelSignal } from '../concurrency/cancellation';
import { sqlState } from '../postgres/errors';
import { assertSafePostgres, createPool, type Pool } from '../postgres/pool';
import { probeRoom } from '../postgres/room';
import { StorageMonitor } from '../health/storage-monitor';
import { observeBus } from '../bus/metrics';
import { StartError } from '../start-error';
import { observeDatabase } from './database-metrics';
import { databaseOf, type DatabaseSettings } from './database-settings';
import { assertSchema, explainUnreachable, migrateSchema, type Schema } from './schema';
import { waitForDependency } from './wait-for-dependency';
import type { Readiness } from '../telemetry/metrics-server';
import { startTelemetry } from '../telemetry/start';
import type { TelemetrySettings } from '../telemetry/settings';
import type { ServiceName } from '../trust/services';
import type { TrustSettings } from '../trust/settings';
import { openTrust, type Trust } from '../trust/trust';

/** The settings that every service has, see common-config.ts. */
export interface CommonConfig extends BusConfig, DatabaseSettings, Leaving, TelemetrySettings, TrustSettings {
  LISTEN: string;
  DATABASE_POOL_SIZE: number;
  LOG_LEVEL: string;
  CONNECTION_AGE_MS: number;
  HEALTH_UNHEALTHY_AFTER_MS: number;
  DATABASE_DIRECTORY?: string | undefined;
  DISK_RESERVE_BYTES: number;
  MIGRATIONS: 'start' | 'wait';
}

/** The parts of a start that tests and the embedded process may override. */
export interface Overrides {
  log?: Logger;
  /** Aborts when the process is to end. With it the start waits for what it needs; without it fails. */
  interrupted?: CancelSignal;
  /** False: no gRPC server; callers in the same process use `implementations`. */
  listen?: boolean;
}

export interface Context {
  pool: Pool;
  log: Logger;
  /** The transport of events, for `startConsumer`. */
  bus: Bus;
  /** The trust of the service, for clients of other services. */
  trust: Trust;
  /** The clock of all times that are stored and compared. */
  clock: DatabaseClock;
  /** The free space of the database. */
  storage: StorageMonitor;
  /**
   * Stops a part before the parts that were started earlier, and before the pool is closed; also where the start fails.
   */
  onStop: (stop: () => Promise<void> | void) => void;
  /** Repeats a step of the start while what it needs is not available, see `waitForDependency`. */
  wait: <T>(step: () => Promise<T>) => Promise<T>;
}

/** The SQLSTATE of a statement that the role may not run. */
const insufficientPrivilege = '42501';

/** The parts of a service, created once its database is ready. */
export interface Parts {
  implementations: Implementation[];
  checks?: Record<string, Check>;
  /** The signal of a service that publishes events: notified after some were appended. */
  appended?: Signal;
  /** Called at the start of a stop, while the service still serves. */
  leaving?: () => void;
  /** Called when the service is about to stop serving: calls that wait for something are to be answered now. */
  draining?: () => void;
  failed?: Promise<never>;
}

export interface RunningService extends Running {
  implementations: Implementation[];
  /** host:port of the gRPC server; undefined when it does not listen. */
  address?: string;
}

/**
 * Checks Postgres, and brings the schema up to date or checks that it is. Repeatable. Throws a NotAvailableError when
 * Postgres is gone or migrations that another process runs are missing.
 */
async function prepareDatabase(
  pool: Pool,
  schema: Schema,
  migrations: CommonConfig['MIGRATIONS'],
): Promise<DatabaseClock> {
  try {
    await assertSafePostgres(pool);
    await (migrations === 'wait' ? assertSchema(pool, schema) : migrateSchema(pool, schema));
    return await openDatabaseClock(pool);
  } catch (cause) {
    if (sqlState(cause) === insufficientPrivilege && migrations === 'start') {
      throw new StartError(
        'The role in DATABASE_URL may not change the schema: run the command migrate as the owner of the database, and set MIGRATIONS=wait.',
        { cause },
      );
    }
    explainUnreachable(cause);
  }
}

/**
 * Starts a service with a database: pool, safety checks of Postgres, schema, its own parts, gRPC server with health.
 * Stops in reverse order, after it has served for another DRAIN_DELAY_MS.
 */
export async function startService(
  name: ServiceName,
  config: CommonConfig,
  schema: Schema,
  overrides: Overrides,
  assemble: (context: Context) => Promise<Parts> | Parts,
): Promise<RunningService> {
  const log = overrides.log ?? createLogger(name, config.LOG_LEVEL);
  let readiness: Readiness = 'starting';
  const telemetry = await startTelemetry(`granary-${name}`, config, log, () => readiness);
  const pool = createPool({
    ...databaseOf(config),
    size: config.DATABASE_POOL_SIZE,
    applicationName: `granary-${name}`,
    log,
  });
  const stops: Array<() => Promise<void>> = [() => telemetry.stop(), () => pool.end()];
  try {
    const bus = openBus(config, name, log);
    const trust = openTrust(name, config, log);
    const wait: Context['wait'] = (step) => waitForDependency(log, overrides.interrupted, step);
    const clock = await wait(() => prepareDatabase(pool, schema, config.MIGRATIONS));
    stops.push(async () => clock.stop());
    if (schema.bus) {
      const unobserve = observeBus(name, pool);
      stops.push(async () => unobserve());
    }
    if (schema.idempotency) {
      const trimming = startTrimmingAnswers(pool, log);
      stops.push(() => trimming.stop());
    }
    const storage = openStorage(name, config, pool, log);
    const unobserveSize = observeDatabase(name, pool);
    stops.push(() => storage.stop().finally(unobserveSize));
    const onStop: Context['onStop'] = (stop) => void stops.push(async () => stop());
    const parts = await assemble({ pool, log, bus, trust, clock, storage, onStop, wait });
    const room: Check = () => Promise.resolve(storage.finding());
    const baseChecks = { database: databaseCheck(pool), storage: room, clock: clock.check };
    const checks: Record<string, Check> = { ...baseChecks, ...parts.checks };
    if (bus && parts.appended) {
      const relay = new KafkaRelay({ pool, log, bus, service: name, signer: trust.signer, appended: parts.appended });
      stops.push(() => relay.stop());
      checks.relay = relay.check;
    }
    const health = { ...healthImplementation(checks, config.HEALTH_UNHEALTHY_AFTER_MS), access: healthAccess };
    const implementations = [...parts.implementations, health as unknown as Implementation];
    const running: RunningService = { implementations, stop: () => stopAll(stops) };
    if (parts.failed) running.failed = parts.failed;
    if (overrides.listen !== false) {
      const times = { drainTimeoutMs: config.DRAIN_TIMEOUT_MS, connectionAgeMs: config.CONNECTION_AGE_MS };
      const server = await startServer(config.LISTEN, implementations, log, trust.server(), times);
      stops.push(() => server.stop());
      running.address = server.address;
      running.leavingMs = leavingMs(config);
      running.stop = async () => {
        readiness = 'stopping';
        parts.leaving?.();
        await delay(config.DRAIN_DELAY_MS);
        parts.draining?.();
        await stopAll(stops);
      };
      log.info({ address: server.address }, 'listening');
      readiness = 'ready';
    }
    return running;
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}

function openStorage(service: string, config: CommonConfig, pool: Pool, log: Logger): StorageMonitor {
  return new StorageMonitor({
    service,
    volume: 'database',
    log,
    probe: () => probeRoom(pool),
    directory: config.DATABASE_DIRECTORY,
    reserveBytes: config.DISK_RESERVE_BYTES,
  });
}
