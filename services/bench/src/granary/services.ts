import path from 'node:path';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { dataDefinition, startData } from '@granary/data/service';
import { financeConfig } from '@granary/finance/config';
import { ledgerDefinition, startFinance } from '@granary/finance/service';
import { paymentsConfig } from '@granary/payments/config';
import { startPayments } from '@granary/payments/service';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { readConfig } from '@granary/shared/config';
import { collectSeldom } from '@granary/shared/service/v8';
import { targetOf } from '@granary/shared/grpc/client';
import { stopAll } from '@granary/shared/service/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { tasksConfig } from '@granary/tasks/config';
import { startTasks } from '@granary/tasks/service';
import { serve } from '../child.mjs';

/**
 * Data and the other services behind the gateway. Each listens for the gateway; they call each other in the process.
 */
const stops = [];

/** `objectStore`: settings of the store for blobs; default: files in `directory`. */
async function start({ databaseUrls, directory, internalSecret, objectStore }) {
  collectSeldom();
  const overrides = { log: createLogger('bench', 'error'), listen: true };
  const address = {};
  const startOne = async (name, startService, schema, settings, targets) => {
    const config = readConfig(schema, {
      DATABASE_URL: databaseUrls[name],
      LISTEN: '127.0.0.1:0',
      INTERNAL_SECRET: internalSecret,
      ...settings,
    });
    const service = await startService(config, { ...overrides, ...targets });
    stops.push(() => service.stop());
    address[name] = service.address;
    return service;
  };
  const inProcess = ({ implementations }, definition) => targetOf({ implementations }, definition);

  let data;
  let finance;
  const toPayments = {
    ledger: () => inProcess(finance, ledgerDefinition),
    data: () => inProcess(data, dataDefinition),
  };
  const payments = await startOne('payments', startPayments, paymentsConfig, {}, toPayments);
  const dataSettings = { SKILLS_DIRECTORY: path.join(directory, 'skills'), DATABASE_POOL_SIZE: '16' };
  data = await startOne('data', startData, dataConfig, dataSettings, {});
  const toData = { data: inProcess(data, dataDefinition), dataOutbox: inProcess(data, outboxDefinition) };
  const blobsSettings = objectStore ?? { OBJECTS_DIR: path.join(directory, 'objects') };
  const blobs = await startOne('blobs', startBlobs, blobsConfig, blobsSettings, toData);
  const toFinance = {
    dataOutbox: toData.dataOutbox,
    paymentsOutbox: inProcess(payments, outboxDefinition),
    blobsOutbox: inProcess(blobs, outboxDefinition),
  };
  const financeSettings = { KEY_FILE: path.join(directory, 'wallet-seed'), KEY_FILE_CREATE: 'true' };
  finance = await startOne('finance', startFinance, financeConfig, financeSettings, toFinance);
  await startOne('tasks', startTasks, tasksConfig, {}, toData);
  return { address, blobsHttpAddress: blobs.httpAddress };
}

serve({ start, stop: () => stopAll(stops) });
