import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs, type RunningBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { dataDefinition, startData } from '@granary/data/service';
import { financeConfig } from '@granary/finance/config';
import { chainDefinition, ledgerDefinition, startFinance } from '@granary/finance/service';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway, type RunningGateway } from '@granary/gateway/service';
import { paymentsConfig } from '@granary/payments/config';
import { startPayments } from '@granary/payments/service';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { readConfig, type Environment } from '@granary/shared/config';
import { unavailable } from '@granary/shared/errors';
import { targetOf, type ServiceTarget, type Target } from '@granary/shared/grpc/client';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import { stopAll, type Running } from '@granary/shared/service/lifecycle';
import type { Logger } from '@granary/shared/logger';
import type { RunningService } from '@granary/shared/service/start';
import { tasksConfig } from '@granary/tasks/config';
import { startTasks } from '@granary/tasks/service';

/** The services that have a database, in the order in which they can start. */
export const databaseServices = ['payments', 'data', 'blobs', 'finance', 'tasks'] as const;
export type DatabaseService = (typeof databaseServices)[number];

export interface ConstellationOptions {
  /** The URL of each service's database. */
  databaseUrls: Record<DatabaseService, string>;
  /** The directory for objects, skills documents and the seed of the wallets. */
  directory: string;
  host: string;
  /** 0 for any free port. */
  port: number;
  operatorKey: string;
  /**
   * The secret from which the services derive the secrets that sign their calls. Calls between gateway and blobs are
   * signed with either transport.
   */
  internalSecret: string;
  /** `direct`: callers call handlers. `wire`: over gRPC on loopback, as between processes. */
  transport: 'direct' | 'wire';
  /** Each service logs to a child that names it. */
  log: Logger;
  /** Settings for all services, by the names of their environment: each reads its own. */
  environment?: Environment;
  /** Settings of single services beyond these, by the names of their environment. */
  settings?: Partial<Record<DatabaseService | 'gateway', Record<string, string>>>;
}

export interface Constellation extends Running {
  url: string;
  port: number;
  failed: Promise<never>;
}

/** Starts all six services in this process. They stop in reverse order; `failed` is that of any of them. */
export async function startConstellation(options: ConstellationOptions): Promise<Constellation> {
  await mkdir(options.directory, { recursive: true });
  const starter = new Starter(options);
  try {
    const { url, port, leavingMs = 0 } = await starter.start();
    const failed = Promise.race(starter.failures);
    failed.catch(() => {});
    return { url, port, leavingMs, stop: () => stopAll(starter.stops), failed };
  } catch (error) {
    await stopAll(starter.stops).catch(() => {});
    throw error;
  }
}

/** Starts the services in the order of their needs and connects them. */
class Starter {
  /** The stop functions of what has been started so far, to be called in reverse order. */
  readonly stops: Array<() => Promise<void>> = [];
  readonly failures: Array<Promise<never>> = [];
  private url: string | undefined;
  private finance: RunningService | undefined;
  private data: RunningService | undefined;

  constructor(private readonly options: ConstellationOptions) {}

  async start(): Promise<RunningGateway> {
    const payments = await this.started(
      startPayments(readConfig(paymentsConfig, this.environmentOf('payments')), {
        ...this.overridesOf('payments'),
        ledger: () => targetOf(whereIs(requireStarted(this.finance)), ledgerDefinition),
        chain: () => targetOf(whereIs(requireStarted(this.finance)), chainDefinition),
        data: () => targetOf(whereIs(requireStarted(this.data)), dataDefinition),
      }),
    );
    const data = await this.started(this.startData());
    this.data = data;
    const blobs = await this.started(this.startBlobs(data));
    const finance = await this.started(this.startFinance({ data, blobs, payments }));
    this.finance = finance;
    const tasks = await this.started(
      startTasks(readConfig(tasksConfig, this.environmentOf('tasks')), {
        ...this.overridesOf('tasks'),
        data: targetOf(whereIs(data), dataDefinition),
        dataOutbox: outboxOf(data),
      }),
    );
    const gateway = await this.started(this.startGateway({ data, blobs, finance, payments, tasks }));
    this.url = gateway.url;
    return gateway;
  }

  private startData(): Promise<RunningService> {
    const { directory, environment } = this.options;
    const config = readConfig(dataConfig, {
      SKILLS_DIRECTORY: join(directory, 'skills'),
      DATABASE_DIRECTORY: directory,
      ENCRYPTION_KEY_FILE: join(directory, 'encryption-seed'),
      ENCRYPTION_KEY_FILE_CREATE: 'true',
      ...this.environmentOf('data'),
    });
    return startData(config, { ...this.overridesOf('data'), publicUrl: () => environment?.PUBLIC_URL ?? this.url });
  }

  private startBlobs(data: RunningService): Promise<RunningBlobs> {
    const config = readConfig(blobsConfig, {
      OBJECTS_DIR: join(this.options.directory, 'objects'),
      HTTP_LISTEN: '127.0.0.1:0',
      ...this.environmentOf('blobs'),
    });
    return startBlobs(config, {
      ...this.overridesOf('blobs'),
      data: targetOf(whereIs(data), dataDefinition),
      dataOutbox: outboxOf(data),
    });
  }

  private startFinance(needed: Record<'data' | 'blobs' | 'payments', RunningService>): Promise<RunningService> {
    const config = readConfig(financeConfig, {
      KEY_FILE: join(this.options.directory, 'wallet-seed'),
      KEY_FILE_CREATE: 'true',
      ...this.environmentOf('finance'),
    });
    return startFinance(config, {
      ...this.overridesOf('finance'),
      paymentsOutbox: outboxOf(needed.payments),
      dataOutbox: outboxOf(needed.data),
      blobsOutbox: outboxOf(needed.blobs),
    });
  }

  private startGateway(
    services: Record<DatabaseService, RunningService> & { blobs: RunningBlobs },
  ): Promise<RunningGateway> {
    const { environment, settings, log, host, port, operatorKey, internalSecret } = this.options;
    const config = readConfig(gatewayConfig, {
      ...environment,
      HOST: host,
      PORT: String(port),
      OPERATOR_KEY: operatorKey,
      INTERNAL_SECRET: internalSecret,
      BLOBS_HTTP_ADDRESS: services.blobs.httpAddress,
      ...settings?.gateway,
    });
    return startGateway(config, {
      log: log.child({ service: 'gateway' }),
      targets: {
        data: whereIs(services.data),
        blobs: whereIs(services.blobs),
        finance: whereIs(services.finance),
        payments: whereIs(services.payments),
        tasks: whereIs(services.tasks),
      },
    });
  }

  private async started<S extends Pick<Running, 'stop' | 'failed'>>(starting: Promise<S>): Promise<S> {
    const service = await starting;
    this.stops.push(() => service.stop());
    if (service.failed) this.failures.push(service.failed);
    return service;
  }

  private overridesOf(service: DatabaseService) {
    const { log, transport } = this.options;
    return { log: log.child({ service }), listen: transport === 'wire' };
  }

  private environmentOf(service: DatabaseService): Environment {
    const { environment, databaseUrls, internalSecret, settings } = this.options;
    return {
      ...environment,
      DATABASE_URL: databaseUrls[service],
      LISTEN: '127.0.0.1:0',
      INTERNAL_SECRET: internalSecret,
      ...settings?.[service],
    };
  }
}

/** Services are called by others that start before them. Throws UNAVAILABLE until then. */
function requireStarted(service: RunningService | undefined): RunningService {
  if (!service) throw unavailable('The service has not started yet');
  return service;
}

const whereIs = (service: RunningService): ServiceTarget =>
  service.address === undefined ? { implementations: service.implementations } : { address: service.address };

const outboxOf = (service: RunningService): Target<OutboxDefinition> => targetOf(whereIs(service), outboxDefinition);
