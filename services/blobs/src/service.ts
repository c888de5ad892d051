import { join } from 'node:path';
import { outboxImplementation } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/concurrency/signal';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Check } from '@granary/shared/health/check';
import { cachedFor } from '@granary/shared/concurrency/ttl-cache';
import type { ObjectStore } from './stores/store';
import { openConsumer } from '@granary/shared/service/open-consumer';
import { RequiredAddresses } from '@granary/shared/service/required-addresses';
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

/** The tables of the service's database. */
export const blobsSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true };
/** The store is probed at most this often. */
const probeEveryMs = 3_000;

/** Starts the blobs service. Throws a ConfigError when the address of `data` is missing. */
export async function startBlobs(config: BlobsConfig, overrides: BlobsOverrides = {}): Promise<RunningBlobs> {
  const addresses = new RequiredAddresses(config);
  const data = overrides.data ?? addresses.of('DATA_ADDRESS');
  const dataOutbox = overrides.dataOutbox ?? addresses.of('DATA_ADDRESS');
  addresses.assertComplete();
  let httpAddress = '';
  const running = await startService('blobs', config, blobsSchema, overrides, async (context) => {
    const assembled = await assemble(context, config, { data, dataOutbox });
    httpAddress = assembled.httpAddress;
    return assembled.parts;
  });
  return { ...running, httpAddress };
}

/** Starts the parts of the service, from the store up to the listener. */
async function assemble(
  service: Context,
  config: BlobsConfig,
  targets: { data: Target<DataDefinition>; dataOutbox: Target<OutboxDefinition> },
): Promise<{ parts: Parts; httpAddress: string }> {
  const { pool, log, trust, onStop } = service;
  const context = await openContext(service, config, targets.data);
  const { store, objectStorage, appended } = context;
  const reconciliation = startReconciliation(context);
  onStop(() => reconciliation.stop());
  const orphans = startOrphanCollection(context, { everyMs: config.SWEEP_EVERY_MS, minAgeMs: config.SWEEP_AGE_MS });
  onStop(() => orphans.stop());
  const consumer = openConsumer(service, {
    name: 'blobs',
    from: 'data',
    topics: ['usage'],
    handle: handleEvent,
    outbox: targets.dataOutbox,
  });
  const transfers = await startTransferServer(context, {
    listen: config.HTTP_LISTEN,
    trust: trust.server(),
    maxBytes: config.MAX_BLOB_BYTES,
    transfersMax: config.TRANSFERS_MAX,
    idleTimeoutMs: config.IDLE_TIMEOUT_MS,
    drainTimeoutMs: config.DRAIN_TIMEOUT_MS,
  });
  onStop(() => transfers.stop());
  const outbox = readableBy(['finance'], outboxImplementation({ pool, log, signer: trust.signer, appended }));
  const parts: Parts = {
    implementations: [blobsImplementation(context), outbox],
    checks: { object_store: probing(store, objectStorage), events: consumer.lag },
    appended,
    leaving: () => transfers.leave(),
    failed: consumer.failed,
  };
  return { parts, httpAddress: transfers.address };
}

/** The object store and the client of `data`, with what the parts share. */
async function openContext(
  { pool, log, trust, clock, onStop, wait }: Context,
  config: BlobsConfig,
  data: Target<DataDefinition>,
): Promise<BlobsContext> {
  const owner = await installationId(pool);
  const store = await wait(() => openObjectStore(config, owner));
  onStop(() => store.close?.());
  const objectStorage = new StorageMonitor({
    service: 'blobs',
    volume: 'objects',
    log,
    probe: () => store.probe(),
    directory: config.OBJECT_STORE === 'files' ? config.OBJECTS_DIR : undefined,
    reserveBytes: config.DISK_RESERVE_BYTES,
  });
  onStop(() => objectStorage.stop());
  const dataClient = openClient(loadService<DataDefinition>('data', 'Data'), data, {
    log,
    credentials: () => trust.towards('data'),
    // The writes carry a ticket, so a repeat changes nothing more.
    repeatable: ['commitUpload', 'commitUploadUnderId', 'store', 'getCommit'],
  });
  onStop(() => dataClient.close());
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

function probing(store: ObjectStore, storage: StorageMonitor): Check {
  const probe = cachedFor(probeEveryMs, () => store.probe());
  return async () => {
    await probe().catch((error: unknown) => {
      if (!isStorageFull(error)) throw error;
    });
    return storage.finding();
  };
}
