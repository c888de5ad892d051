import { join } from 'node:path';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import { outboxDefinition, outboxImplementation } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/concurrency/signal';
import { ConfigError } from '@granary/shared/config';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import type { Check } from '@granary/shared/health/check';
import { stopAll } from '@granary/shared/service/lifecycle';
import { cachedFor } from '@granary/shared/concurrency/ttl-cache';
import type { ObjectStore } from '@granary/shared/objects/store';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import { isStorageFull, StorageMonitor } from '@granary/shared/health/storage-monitor';
import { readableBy } from '@granary/shared/bus/subscribers';
import { startBytes } from './transfers/server';
import type { BlobsConfig } from './config';
import type { BlobsContext } from './records/context';
import { handleEvent } from './events';
import { blobsImplementation } from './handlers';
import { createMarking } from './records/stored-uploads';
import { openObjectStore } from './objects/object-store';
import { installationId } from './objects/objects';
import { createRemoval } from './records/removal';
import { startSettling } from './maintenance/reconciliation';
import { startSweeping } from './maintenance/orphans';

export interface BlobsOverrides extends Overrides {
  /** Data in the same process, or at another address than the configuration's. */
  data?: Target<DataDefinition>;
  dataOutbox?: Target<OutboxDefinition>;
}

export interface RunningBlobs extends RunningService {
  /** host:port of the internal HTTP listener. */
  httpAddress: string;
}

const migrations = join(__dirname, '..', 'migrations');
/** The store is not asked more often than this. */
const probeEveryMs = 3_000;

export async function startBlobs(config: BlobsConfig, overrides: BlobsOverrides = {}): Promise<RunningBlobs> {
  const data = overrides.data ?? addressOf(config);
  const dataOutbox = overrides.dataOutbox ?? addressOf(config);
  let httpAddress = '';
  const build = async ({ pool, log, bus, trust, clock }: Context): Promise<Parts> => {
    const stops: Array<() => Promise<void>> = [];
    try {
      const store = await openObjectStore(config, await installationId(pool));
      stops.push(async () => store.close?.());
      const objectStorage = new StorageMonitor({
        ...{ service: 'blobs', volume: 'objects', log, probe: () => store.probe() },
        ...{ directory: config.OBJECT_STORE === 'files' ? config.OBJECTS_DIR : undefined },
        reserveBytes: config.DISK_RESERVE_BYTES,
      });
      stops.push(() => objectStorage.stop());
      const credentials = () => trust.towards('data');
      const dataClient = openClient(loadService<DataDefinition>('data', 'Data'), data, {
        ...{ log, credentials },
        // Both carry a ticket, so repeating them changes nothing more.
        repeatable: ['commitUpload', 'store', 'getCommit'],
      });
      stops.push(async () => dataClient.close());
      const outboxClient = openClient(outboxDefinition, dataOutbox, { log, credentials });
      stops.push(async () => outboxClient.close());
      const appended = createSignal();
      const context: BlobsContext = {
        ...{ pool, log, store, objectStorage, appended, clock },
        data: dataClient.client,
        committing: new Set(),
        markStored: createMarking(pool),
        removeBytes: createRemoval(pool, store),
        pendingGraceMs: config.PENDING_GRACE_MS,
      };
      const settling = startSettling(context);
      stops.push(() => settling.stop());
      const sweeping = startSweeping(context, { everyMs: config.SWEEP_EVERY_MS, minAgeMs: config.SWEEP_AGE_MS });
      stops.push(() => sweeping.stop());
      const consumer = startConsumer({
        ...{ pool, log, bus, name: 'blobs', from: 'data', topics: ['usage'] },
        source: outboxClient.client,
        verifier: trust.verifier('data'),
        handle: handleEvent,
      });
      stops.push(() => consumer.stop());
      const bytes = await startBytes(context, {
        listen: config.HTTP_LISTEN,
        trust: trust.server(),
        maxBytes: config.MAX_BLOB_BYTES,
        transfersMax: config.TRANSFERS_MAX,
        idleTimeoutMs: config.IDLE_TIMEOUT_MS,
        drainTimeoutMs: config.DRAIN_TIMEOUT_MS,
      });
      stops.push(() => bytes.stop());
      httpAddress = bytes.address;
      const outbox = readableBy(['finance'], outboxImplementation({ pool, log, signer: trust.signer, appended }));
      const implementations = [blobsImplementation(context), outbox];
      return {
        implementations: implementations as unknown as Implementation[],
        checks: { object_store: probing(store, objectStorage), events: consumer.lag },
        appended,
        leaving: () => bytes.leave(),
        stop: () => stopAll(stops),
        failed: consumer.failed,
      };
    } catch (error) {
      await stopAll(stops).catch(() => {});
      throw error;
    }
  };
  const running = await startService('blobs', config, migrations, overrides, build, { bus: true });
  return { ...running, httpAddress };
}

function addressOf(config: BlobsConfig): { address: string } {
  if (config.DATA_ADDRESS === undefined)
    throw new ConfigError('The configuration is wrong:\n  DATA_ADDRESS: is needed');
  return { address: config.DATA_ADDRESS };
}

function probing(store: ObjectStore, storage: StorageMonitor): Check {
  const probe = cachedFor(probeEveryMs, () => store.probe());
  return async () => {
    await probe().catch((error: unknown) => {
      if (!isStorageFull(error)) throw error;
    });
    return storage.finding();
  };
}
