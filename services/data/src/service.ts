import { join } from 'node:path';
import { createSignal } from '@granary/shared/concurrency/signal';
import { outboxImplementation } from '@granary/shared/bus/outbox';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { loadService } from '@granary/shared/rpc/protos';
import type { Logger } from '@granary/shared/logger';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { Multiplexer } from './postgres/multiplexer';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import type { Schema } from '@granary/shared/service/schema';
import { databaseOf } from '@granary/shared/service/database-settings';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import { observeMultiplexer } from '@granary/shared/postgres/pool-metrics';
import { readableBy } from '@granary/shared/bus/subscribers';
import { dataAccess } from './access';
import { AfterPlan } from './commit/after-plan';
import { Committer } from './commit/committer';
import { forgetHeldWrites } from './commit/held-writes';
import { BulkThrottle } from './commit/bulk-throttle';
import { WriteMemory } from './commit/write-memory';
import type { DataConfig } from './config';
import { dropAppJob, dropCollectionJob } from './tables/drop-jobs';
import { ChannelSets } from './feed/channel-set';
import { HeadSignals } from './feed/head-signals';
import { forgetImports } from './imports/remove-imports';
import { dataHandlers } from './handlers';
import { CatalogCache, readerCache } from './catalog/cache';
import { JobWorker } from './jobs/worker';
import { measureIndexes } from './usage/index-sizes';
import { forgetSignatures } from './apps/used-signatures';
import { purgeExpired } from './usage/retention-purge';
import { readSchedulers } from './query/execute/read-scheduler';
import { removeAbandonedDocuments, removeDocuments } from './skills/kept-document';
import { SlowQueries } from './query/execute/slow-queries';
import { indexReadSettings } from './query/sql/index-scan-sql';
import { openConfiguredKey } from './encryption-keys/open-root-key';
import { reEncryptJob } from './writes/re-encrypt-job';
import { QueryLookup } from './queries/saved-queries';
import { datasetReplacements } from './datasets/datasets';
import { DatasetTableSweeper } from './datasets/table-sweeper';
import { followCountryNetworks, forgetCountryNetworks } from './countries/country-networks';
import { UsagePublisher } from './usage/publisher';
import { brokenViewsCheck } from './views/live/health';
import { liveViewRows } from './views/live/live-rows';
import { dropReplacement } from './views/replacement';
import { buildViewJob } from './views/builds/build-job';
import { trimRowLogs } from './views/trim-row-logs';
import type { JobHandler, JobKind } from './jobs/queue';
import { renewInstantsJob } from './views/renew-instants';
import { buildIndexJob, giveUpBuild } from './tables/build-job';
import { queriesNeeding } from './queries/index-use';
import { viewUsing } from './views/encrypted-sources';

export const dataDefinition = loadService<DataDefinition>('data', 'Data');

/** Jobs that run at a time, of which an app has one less at most; of index builds one at a time. */
const jobConcurrency = 3;

/** An index scan that takes longer is cancelled, and the page is read over the pool. */
const indexScanTimeoutMs = 1_000;

export interface DataOverrides extends Overrides {
  /** The public address of a gateway whose port is chosen only after this service has started. */
  publicUrl?: () => string | undefined;
}

/** The parts of the service's database: its own migrations, the tables of events, and the tables of kept answers. */
export const dataSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true, idempotency: true };

/** Starts the data service; `implementations` serves callers in the same process. */
export function startData(config: DataConfig, overrides: DataOverrides = {}): Promise<RunningService> {
  return startService('data', config, dataSchema, overrides, (context) => assemble(context, config, overrides));
}

async function assemble(context: Context, config: DataConfig, overrides: DataOverrides): Promise<Parts> {
  const { pool, log, storage, trust, onStop } = context;
  await removeAbandonedDocuments({ pool, skillsDirectory: config.SKILLS_DIRECTORY });
  const rootKey = await context.wait(() => openConfiguredKey(config, context));
  const countries = await openCountryNetworks(config, context);
  onStop(() => countries?.stop());
  const published = createSignal();
  const outbox = readableBy(
    ['blobs', 'finance', 'tasks'],
    outboxImplementation({ pool, log, signer: trust.signer, appended: published }),
  );
  const notify = () => published.notify();
  const fast = createFastPool(config, log);
  onStop(() => fast.end());
  const multiplexer = createMultiplexer(config, log);
  onStop(() => multiplexer.end());
  onStop(observeMultiplexer('granary-data-pipelined', multiplexer));
  const usage = new UsagePublisher(pool, log, notify);
  onStop(() => usage.stop());
  const afterPlan = new AfterPlan(liveViewRows);
  const headSignals = new HeadSignals({ fast, log });
  const committer = createCommitter(config, context, { usage, afterPlan, headSignals });
  onStop(() => committer.stop());
  onStop(() => headSignals.stop());
  const worker = new JobWorker({ pool, log }, jobsOf(config, committer), jobConcurrency, storage, notify);
  onStop(() => worker.stop());
  const sweeper = new DatasetTableSweeper({ pool, log });
  onStop(() => sweeper.stop());
  const handlers = dataHandlers({
    pool,
    fast,
    multiplexer,
    schedulers: readSchedulers(config.PIPELINED_POOL_SIZE, config.DATABASE_POOL_SIZE),
    slowQueries: new SlowQueries(),
    publicLimits: { timeoutMs: config.PUBLIC_READ_TIMEOUT_MS, rowsMax: config.PUBLIC_READ_ROWS_MAX },
    readers: readerCache(fast),
    queries: new QueryLookup(fast),
    replacements: datasetReplacements(),
    sweeper,
    log,
    committer,
    headSignals,
    channelSets: new ChannelSets(),
    derived: afterPlan.removals,
    usage,
    storage,
    defaultRead: config.DEFAULT_READ,
    rootKey,
    viewUsing,
    queriesNeeding,
    skillsDirectory: config.SKILLS_DIRECTORY,
    get publicUrl() {
      return overrides.publicUrl?.() ?? config.PUBLIC_URL;
    },
    wakeWorker: () => {
      worker.wake();
      notify();
    },
  });
  const maintenance = startMaintenance(config, { pool, log, derived: afterPlan.removals, sweeper }, notify);
  onStop(() => maintenance.stop());
  return {
    implementations: [{ definition: dataDefinition, handlers, access: dataAccess }, outbox],
    checks: { views: brokenViewsCheck(pool) },
    appended: published,
    draining: () => headSignals.stop(),
  };
}

/**
 * Loads the networks by country, or deletes them where no file is set. It runs before requests are served, so that a
 * file that is not valid ends the start.
 */
async function openCountryNetworks(
  { COUNTRY_NETWORKS_FILE: file }: DataConfig,
  { pool, log }: Context,
): Promise<{ stop(): Promise<void> } | undefined> {
  if (file !== undefined) return followCountryNetworks({ pool, log, file });
  await forgetCountryNetworks(pool);
  return undefined;
}

const jobsOf = (
  { SKILLS_DIRECTORY: skillsDirectory }: DataConfig,
  committer: Committer,
): Record<JobKind, JobHandler> => ({
  'index.build': { run: buildIndexJob, giveUp: giveUpBuild },
  'view.refresh': { run: buildViewJob },
  'view.change': { run: buildViewJob, giveUp: dropReplacement },
  'encryption.rotate': { run: reEncryptJob(committer) },
  'instants.renew': { run: renewInstantsJob },
  'collection.drop': { run: dropCollectionJob, neverFails: true },
  'app.drop': {
    neverFails: true,
    run: async (context, payload, report) => {
      const result = await dropAppJob(context, payload, report);
      await removeDocuments({ skillsDirectory }, BigInt(String(payload['app_number'])));
      return result;
    },
  },
});

function createCommitter(
  config: DataConfig,
  { pool, log, clock, storage }: Context,
  { usage, afterPlan, headSignals }: { usage: UsagePublisher; afterPlan: AfterPlan; headSignals: HeadSignals },
): Committer {
  return new Committer(
    {
      pool,
      log,
      now: clock.now,
      concurrency: Math.max(1, Math.floor(config.DATABASE_POOL_SIZE / 2)),
      memory: new WriteMemory(config.WRITE_BUFFER_BYTES),
      throttle: new BulkThrottle(config.PRELOAD_CONCURRENCY),
      collections: new CatalogCache(pool),
      afterPlan,
      defaultRead: config.DEFAULT_READ,
      afterCommit: ({ appId }, changed) => {
        for (const number of changed) usage.touch(number);
        headSignals.mark(appId);
      },
    },
    storage,
  );
}

/** Connections for look-ups, which slow statements cannot hold up. Few: each active one costs the others a switch. */
function createFastPool(config: DataConfig, log: Logger): Pool {
  return createPool({
    ...databaseOf(config),
    size: config.FAST_POOL_SIZE,
    applicationName: 'granary-data-fast',
    log,
  });
}

/** The connections for reads that are one scan of an index. */
function createMultiplexer(config: DataConfig, log: Logger): Multiplexer {
  return new Multiplexer({
    ...databaseOf(config),
    size: config.PIPELINED_POOL_SIZE,
    applicationName: 'granary-data-pipelined',
    statementTimeoutMs: indexScanTimeoutMs,
    settings: indexReadSettings,
    log,
  });
}

/** How often indexes are measured, tables looked for that a process left behind, and logs of rows trimmed. */
const measureEveryMs = 3_600_000;

/**
 * Deletes what is past its retention, old signatures and imports, what is known of held writes and tables that were
 * left behind, and measures the indexes.
 */
function startMaintenance(
  config: DataConfig,
  context: Parameters<typeof purgeExpired>[0] & { sweeper: DatasetTableSweeper },
  notify: () => void,
): { stop(): Promise<void> } {
  const { pool, log } = context;
  let measuredAtMs = -Infinity;
  return startScheduledTask({
    pool,
    log,
    name: 'maintenance',
    everyMs: config.MAINTENANCE_EVERY_MS,
    run: async (stopping) => {
      await forgetSignatures(pool, stopping);
      await forgetHeldWrites(pool, stopping);
      await forgetImports(pool, stopping);
      await purgeExpired(context, stopping);
      if (performance.now() - measuredAtMs >= measureEveryMs) {
        measuredAtMs = performance.now();
        await measureIndexes(pool, stopping);
        await context.sweeper.sweepAll();
        await trimRowLogs(context, stopping);
      }
      notify();
    },
  });
}
