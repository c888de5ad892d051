import { join } from 'node:path';
import { createSignal } from '@granary/shared/concurrency/signal';
import { outboxImplementation } from '@granary/shared/bus/outbox';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { loadService } from '@granary/shared/rpc/protos';
import type { Logger } from '@granary/shared/logger';
import { startChore } from '@granary/shared/postgres/scheduled-task';
import { Lane } from '@granary/shared/postgres/multiplexer/multiplexer';
import { createPool } from '@granary/shared/postgres/pool';
import { startService, type Overrides, type RunningService } from '@granary/shared/service/start';
import { observeMultiplexer } from '@granary/shared/postgres/pool-metrics';
import { readableBy } from '@granary/shared/bus/subscribers';
import { dataAccess } from './access';
import { Committer } from './commit/committer';
import { BulkThrottle } from './commit/bulk-throttle';
import type { DataConfig } from './config';
import { dropAppJob, dropCollectionJob } from './tables/drop-jobs';
import { dataHandlers } from './handlers';
import { CatalogCache, readerCache } from './catalog/cache';
import { buildIndexJob } from './tables/index-build';
import { JobWorker } from './jobs/worker';
import { purgeExpired } from './usage/retention-purge';
import { readSchedulers } from './query/execute/read-scheduler';
import { indexReadSettings } from './query/sql/index-scan-sql';
import { queryLookup } from './queries/saved-queries';
import { UsagePublisher } from './usage/publisher';
import { refreshViewJob } from './views/views';
import { trimAnswers } from './catalog/idempotency';

export const dataDefinition = loadService<DataDefinition>('data', 'Data');

/** Jobs that run at a time, of which an app has one less at most; of index builds one at a time. */
const jobConcurrency = 3;

/** What takes longer is not short, and is read over the pool instead. */
const laneStatementTimeoutMs = 1_000;

export interface DataOverrides extends Overrides {
  /** Where the gateway is, when its port is chosen only after this service has started. */
  publicUrl?: () => string | undefined;
}

/** Starts the data service; `implementations` serves callers in the same process. */
export function startData(config: DataConfig, overrides: DataOverrides = {}): Promise<RunningService> {
  const migrations = join(__dirname, '..', 'migrations');
  return startService(
    'data',
    config,
    migrations,
    overrides,
    async ({ pool, log, clock, storage, trust }) => {
      const published = createSignal();
      const outbox = readableBy(
        ['blobs', 'finance', 'tasks'],
        outboxImplementation({ pool, log, signer: trust.signer, appended: published }),
      );
      const notify = () => published.notify();
      // Look-ups and short reads have connections of their own: nothing slow can hold them up. Few, because each
      // connection that is awake costs the others a switch.
      const fast = createPool({
        url: config.DATABASE_URL,
        size: config.FAST_POOL_SIZE,
        applicationName: 'granary-data-fast',
        log,
      });
      const lane = createLane(config, log);
      const unobserveMultiplexer = observeMultiplexer('granary-data-lane', lane);
      const usage = new UsagePublisher(pool, log, notify);
      const committer = new Committer(
        {
          pool,
          log,
          now: clock.now,
          concurrency: Math.max(1, Math.floor(config.DATABASE_POOL_SIZE / 2)),
          throttle: new BulkThrottle(config.PRELOAD_CONCURRENCY),
          collections: new CatalogCache(pool),
          defaultRead: config.DEFAULT_READ,
          afterCommit: (changed) => {
            for (const number of changed) usage.touch(number);
          },
        },
        storage,
      );
      const worker = new JobWorker(
        { pool, log },
        {
          'index.build': buildIndexJob,
          'view.refresh': refreshViewJob,
          'collection.drop': dropCollectionJob,
          'app.drop': dropAppJob,
        },
        jobConcurrency,
        storage,
        notify,
      );
      const handlers = dataHandlers({
        pool,
        fast,
        lane,
        schedulers: readSchedulers(config.LANE_SIZE, config.DATABASE_POOL_SIZE),
        readers: readerCache(fast),
        queries: queryLookup(fast),
        log,
        committer,
        usage,
        storage,
        defaultRead: config.DEFAULT_READ,
        skillsDirectory: config.SKILLS_DIRECTORY,
        get publicUrl() {
          return overrides.publicUrl?.() ?? config.PUBLIC_URL;
        },
        wakeWorker: () => {
          worker.wake();
          notify();
        },
      });
      const housework = startChore({
        ...{ pool, log, name: 'housework', everyMs: config.HOUSEWORK_EVERY_MS },
        run: async (stopping) => {
          await trimAnswers(pool);
          await purgeExpired(pool, log, stopping);
          notify();
        },
      });
      return {
        implementations: [{ definition: dataDefinition, handlers, access: dataAccess }, outbox],
        appended: published,
        stop: async () => {
          await housework.stop();
          await worker.stop();
          await committer.stop();
          await usage.stop();
          unobserveMultiplexer();
          await lane.end();
          await fast.end();
        },
      };
    },
    { bus: true },
  );
}

/** The connections for reads that one index answers alone. */
function createLane(config: DataConfig, log: Logger): Lane {
  return new Lane({
    url: config.DATABASE_URL,
    size: config.LANE_SIZE,
    applicationName: 'granary-data-lane',
    statementTimeoutMs: laneStatementTimeoutMs,
    settings: indexReadSettings,
    log,
  });
}
