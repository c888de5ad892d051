import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { dataDefinition, startData } from '@granary/data/service';
import { financeConfig } from '@granary/finance/config';
import { startFinance } from '@granary/finance/service';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { paymentsConfig } from '@granary/payments/config';
import { paymentsDefinition, startPayments } from '@granary/payments/service';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { readConfig, type Environment } from '@granary/shared/config';
import { targetOf, type ServiceTarget, type Target } from '@granary/shared/grpc/client';
import type { ServiceDefinition } from '@granary/shared/rpc/types';
import { stopAll, type Running } from '@granary/shared/service/lifecycle';
import type { Logger } from '@granary/shared/logger';
import type { RunningService } from '@granary/shared/service/start';
import { tasksConfig } from '@granary/tasks/config';
import { startTasks } from '@granary/tasks/service';

/** The services that have a database, in the order in which they can start. */
export const databaseServices = ['payments', 'data', 'blobs', 'finance', 'tasks'] as const;
export type DatabaseService = (typeof databaseServices)[number];

export interface ConstellationOptions {
  /** Where each service finds its own database. */
  databaseUrls: Record<DatabaseService, string>;
  /** Holds objects, skills documents and the seed of the wallets. */
  directory: string;
  host: string;
  /** 0 for any free port. */
  port: number;
  operatorKey: string;
  /** From which the services derive those with which they sign their calls; over the byte hop they always do. */
  internalSecret: string;
  /** `direct`: callers call handlers. `wire`: over gRPC on loopback, as between processes. */
  transport: 'direct' | 'wire';
  /** Each service gets a child that names it. */
  log: Logger;
  /** Settings for all services, by the names of their environment: each takes those that it knows. */
  environment?: Environment;
  /** Settings of single services beyond these, by the names of their environment. */
  settings?: Partial<Record<DatabaseService | 'gateway', Record<string, string>>>;
}

export interface Constellation extends Running {
  url: string;
  port: number;
}

/** All six services in this process. Stops in reverse order. */
export async function startConstellation(options: ConstellationOptions): Promise<Constellation> {
  const { log, transport, directory, environment } = options;
  await mkdir(directory, { recursive: true });
  const stops: Array<() => Promise<void>> = [];
  let url: string | undefined;
  const overrides = (service: string) => ({ log: log.child({ service }), listen: transport === 'wire' });
  const common = (service: DatabaseService) => ({
    ...environment,
    DATABASE_URL: options.databaseUrls[service],
    LISTEN: '127.0.0.1:0',
    INTERNAL_SECRET: options.internalSecret,
    ...options.settings?.[service],
  });
  const where = (service: RunningService): ServiceTarget =>
    service.address === undefined ? { implementations: service.implementations } : { address: service.address };
  const target = <D extends ServiceDefinition>(service: RunningService, definition: D): Target<D> =>
    targetOf(where(service), definition);
  const started = <S extends RunningService>(service: S): S => {
    stops.push(() => service.stop());
    return service;
  };

  try {
    const payments = started(
      await startPayments(readConfig(paymentsConfig, common('payments')), overrides('payments')),
    );
    const data = started(
      await startData(
        readConfig(dataConfig, {
          SKILLS_DIRECTORY: join(directory, 'skills'),
          DATABASE_DIRECTORY: directory,
          ...common('data'),
        }),
        {
          ...overrides('data'),
          publicUrl: () => environment?.PUBLIC_URL ?? url,
        },
      ),
    );
    const dataOutbox = target(data, outboxDefinition);
    const blobs = started(
      await startBlobs(
        readConfig(blobsConfig, {
          OBJECTS_DIR: join(directory, 'objects'),
          HTTP_LISTEN: '127.0.0.1:0',
          ...common('blobs'),
        }),
        { ...overrides('blobs'), data: target(data, dataDefinition), dataOutbox },
      ),
    );
    const finance = started(
      await startFinance(
        readConfig(financeConfig, { KEY_FILE: join(directory, 'wallet-seed'), ...common('finance') }),
        {
          ...overrides('finance'),
          payments: target(payments, paymentsDefinition),
          dataOutbox,
          blobsOutbox: target(blobs, outboxDefinition),
        },
      ),
    );
    const tasks = started(
      await startTasks(readConfig(tasksConfig, common('tasks')), {
        ...overrides('tasks'),
        data: target(data, dataDefinition),
        dataOutbox,
      }),
    );
    const gateway = await startGateway(
      readConfig(gatewayConfig, {
        ...environment,
        HOST: options.host,
        PORT: String(options.port),
        OPERATOR_KEY: options.operatorKey,
        INTERNAL_SECRET: options.internalSecret,
        BLOBS_HTTP_ADDRESS: blobs.httpAddress,
        ...options.settings?.gateway,
      }),
      {
        log: log.child({ service: 'gateway' }),
        targets: {
          data: where(data),
          blobs: where(blobs),
          finance: where(finance),
          payments: where(payments),
          tasks: where(tasks),
        },
      },
    );
    url = gateway.url;
    stops.push(() => gateway.stop());
    const { port, leavingMs = 0 } = gateway;
    return { url, port, leavingMs, stop: () => stopAll(stops) };
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}
