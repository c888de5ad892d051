import { join } from 'node:path';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import { outboxDefinition, outboxImplementation } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/concurrency/signal';
import { ConfigError } from '@granary/shared/config';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Check } from '@granary/shared/health/check';
import { stopAll } from '@granary/shared/service/lifecycle';
import { cachedFor } from '@granary/shared/concurrency/ttl-cache';
import type { ObjectStore } from './stores/store';
import type { Schema } from '@granary/shared/service/schema';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import { isStorageFull, StorageMonitor } from '@granary/shared/health/storage-monitor';
import { readableBy } from '@granary/shared/bus/subscribers';
import { startTransferServer } from './transfers/server';
import type { BlobsConfig } from './config';
import type { BlobsContext } from './records/context';
import { handleEvent } from './events';
import { blobsImplementation } from './handlers';
import { createStoredUploadBatcher } from './records/stored-uploads';
import { openObjectStore } from './objects/object-store';
import { installationId } from './objects/objects';
import { createRemoval } from './records/removal';
import { startReconciliation } from './maintenance/reconciliation';
import { startOrphanCollection } from './maintenance/orphans';

export interface BlobsOverrides extends Overrides {
  /** Data in the same process, or at another address than the configuration's. */
  data?: Target<DataDefinition>;
  dataOutbox?: Target<OutboxDefinition>;
}

export interface RunningBlobs extends RunningService {
  /** host:port of the internal HTTP listener. */
  httpAddress: string;
}

/** What its database has. */
export const blobsSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true };
/** The store is probed at most this often. */
const probeEveryMs = 3_000;

export async function startBlobs(config: BlobsConfig, overrides: BlobsOverrides = {}): Promise<RunningBlobs> {
  const data = overrides.data ?? addressOf(config);
  const dataOutbox = overrides.dataOutbox ?? addressOf(config);
  let httpAddress = '';
  const build = async (context: Context): Promise<Parts> => {
    const stops: Stops = [];
    try {
      const built = await buildParts(config, { data, dataOutbox }, context, stops);
      httpAddress = built.httpAddress;
      return built.parts;
    } catch (error) {
      await stopAll(stops).catch(() => {});
      throw error;
    }
  };
  const running = await startService('blobs', config, blobsSchema, overrides, build);
  return { ...running, httpAddress };
}

/** What is to be stopped, in reverse order. */
type Stops = Array<() => Promise<void>>;

/** Starts the parts of the service, from the store up to the listener. */
async function buildParts(
  config: BlobsConfig,
  targets: { data: Target<DataDefinition>; dataOutbox: Target<OutboxDefinition> },
  service: Context,
  stops: Stops,
): Promise<{ parts: Parts; httpAddress: string }> {
  const { pool, log, bus, trust } = service;
  const context = await openContext(config, targets.data, service, stops);
  const { store, objectStorage, appended } = context;
  const reconciliation = startReconciliation(context);
  stops.push(() => reconciliation.stop());
  const orphans = startOrphanCollection(context, { everyMs: config.SWEEP_EVERY_MS, minAgeMs: config.SWEEP_AGE_MS });
  stops.push(() => orphans.stop());
  const outboxClient = openClient(outboxDefinition, targets.dataOutbox, {
    log,
    credentials: () => trust.towards('data'),
  });
  stops.push(async () => outboxClient.close());
  const consumer = startConsumer({
    pool,
    log,
    bus,
    name: 'blobs',
    from: 'data',
    topics: ['usage'],
    source: outboxClient.client,
    verifier: trust.verifier('data'),
    handle: handleEvent,
  });
  stops.push(() => consumer.stop());
  const transfers = await startTransferServer(context, {
    listen: config.HTTP_LISTEN,
    trust: trust.server(),
    maxBytes: config.MAX_BLOB_BYTES,
    transfersMax: config.TRANSFERS_MAX,
    idleTimeoutMs: config.IDLE_TIMEOUT_MS,
    drainTimeoutMs: config.DRAIN_TIMEOUT_MS,
  });
  stops.push(() => transfers.stop());
  const outbox = readableBy(['finance'], outboxImplementation({ pool, log, signer: trust.signer, appended }));
  const parts: Parts = {
    implementations: [blobsImplementation(context), outbox],
    checks: { object_store: probing(store, objectStorage), events: consumer.lag },
    appended,
    leaving: () => transfers.leave(),
    stop: () => stopAll(stops),
    failed: consumer.failed,
  };
  return { parts, httpAddress: transfers.address };
}

/** The object store and the client of `data`, with what the parts share. */
async function openContext(
  config: BlobsConfig,
  data: Target<DataDefinition>,
  { pool, log, trust, clock, wait }: Context,
  stops: Stops,
): Promise<BlobsContext> {
  const owner = await installationId(pool);
  const store = await wait(() => openObjectStore(config, owner));
  stops.push(async () => store.close?.());
  const objectStorage = new StorageMonitor({
    service: 'blobs',
    volume: 'objects',
    log,
    probe: () => store.probe(),
    directory: config.OBJECT_STORE === 'files' ? config.OBJECTS_DIR : undefined,
    reserveBytes: config.DISK_RESERVE_BYTES,
  });
  stops.push(() => objectStorage.stop());
  const dataClient = openClient(loadService<DataDefinition>('data', 'Data'), data, {
    log,
    credentials: () => trust.towards('data'),
    // The writes carry a ticket, so a repeat changes nothing more.
    repeatable: ['commitUpload', 'store', 'getCommit'],
  });
  stops.push(async () => dataClient.close());
  return {
    pool,
    log,
    store,
    objectStorage,
    appended: createSignal(),
    clock,
    data: dataClient.client,
    committing: new Set(),
    markStored: createStoredUploadBatcher(pool),
    removeBytes: createRemoval(pool, store),
    pendingGraceMs: config.PENDING_GRACE_MS,
  };
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
