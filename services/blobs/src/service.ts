import { join } from 'node:path';
import { startConsumer } from '@granary/shared/bus/consumer';
import { outboxDefinition, outboxImplementation } from '@granary/shared/bus/outbox';
import { createSignal } from '@granary/shared/bus/signal';
import { ConfigError } from '@granary/shared/config';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/grpc/protos';
import type { Implementation } from '@granary/shared/grpc/server';
import { healthy, type Check } from '@granary/shared/health';
import { stopAll } from '@granary/shared/lifecycle';
import { openFilesystemStore } from '@granary/shared/objects/filesystem';
import type { ObjectStore } from '@granary/shared/objects/store';
import { startService, type Context, type Overrides, type Parts, type RunningService } from '@granary/shared/service';
import { startBytes } from './bytes';
import type { BlobsConfig } from './config';
import type { BlobsContext } from './context';
import { handleEvent } from './events';
import { blobsImplementation } from './handlers';
import { startSettling } from './settling';

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
/** The disk is not asked more often than this. */
const probeEveryMs = 3_000;

export async function startBlobs(config: BlobsConfig, overrides: BlobsOverrides = {}): Promise<RunningBlobs> {
  const data = overrides.data ?? addressOf(config);
  const dataOutbox = overrides.dataOutbox ?? addressOf(config);
  let httpAddress = '';
  const build = async ({ pool, log }: Context): Promise<Parts> => {
    const stops: Array<() => Promise<void>> = [];
    try {
      const store = await openFilesystemStore(config.OBJECTS_DIR);
      const dataClient = openClient(loadService<DataDefinition>('data', 'Data'), data, {
        log,
        // Both carry a ticket, so repeating them changes nothing more.
        repeatable: ['commitUpload', 'store', 'getCommit'],
      });
      stops.push(async () => dataClient.close());
      const outboxClient = openClient(outboxDefinition, dataOutbox, { log });
      stops.push(async () => outboxClient.close());
      const appended = createSignal();
      const context: BlobsContext = {
        ...{ pool, log, store, appended },
        data: dataClient.client,
        committing: new Set(),
        pendingGraceMs: config.PENDING_GRACE_MS,
      };
      const settling = startSettling(context);
      stops.push(() => settling.stop());
      const consumer = startConsumer({
        ...{ pool, log, name: 'blobs', topics: ['usage'] },
        source: outboxClient.client,
        handle: handleEvent,
      });
      stops.push(() => consumer.stop());
      const bytes = await startBytes(context, {
        listen: config.HTTP_LISTEN,
        secret: config.INTERNAL_SECRET,
        maxBytes: config.MAX_BLOB_BYTES,
        transfersMax: config.TRANSFERS_MAX,
        idleTimeoutMs: config.IDLE_TIMEOUT_MS,
      });
      stops.push(() => bytes.stop());
      httpAddress = bytes.address;
      const implementations = [blobsImplementation(context), outboxImplementation({ pool, log, appended })];
      return {
        implementations: implementations as unknown as Implementation[],
        checks: { object_store: probing(store), events: consumer.lag },
        stop: () => stopAll(stops),
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

function probing(store: ObjectStore): Check {
  let probed: Promise<void> | undefined;
  let probedMs = 0;
  return async () => {
    if (!probed || Date.now() - probedMs > probeEveryMs) {
      probedMs = Date.now();
      probed = store.probe();
    }
    await probed;
    return healthy;
  };
}
