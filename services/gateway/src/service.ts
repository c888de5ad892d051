import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import express, { type Express } from 'express';
import { wrongConfig } from '@granary/shared/config';
import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import { Semaphore } from '@granary/shared/concurrency/semaphore';
import type { Retries, ServiceTarget } from '@granary/shared/grpc/client';
import { drainHttp } from '@granary/shared/http/drain';
import { leavingMs, type Running } from '@granary/shared/service/lifecycle';
import { createLogger, type Logger } from '@granary/shared/logger';
import { startTelemetry, type Telemetry } from '@granary/shared/telemetry/start';
import { openTrust } from '@granary/shared/trust/trust';
import { localUrl } from './http/address';
import { Answers } from './admission/answers';
import { Bodies } from './admission/bodies';
import { clientAddress } from './admission/client-address';
import { createRequestMemory } from './admission/client-budget';
import { KnownApps } from './admission/known-apps';
import { Transfers } from './admission/transfers';
import { hashKey } from './pipeline/auth';
import { AgentSpending } from './spending/agent-spending';
import { AppOwners } from './pipeline/app-owners';
import { PaymentNetworks } from './spending/payment-networks';
import { KeyLookup } from './pipeline/key-lookup';
import { createHttpServer } from './http/server';
import { jsonBytes } from './http/answer';
import { BlobProxy } from './blob-proxy/proxy';
import { KeyWatch } from './clients/key-watch';
import { openClients, type ServiceName } from './clients/clients';
import { Compression } from './http/compression';
import { operatorKeyOf, type GatewayConfig } from './config';
import { addRoutes } from './pipeline/dispatch';
import { docsPage } from './docs/page';
import { DocsPages } from './docs/pages';
import { healthOf } from './clients/health';
import { readinessOf } from './clients/readiness';
import { beginRequest } from './pipeline/begin-request';
import { errorHandler, notFoundHandler } from './pipeline/error-handler';
import { exportLimitMetrics } from './admission/limit-metrics';
import { openapiDocument } from './openapi/document';
import { overloaded } from './errors/problem';
import { Feeds } from './feed/feeds';
import type { GatewayContext } from './pipeline/gateway-context';
import { PendingWrites } from './spending/pending-writes';
import { routes } from './routes/table';
import { FairShareLimiter } from './admission/fair-share-limiter';
import { StaticAnswer } from './http/static-answer';

/** Bytes of the answers to one app that are made at the same time, while other apps are active. */
const sharedAnswerBytes = 128 * 1024;

/** The parts that a test or the single process may replace. */
export interface Overrides {
  log?: Logger;
  targets?: Partial<Record<ServiceName, ServiceTarget>>;
  /** The limits after which a repeated call of a service is given up. */
  retries?: Retries;
}

export interface RunningGateway extends Running {
  url: string;
  port: number;
}

/** Starts the gateway. It answers immediately, even while the services behind it cannot be reached. */
export async function startGateway(config: GatewayConfig, overrides: Overrides = {}): Promise<RunningGateway> {
  const log = overrides.log ?? createLogger('gateway', config.LOG_LEVEL);
  const trust = openTrust('gateway', config, log);
  const clients = openClients(config, overrides, trust, log);
  const blobProxy = new BlobProxy({
    address: config.BLOBS_HTTP_ADDRESS,
    credentials: trust.towards('blobs'),
    idleTimeoutMs: config.IDLE_TIMEOUT_MS,
    log,
  });
  let telemetry: Telemetry | undefined;
  let unobserve = () => {};
  const close = async () => {
    blobProxy.close();
    clients.close();
    unobserve();
    await telemetry?.stop();
  };
  let draining = false;
  const context = createContext(config, { clients, blobProxy, log, isDraining: () => draining });
  const readiness = readinessOf(clients, () => draining);
  unobserve = exportLimitMetrics(context);
  const server = createHttpServer(createApp(context), config);
  try {
    telemetry = await startTelemetry('granary-gateway', config, log, () =>
      server.listening || draining ? readiness() : 'starting',
    );
    await listen(server, config);
  } catch (error) {
    await close();
    throw error;
  }
  const { port } = server.address() as AddressInfo;
  const url = localUrl(config.HOST, port);
  log.info({ url }, 'listening');
  return {
    url,
    port,
    leavingMs: leavingMs(config),
    stop: async () => {
      draining = true;
      context.feeds.stop();
      await delay(config.DRAIN_DELAY_MS);
      await drainHttp(server, config.DRAIN_TIMEOUT_MS);
      context.pendingWrites.stop();
      await close();
    },
  };
}

/** The parts that all requests share: the limits, the caches and the prepared documents. */
function createContext(
  config: GatewayConfig,
  parts: Pick<GatewayContext, 'clients' | 'blobProxy' | 'log' | 'isDraining'>,
): GatewayContext {
  const compression = new Compression({
    isEnabled: config.COMPRESSION,
    concurrency: config.COMPRESSION_CONCURRENCY,
  });
  const document = openapiDocument(routes);
  const memory = createRequestMemory(config);
  const lookups = unknownLookups(config);
  const apps = new KnownApps(parts.clients.data, lookups);
  const keyWatch = new KeyWatch(parts.clients.data, parts.log);
  return {
    ...parts,
    config,
    keys: new KeyLookup(parts.clients.data, lookups),
    owners: new AppOwners(parts.clients.data, lookups, (appId) => apps.has(appId)),
    paymentNetworks: new PaymentNetworks(parts.clients),
    agentSpending: new AgentSpending(parts.clients.payments, config.REQUEST_TIMEOUT_MS),
    // These places are for requests that wait until a block has their payments; the other limits do not count them.
    paymentWaits: new Semaphore(4 * config.CONCURRENCY),
    pendingWrites: new PendingWrites(parts.log),
    apps,
    addressOf: clientAddress(config.TRUST_PROXY),
    operatorKeyHash: hashKey(operatorKeyOf(config)),
    memory,
    bodies: new Bodies(memory, config),
    answers: new Answers(memory, config),
    slots: new Semaphore(config.CONCURRENCY, {
      max: config.CONCURRENCY,
      timeoutMs: config.QUEUE_TIMEOUT_MS,
      refusal: overloaded,
    }),
    transfers: new Transfers(config),
    keyWatch,
    feeds: new Feeds(parts.clients.data, config, keyWatch, parts.log),
    fairShares: new FairShareLimiter({
      fairShare: config.APP_CONCURRENCY,
      answerBytes: sharedAnswerBytes,
      // One app cannot take all slots.
      queueMax: Math.ceil(config.CONCURRENCY / 2),
      timeoutMs: config.QUEUE_TIMEOUT_MS,
    }),
    health: healthOf(parts.clients, config.HEALTH_UNHEALTHY_AFTER_MS),
    compression,
    openapi: new StaticAnswer(compression, jsonBytes(200, Buffer.from(JSON.stringify(document)))),
    docs: new DocsPages(docsPage(document), compression, config),
  };
}

/** Look-ups of apps and keys that are not known to exist: few at a time, in turn for each client address. */
function unknownLookups({ UNKNOWN_LOOKUPS, CONCURRENCY, QUEUE_TIMEOUT_MS }: GatewayConfig): FairScheduler {
  return new FairScheduler({
    concurrency: UNKNOWN_LOOKUPS,
    queueMax: CONCURRENCY,
    queueMaxPerFlow: Math.ceil(CONCURRENCY / 2),
    timeoutMs: QUEUE_TIMEOUT_MS,
    refusal: overloaded,
  });
}

function createApp(context: GatewayContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.enable('case sensitive routing');
  app.set('query parser', false);
  trustProxies(app, context.config);
  app.use(beginRequest(context));
  addRoutes(app, context, routes);
  app.use(notFoundHandler);
  app.use(errorHandler(context.log));
  return app;
}

function trustProxies(app: Express, { TRUST_PROXY }: GatewayConfig): void {
  try {
    app.set('trust proxy', TRUST_PROXY);
  } catch (cause) {
    const problem = `${(cause as Error).message}; true, false, a number of hops, or addresses and networks are expected`;
    throw wrongConfig([['TRUST_PROXY', problem]]);
  }
}

function listen(server: Server, { HOST, PORT }: GatewayConfig): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(PORT, HOST, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
