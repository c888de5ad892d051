import { RequiredAddresses } from '@granary/shared/service/required-addresses';
import type { BlobsDefinition } from '@granary/shared/gen/granary/blobs/v1/Blobs';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { HealthDefinition } from '@granary/shared/gen/granary/health/v1/Health';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { TasksDefinition } from '@granary/shared/gen/granary/tasks/v1/Tasks';
import {
  openClient,
  targetOf,
  type ClientOptions,
  type Retries,
  type ServiceTarget,
} from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Client, Methods, ServiceDefinition } from '@granary/shared/rpc/types';
import { healthDefinition } from '@granary/shared/service/health-rpc';
import type { Logger } from '@granary/shared/logger';
import type { Trust } from '@granary/shared/trust/trust';
import type { GatewayConfig } from '../config';

export const serviceNames = ['data', 'blobs', 'finance', 'payments', 'tasks'] as const;
export type ServiceName = (typeof serviceNames)[number];

export interface Clients {
  data: Client<DataDefinition>;
  blobs: Client<BlobsDefinition>;
  finance: Client<FinanceDefinition>;
  payments: Client<PaymentsDefinition>;
  tasks: Client<TasksDefinition>;
  health: Record<ServiceName, Client<HealthDefinition>>;
  close(): void;
}

interface Definitions {
  data: DataDefinition;
  blobs: BlobsDefinition;
  finance: FinanceDefinition;
  payments: PaymentsDefinition;
  tasks: TasksDefinition;
}

/** Names of methods, checked against the proto definitions. */
type MethodNames = { readonly [Service in ServiceName]: ReadonlyArray<keyof Methods<Definitions[Service]> & string> };

/** Reads, and calls that carry a ticket: repeating one has no further effect. */
const repeatable: MethodNames = {
  data: [
    'getApplication',
    'listApplications',
    'verifyKey',
    'useSignature',
    'listKeys',
    'getCollection',
    'listCollections',
    'getAppStats',
    'getCollectionStats',
    'validateDocuments',
    'store',
    'getDocument',
    'changeDocument',
    'listDocuments',
    'readChanges',
    'openFeedToken',
    'findValidKeys',
    'exportPage',
    'createImport',
    'getImport',
    'listImports',
    'importPart',
    'listImportErrors',
    'explainQuery',
    'optimizeCollection',
    'readCollection',
    'createIndex',
    'listIndexes',
    'getIndex',
    'getOperationPrices',
    'rebuildIndex',
    'rotateDataKey',
    'createView',
    'changeView',
    'listViews',
    'getView',
    'refreshView',
    'readView',
    'listQueries',
    'getQuery',
    'runQuery',
    'getSkills',
    'getOpenapi',
    'listDatasets',
    'getDataset',
  ],
  blobs: ['deleteBlob'],
  finance: [
    'getWallet',
    'listWalletEntries',
    'getPayoutInfo',
    'listPayouts',
    'getRetentionCost',
    'listTransactions',
    'listGrants',
    'revokeGrant',
  ],
  payments: [
    'quoteOperation',
    'priceEncryptedIndex',
    'offerRead',
    'checkPayment',
    'grantPayment',
    'reserveSpend',
    'completeSpend',
    'cancelSpend',
    'resolveSpend',
    'verifyPayment',
    'listPaymentKinds',
    'listPaymentNetworks',
  ],
  tasks: ['getTask', 'listTasks'],
};

/** Frequent calls with small messages, multiplexed over the wire. All of them are repeatable. */
const multiplexed: Partial<MethodNames> = {
  data: [
    'verifyKey',
    'getCollection',
    'store',
    'getDocument',
    'changeDocument',
    'listDocuments',
    'readCollection',
    'readView',
    'runQuery',
  ],
  payments: ['offerRead', 'reserveSpend', 'completeSpend', 'cancelSpend'],
  tasks: ['getTask'],
};

/** Opens the clients of all services. Throws a ConfigError that names every address that is missing. */
export function openClients(
  config: GatewayConfig,
  { targets = {}, retries }: { targets?: Partial<Record<ServiceName, ServiceTarget>>; retries?: Retries },
  trust: Trust,
  log: Logger,
): Clients {
  const serviceTargets = findTargets(config, targets);
  const closes: Array<() => void> = [];
  const openWith = <D extends ServiceDefinition>(
    service: ServiceName,
    definition: D,
    options: Pick<ClientOptions, 'repeatable' | 'multiplexed'>,
  ) => {
    const credentials = () => trust.towards(service);
    const mux = { waitingBytesMax: config.CALL_BUFFER_BYTES };
    const all = { log, credentials, mux, ...(retries && { retries }), ...options };
    const opened = openClient(definition, targetOf(serviceTargets[service], definition), all);
    closes.push(() => opened.close());
    return opened.client;
  };
  const open = <D extends ServiceDefinition>(service: ServiceName, definition: D) =>
    openWith(service, definition, { repeatable: repeatable[service], multiplexed: multiplexed[service] ?? [] });
  // Health checks are not retried: they must report a service that cannot be reached.
  const health = (service: ServiceName) => openWith(service, healthDefinition, {});
  return {
    data: open('data', loadService<DataDefinition>('data', 'Data')),
    blobs: open('blobs', loadService<BlobsDefinition>('blobs', 'Blobs')),
    finance: open('finance', loadService<FinanceDefinition>('finance', 'Finance')),
    payments: open('payments', loadService<PaymentsDefinition>('payments', 'Payments')),
    tasks: open('tasks', loadService<TasksDefinition>('tasks', 'Tasks')),
    health: {
      data: health('data'),
      blobs: health('blobs'),
      finance: health('finance'),
      payments: health('payments'),
      tasks: health('tasks'),
    },
    close: () => {
      for (const close of closes) close();
    },
  };
}

function findTargets(
  config: GatewayConfig,
  targets: Partial<Record<ServiceName, ServiceTarget>>,
): Record<ServiceName, ServiceTarget> {
  const addresses = new RequiredAddresses(config);
  const all: Record<ServiceName, ServiceTarget> = {
    data: targets.data ?? addresses.of('DATA_ADDRESS'),
    blobs: targets.blobs ?? addresses.of('BLOBS_ADDRESS'),
    finance: targets.finance ?? addresses.of('FINANCE_ADDRESS'),
    payments: targets.payments ?? addresses.of('PAYMENTS_ADDRESS'),
    tasks: targets.tasks ?? addresses.of('TASKS_ADDRESS'),
  };
  addresses.assertComplete();
  return all;
}
