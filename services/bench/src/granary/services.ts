import path from 'node:path';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { dataDefinition, startData } from '@granary/data/service';
import { financeConfig } from '@granary/finance/config';
import { ledgerDefinition, startFinance } from '@granary/finance/service';
import type { DatabaseService } from '@granary/local/start/constellation';
import { paymentsConfig } from '@granary/payments/config';
import { startPayments } from '@granary/payments/service';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { readConfig } from '@granary/shared/config';
import { collectSeldom } from '@granary/shared/service/v8';
import { targetOf, type ServiceTarget } from '@granary/shared/grpc/client';
import { stopAll } from '@granary/shared/service/lifecycle';
import { createLogger } from '@granary/shared/logger';
import type { RunningService } from '@granary/shared/service/start';
import { tasksConfig } from '@granary/tasks/config';
import { startTasks } from '@granary/tasks/service';
import { serve } from '../child';

/**
 * Data and the other services behind the gateway. Each listens for the gateway; they call each other in the process.
 */
const stops: Array<() => Promise<void>> = [];

interface Start {
  databaseUrls: Record<DatabaseService, string>;
  directory: string;
  internalSecret: string;
  /** Settings of the store for blobs; default: files in `directory`. */
  objectStore?: Record<string, string>;
}

/** Returns where the gateway finds the services: the addresses by name, and that of blob transfers. */
async function start({ databaseUrls, directory, internalSecret, objectStore }: Start) {
  collectSeldom();
  const overrides = { log: createLogger('bench', 'error'), listen: true };
  const address: Record<string, string> = {};
  const environmentOf = (name: DatabaseService, settings: Record<string, string> = {}) => ({
    DATABASE_URL: databaseUrls[name],
    LISTEN: '127.0.0.1:0',
    INTERNAL_SECRET: internalSecret,
    ...settings,
  });
  const keep = <S extends RunningService>(name: DatabaseService, service: S): S => {
    stops.push(() => service.stop());
    address[name] = service.address!;
    return service;
  };
  const inProcess = ({ implementations }: RunningService): ServiceTarget => ({ implementations });

  const paymentsConfiguration = readConfig(paymentsConfig, environmentOf('payments'));
  const payments = await startPayments(paymentsConfiguration, {
    ...overrides,
    ledger: () => targetOf(inProcess(finance), ledgerDefinition),
    data: () => targetOf(inProcess(data), dataDefinition),
  });
  keep('payments', payments);
  const dataSettings = { SKILLS_DIRECTORY: path.join(directory, 'skills'), DATABASE_POOL_SIZE: '16' };
  const data = keep('data', await startData(readConfig(dataConfig, environmentOf('data', dataSettings)), overrides));
  const toData = {
    data: targetOf(inProcess(data), dataDefinition),
    dataOutbox: targetOf(inProcess(data), outboxDefinition),
  };
  const blobsSettings = objectStore ?? { OBJECTS_DIR: path.join(directory, 'objects') };
  const blobsConfiguration = readConfig(blobsConfig, environmentOf('blobs', blobsSettings));
  const blobs = keep('blobs', await startBlobs(blobsConfiguration, { ...overrides, ...toData }));
  const financeSettings = { KEY_FILE: path.join(directory, 'wallet-seed'), KEY_FILE_CREATE: 'true' };
  const financeConfiguration = readConfig(financeConfig, environmentOf('finance', financeSettings));
  const finance = await startFinance(financeConfiguration, {
    ...overrides,
    dataOutbox: toData.dataOutbox,
    paymentsOutbox: targetOf(inProcess(payments), outboxDefinition),
    blobsOutbox: targetOf(inProcess(blobs), outboxDefinition),
  });
  keep('finance', finance);
  keep('tasks', await startTasks(readConfig(tasksConfig, environmentOf('tasks')), { ...overrides, ...toData }));
  return { address, blobsHttpAddress: blobs.httpAddress };
}

const calls = { start, stop: () => stopAll(stops) };

export type ServicesCalls = typeof calls;

serve(calls);
