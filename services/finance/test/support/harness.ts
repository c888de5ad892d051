import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { append, outboxImplementation } from '@granary/shared/bus/outbox';
import { busMigrations } from '@granary/shared/bus/migrations';
import { prepareOutbox } from '@granary/shared/bus/epoch';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { HealthDefinition } from '@granary/shared/gen/granary/health/v1/Health';
import { openClient } from '@granary/shared/grpc/client';
import { newCall, type Call, type Client } from '@granary/shared/rpc/types';
import { healthDefinition } from '@granary/shared/service/health-rpc';
import { createLogger } from '@granary/shared/logger';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { createPool, execute, row, type Pool } from '@granary/shared/postgres/pool';
import { sql, trusted } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { cloneDatabase, templateDatabase } from '@granary/testing/database';
import { serviceDatabase } from '@granary/testing/service-database';
import { eventually } from '@granary/testing/eventually';
import { openTrust } from '@granary/shared/trust/trust';
import { readConfig } from '@granary/shared/config';
import { limitMs } from '@granary/testing/speed';
import { financeConfig } from '../../src/config';
import { financeDefinition, financeSchema, startFinance } from '../../src/service';

export const log = createLogger('test', 'silent');
export const testSecret = 'a secret that the services share with each other';

export const call = (): Call => newCall('test', limitMs(20_000));

/**
 * A pool on a fresh database with the tables of finance. It does not wait for the disk at each commit: what these
 * tests look at does not hang on it.
 */
export async function financePool(size: number): Promise<{ pool: Pool; url: string }> {
  return poolWith((await serviceDatabase(financeSchema)).url, 'synchronous_commit=off', size);
}

/** A pool whose sessions have a setting of Postgres, `name=value`; `url` has it too. */
function poolWith(database: string, setting: string, size: number): { pool: Pool; url: string } {
  const url = new URL(database);
  url.searchParams.set('options', `-c ${setting}`);
  return { pool: createPool({ url: url.href, size, applicationName: 'test', log }), url: url.href };
}

/** An outbox as data, blobs and payments have one. */
export interface Source {
  implementation: ReturnType<typeof outboxImplementation>;
  publish(
    type: string,
    payload: { app_id?: string; collection?: string; collection_number?: number; [field: string]: unknown },
  ): Promise<void>;
  close(): Promise<void>;
}

const sourceNames = ['data', 'blobs', 'payments'] as const;
type SourceName = (typeof sourceNames)[number];

/** The sources share a database, where each has a schema, because each test makes them anew. */
const sourcePool = (url: string, name: SourceName, size: number): Pool =>
  poolWith(url, `search_path=${name}`, size).pool;

async function migrateSources(url: string): Promise<void> {
  for (const name of sourceNames) {
    const pool = sourcePool(url, name, 1);
    try {
      await execute(pool, sql`create schema ${trusted(name)}`);
      await applyMigrations(pool, 'bus', busMigrations);
    } finally {
      await pool.end();
    }
  }
}

async function openSource(service: SourceName, url: string): Promise<Source> {
  const topic = service === 'payments' ? 'prices' : 'usage';
  const pool = sourcePool(url, service, 4);
  await prepareOutbox(pool);
  const sequences = new Map<string, bigint>();
  return {
    implementation: outboxImplementation({
      pool,
      log,
      signer: openTrust(service, { INTERNAL_SECRET: testSecret }, log).signer,
    }),
    publish: async (type, payload) => {
      const key = `${payload.app_id ?? ''}/${payload.collection ?? ''}`;
      const aggregateId = `${key}/${(payload.collection_number ?? 0).toString()}`;
      const aggregateSequence = (sequences.get(aggregateId) ?? 0n) + 1n;
      sequences.set(aggregateId, aggregateSequence);
      const event = { topic, key, aggregateId, aggregateSequence, type, payload };
      await transaction(pool, (tx) => append(tx, [event]));
    },
    close: () => pool.end(),
  };
}

export interface TestFinance {
  client: Client<FinanceDefinition>;
  health: Client<HealthDefinition>;
  pool: Pool;
  data: Source;
  blobs: Source;
  payments: Source;
  /** Publishes prices, valid from the present of `clock`, and resolves once finance knows them. */
  setPrices(prices: { utiaPerGibDay?: bigint; freeDays?: number }): Promise<void>;
  clock: { now: Date };
  keyFile: string;
  /** Where it is reached; changes with a restart. */
  address(): string;
  /** Ends the service and starts it again on the same database; `changes` replaces parts of its environment. */
  restart(changes?: Record<string, string>): Promise<void>;
  stop(): Promise<void>;
}

/**
 * The service as it runs in earnest, reached over gRPC. With `prices`, payments has published that a GiB costs 1,000
 * utia a day after 30 free ones.
 */
export async function startTestFinance(
  environment: Record<string, string> = {},
  { prices = true }: { prices?: boolean } = {},
): Promise<TestFinance> {
  const { url } = await serviceDatabase(financeSchema);
  const keyFile = environment.KEY_FILE ?? join(await mkdtemp(join(tmpdir(), 'granary-finance-')), 'keys', 'seed');
  const { url: sourcesUrl } = await cloneDatabase(await templateDatabase('template_sources', migrateSources));
  const open = (name: SourceName) => openSource(name, sourcesUrl);
  const [data, blobs, payments] = await Promise.all([open('data'), open('blobs'), open('payments')]);
  const clock = { now: new Date('2026-01-01T00:00:00.000Z') };
  const start = (changes: Record<string, string> = {}) =>
    startFinance(
      readConfig(financeConfig, {
        DATABASE_URL: url,
        KEY_FILE: keyFile,
        KEY_FILE_CREATE: 'true',
        LOG_LEVEL: 'silent',
        SIMULATED_BLOCK_MS: '20',
        INTERNAL_SECRET: testSecret,
        ...environment,
        ...changes,
      }),
      {
        now: () => clock.now,
        chargeEveryMs: 100,
        reconcileEveryMs: 200,
        chainEveryMs: 20,
        paymentsOutbox: { implementation: payments.implementation },
        dataOutbox: { implementation: data.implementation },
        blobsOutbox: { implementation: blobs.implementation },
      },
    );
  const trust = openTrust('gateway', { INTERNAL_SECRET: testSecret }, log);
  const credentials = () => trust.towards('finance');
  const connect = (address: string) => ({
    finance: openClient(financeDefinition, { address }, { log, credentials }),
    health: openClient(healthDefinition, { address }, { log, credentials }),
  });
  let running = await start();
  let clients = connect(running.address!);
  const pool = createPool({ url, size: 4, applicationName: 'test', log });
  const end = async () => {
    clients.finance.close();
    clients.health.close();
    await running.stop();
  };
  const test: TestFinance = {
    client: clients.finance.client,
    health: clients.health.client,
    pool,
    data,
    blobs,
    payments,
    setPrices: async ({ utiaPerGibDay = 1_000n, freeDays = 30 }) => {
      await payments.publish('prices.set', {
        retention_utia_per_gib_day: utiaPerGibDay.toString(),
        retention_free_days: freeDays,
        since: clock.now.toISOString(),
      });
      await eventually(async () => {
        const last = await row<{ utia: bigint; days: number }>(
          pool,
          sql`select utia_per_gib_day as utia, free_days as days from retention_price order by number desc limit 1`,
        );
        return last?.utia === utiaPerGibDay && last.days === freeDays;
      });
    },
    clock,
    keyFile,
    address: () => running.address!,
    restart: async (changes) => {
      await end();
      running = { implementations: [], stop: async () => {} };
      running = await start(changes);
      clients = connect(running.address!);
      test.client = clients.finance.client;
      test.health = clients.health.client;
    },
    stop: async () => {
      await end();
      await Promise.all([pool.end(), data.close(), blobs.close(), payments.close()]);
    },
  };
  if (prices) await test.setPrices({});
  return test;
}
