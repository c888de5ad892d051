import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { blobsConfig } from '@granary/blobs/config';
import { startBlobs } from '@granary/blobs/service';
import { dataConfig } from '@granary/data/config';
import { dataDefinition, startData } from '@granary/data/service';
import { financeConfig } from '@granary/finance/config';
import { chainDefinition, ledgerDefinition, startFinance } from '@granary/finance/service';
import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { paymentsConfig } from '@granary/payments/config';
import { paymentsDefinition, startPayments } from '@granary/payments/service';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { readConfig } from '@granary/shared/config';
import { unavailable } from '@granary/shared/errors';
import { targetOf } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import type { ServiceDefinition } from '@granary/shared/rpc/types';
import { stopAll } from '@granary/shared/service/lifecycle';
import type { RunningService } from '@granary/shared/service/start';
import { testDatabase } from '@granary/testing/database';
import { limitMs } from '@granary/testing/speed';
import { operatorKey } from '../support/granary';

const log = createLogger('test', process.env['TEST_LOG_LEVEL'] ?? 'silent');
const nowhere = { address: '127.0.0.1:1' };
const common = { INTERNAL_SECRET: 'a secret that the services share with each other' };

/** `answer`: the call has its effect and its answer is lost. `call`: it does not arrive, or later. */
export type Loss = 'answer' | 'call';

type Handlers = Record<string, (request: unknown, call: unknown) => Promise<unknown>>;

function handlersOf(running: RunningService, definition: ServiceDefinition): Handlers {
  const { implementation } = targetOf(running, definition) as { implementation: { handlers: object } };
  return implementation.handlers as Handlers;
}

/**
 * What is lost of calls to data and payments, by the names of their methods; of writes only those that are paid from a
 * hold.
 */
export class Cuts {
  private readonly losses = new Map<string, { loss: Loss; times: number }>();
  /** Calls that have not arrived yet. */
  private readonly late: Array<() => Promise<unknown>> = [];
  readonly counts = new Map<string, number>();

  lose(loss: Loss, methods: readonly string[], times = Infinity): void {
    for (const method of methods) this.losses.set(method, { loss, times });
  }

  heal(): void {
    this.losses.clear();
  }

  /** What came of the calls that arrive only now: an error, or undefined. */
  async arriveLate(): Promise<unknown[]> {
    const results = await Promise.allSettled(this.late.splice(0).map((arrive) => arrive()));
    return results.map((result) => (result.status === 'rejected' ? (result.reason as unknown) : undefined));
  }

  /** Has all calls of a definition go through here. */
  install(handlers: Handlers): void {
    for (const [method, handler] of Object.entries(handlers)) {
      handlers[method] = async (request, call) => {
        this.counts.set(method, (this.counts.get(method) ?? 0) + 1);
        const cut = this.losses.get(method);
        const isFree = (request as { isHeld?: boolean }).isHeld === false;
        if (!cut || cut.times === 0 || isFree) return handler(request, call);
        cut.times -= 1;
        if (cut.loss === 'call') this.late.push(() => handler(request, call));
        else await handler(request, call);
        throw unavailable('The connection was lost');
      };
    }
  }
}

export interface CutServices {
  url: string;
  financeUrl: string;
  dataUrl: string;
  cuts: Cuts;
  /** Lets so much time pass for payments. */
  wait(ms: number): void;
  /** Ends payments and starts it again. */
  restartPayments(): Promise<void>;
  stop(): Promise<void>;
}

/** The services of paid writes in one process, where what they answer each other can be lost. */
export async function startCutServices(): Promise<CutServices> {
  const directory = await mkdtemp(join(tmpdir(), 'granary-cut-'));
  const stops: Array<() => Promise<void>> = [() => rm(directory, { recursive: true, force: true })];
  const started = async <S extends { stop(): Promise<void> }>(starting: Promise<S>): Promise<S> => {
    const service = await starting;
    stops.push(() => service.stop());
    return service;
  };
  const cuts = new Cuts();
  const urlOf = async () => (await testDatabase()).url;
  const data = await started(startDataIn(directory, await urlOf()));
  // Clients use the handlers that there are when they are opened.
  cuts.install(handlersOf(data, dataDefinition));
  const offData = { data: targetOf(data, dataDefinition), dataOutbox: targetOf(data, outboxDefinition) };
  const ofBlobs = { ...common, DATABASE_URL: await urlOf(), OBJECTS_DIR: directory, HTTP_LISTEN: '127.0.0.1:0' };
  const blobs = await started(startBlobs(readConfig(blobsConfig, ofBlobs), { log, listen: false, ...offData }));
  const financeUrl = await urlOf();
  const finance = await started(startFinanceIn(directory, financeUrl));
  const ofPayments = { ...common, DATABASE_URL: await urlOf(), ENCRYPTED_INDEX_UTIA: '1001' };
  let waitedMs = 0;
  const start = () =>
    startPayments(readConfig(paymentsConfig, ofPayments), {
      log,
      listen: false,
      now: () => new Date(Date.now() + waitedMs),
      resolveEveryMs: 50,
      ledger: () => targetOf(finance, ledgerDefinition),
      chain: () => targetOf(finance, chainDefinition),
      data: () => targetOf(data, dataDefinition),
    });
  let payments = await start();
  stops.push(() => payments.stop());
  const { implementations } = payments;
  const ofFirst = handlersOf(payments, paymentsDefinition);
  let current = { ...ofFirst };
  // The gateway outlives it.
  for (const method of Object.keys(ofFirst)) ofFirst[method] = (request, call) => current[method]!(request, call);
  cuts.install(ofFirst);
  const ofGateway = { OPERATOR_KEY: operatorKey, PORT: '0', HOST: '127.0.0.1', BLOBS_HTTP_ADDRESS: blobs.httpAddress };
  const timeouts = { REQUEST_TIMEOUT_MS: String(limitMs(10_000)) };
  const gateway = await started(
    startGateway(readConfig(gatewayConfig, { ...common, ...ofGateway, ...timeouts }), {
      log,
      // Whoever loses something waits until the gateway gives up.
      retries: { forMs: 300, attemptsMin: 3 },
      targets: { data, blobs, finance, payments: { implementations }, tasks: nowhere },
    }),
  );
  return {
    url: gateway.url,
    financeUrl,
    dataUrl: data.databaseUrl,
    cuts,
    wait: (ms) => void (waitedMs += ms),
    restartPayments: async () => {
      await payments.stop();
      payments = await start();
      current = handlersOf(payments, paymentsDefinition);
    },
    stop: () => stopAll(stops),
  };
}

const startDataIn = async (directory: string, DATABASE_URL: string) => {
  const files = { SKILLS_DIRECTORY: join(directory, 'skills'), ENCRYPTION_KEY_FILE: join(directory, 'encryption') };
  const config = readConfig(dataConfig, { ...common, ...files, DATABASE_URL, ENCRYPTION_KEY_FILE_CREATE: 'true' });
  return { ...(await startData(config, { log, listen: false })), databaseUrl: DATABASE_URL };
};

const startFinanceIn = (directory: string, DATABASE_URL: string) => {
  const keyFile = { KEY_FILE: join(directory, 'wallets'), KEY_FILE_CREATE: 'true', SIMULATED_BLOCK_MS: '50' };
  const outboxes = { paymentsOutbox: nowhere, dataOutbox: nowhere, blobsOutbox: nowhere };
  return startFinance(readConfig(financeConfig, { ...common, ...keyFile, DATABASE_URL }), {
    log,
    listen: false,
    ...outboxes,
  });
};
