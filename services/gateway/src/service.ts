import { createServer, IncomingMessage, ServerResponse, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import express, { type Express } from 'express';
import { ConfigError } from '@granary/shared/config';
import { FairLimiter } from '@granary/shared/concurrency/fair-limiter';
import type { ServiceTarget } from '@granary/shared/grpc/client';
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
import { Connections } from './admission/connections';
import { Pipelines } from './admission/pipelines';
import { Transfers } from './admission/transfers';
import { hashKey, keyLookup } from './pipeline/auth';
import { expectsContinue } from './http/body';
import { jsonBytes } from './http/answer';
import { ByteHop } from './blob-proxy/proxy';
import { openClients, type ServiceName } from './clients/clients';
import { Compression } from './http/compression';
import type { GatewayConfig } from './config';
import { createRouter } from './pipeline/dispatch';
import { docsPage } from './docs/page';
import { DocsPages } from './docs/pages';
import { Gate } from './admission/concurrency-limiter';
import { healthOf } from './clients/health';
import { begin, errorHandler, newRequestId, notFoundHandler } from './pipeline/middleware';
import { observeLimits } from './pipeline/request-metrics';
import { openapiDocument } from './openapi/document';
import { overloaded } from './errors/problem';
import type { Context } from './pipeline/route';
import { routes } from './routes/table';
import { AppShares } from './admission/fair-share-limiter';
import { StaticAnswer } from './http/static-answer';

/** What the answers of one app that are worked on may have together, while other apps are there. */
const sharedAnswerBytes = 128 * 1024;

/** What a test or the single process may replace. */
export interface Overrides {
  log?: Logger;
  targets?: Partial<Record<ServiceName, ServiceTarget>>;
}

export interface RunningGateway extends Running {
  url: string;
  port: number;
}

/** How late it may be noticed that the head of a request does not come. */
const connectionsCheckEveryMs = 1_000;

/** The largest request line and headers together. */
const headerBytesMax = 16 * 1024;

/** Starts the gateway. It answers at once, also while the services behind it cannot be reached. */
export async function startGateway(config: GatewayConfig, overrides: Overrides = {}): Promise<RunningGateway> {
  const log = overrides.log ?? createLogger('gateway', config.LOG_LEVEL);
  const trust = openTrust('gateway', config, log);
  const clients = openClients(config, overrides.targets ?? {}, trust, log);
  const byteHop = new ByteHop({
    address: config.BLOBS_HTTP_ADDRESS,
    credentials: trust.towards('blobs'),
    idleTimeoutMs: config.IDLE_TIMEOUT_MS,
  });
  let telemetry: Telemetry | undefined;
  let unobserve = () => {};
  const close = async () => {
    byteHop.close();
    clients.close();
    unobserve();
    await telemetry?.stop();
  };
  let draining = false;
  const compression = new Compression({
    isEnabled: config.COMPRESSION,
    concurrency: config.COMPRESSION_CONCURRENCY,
  });
  const document = openapiDocument(routes);
  const memory = createRequestMemory(config);
  const strangers = limitStrangers(config);
  const context: Context = {
    config,
    clients,
    byteHop,
    log,
    keys: keyLookup(clients.data, strangers),
    apps: new KnownApps(clients.data, strangers),
    addressOf: clientAddress(config.TRUST_PROXY),
    operatorKeyHash: hashKey(config.OPERATOR_KEY),
    memory,
    bodies: new Bodies(memory, config),
    answers: new Answers(memory, config),
    gate: new Gate(config.CONCURRENCY, config.QUEUE_TIMEOUT_MS),
    transfers: new Transfers(config),
    shares: new AppShares({
      share: config.APP_CONCURRENCY,
      answerBytes: sharedAnswerBytes,
      // So that one app cannot fill the gate.
      lineMax: Math.ceil(config.CONCURRENCY / 2),
      timeoutMs: config.QUEUE_TIMEOUT_MS,
    }),
    health: healthOf(clients, config.HEALTH_UNHEALTHY_AFTER_MS),
    isDraining: () => draining,
    compression,
    openapi: new StaticAnswer(compression, jsonBytes(200, Buffer.from(JSON.stringify(document)))),
    docs: new DocsPages(docsPage(document), compression, config),
  };
  unobserve = observeLimits(context);
  const server = createHttpServer(createApp(context), config);
  try {
    telemetry = await startTelemetry('granary-gateway', config, log);
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
      await delay(config.DRAIN_DELAY_MS);
      await drainHttp(server, config.DRAIN_TIMEOUT_MS);
      await close();
    },
  };
}

/** Apps and keys that are not known to exist share a few look-ups at a time, however many are asked for. */
function limitStrangers({ UNKNOWN_LOOKUPS, CONCURRENCY, QUEUE_TIMEOUT_MS }: GatewayConfig): FairLimiter {
  return new FairLimiter(
    {
      concurrency: UNKNOWN_LOOKUPS,
      queueMax: CONCURRENCY,
      queuePerKeyMax: Math.ceil(CONCURRENCY / 2),
      timeoutMs: QUEUE_TIMEOUT_MS,
    },
    overloaded,
  );
}

function createApp(context: Context): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', false);
  trustProxies(app, context.config);
  app.use(begin(context));
  app.use(createRouter(context, routes));
  app.use(notFoundHandler);
  app.use(errorHandler(context.log));
  return app;
}

function trustProxies(app: Express, { TRUST_PROXY }: GatewayConfig): void {
  try {
    app.set('trust proxy', TRUST_PROXY);
  } catch (cause) {
    const problem = `${(cause as Error).message}; true, false, a number of hops, or addresses and networks are expected`;
    throw new ConfigError(`The configuration is wrong:\n  TRUST_PROXY: ${problem}`, { cause });
  }
}

/**
 * The HTTP server of an Express application. Express gives every request and response another prototype, after which
 * V8 runs all HTTP code slowly on Node 20 and 22. Here both are born with the prototypes that Express would give.
 */
export function createHttpServer(app: Express, config: GatewayConfig): Server {
  const pipelines = new Pipelines(config.PIPELINED_REQUESTS);
  const serve = (request: IncomingMessage, response: ServerResponse) => {
    // An answer that has its socket is not behind another one.
    if (response.socket) app(request, response);
    else pipelines.admit(request.socket, response, () => void app(request, response));
  };
  const server = createServer(
    {
      ...bornWith(app),
      maxHeaderSize: headerBytesMax,
      headersTimeout: Math.min(config.HEAD_TIMEOUT_MS, config.UPLOAD_TIMEOUT_MS),
      connectionsCheckingInterval: connectionsCheckEveryMs,
      // Only if ours, which answers and looks more often than every 30 s, has not fired.
      requestTimeout: config.UPLOAD_TIMEOUT_MS + 60_000,
      keepAliveTimeout: config.KEEP_ALIVE_TIMEOUT_MS,
      requireHostHeader: false,
    },
    serve,
  );
  const noRoom = (socket: Socket) =>
    refuse(socket, 503, 'OVERLOADED', 'The server has too many connections; retry later');
  new Connections(config.CONNECTIONS, noRoom).watch(server);
  server.setTimeout(config.IDLE_TIMEOUT_MS);
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    expectsContinue(request);
    serve(request, response);
  });
  server.on('checkExpectation', serve);
  server.on('clientError', refuseMalformed);
  server.on('connect', (_, socket: Socket) => refuse(socket, 405, 'METHOD_NOT_ALLOWED', 'CONNECT is not allowed'));
  return server;
}

/**
 * Classes of requests and responses whose prototypes are the ones that Express gives to what passes through `app`.
 * Subclasses in the plain sense, for from those V8 knows how many fields an instance will have and makes room for them
 * at once, which is worth 6 µs per request.
 */
function bornWith(app: Express) {
  class BornRequest extends IncomingMessage {}
  class BornResponse extends ServerResponse {}
  Object.setPrototypeOf(BornRequest.prototype, app.request);
  Object.setPrototypeOf(BornResponse.prototype, app.response);
  app.request = BornRequest.prototype as typeof app.request;
  app.response = BornResponse.prototype as typeof app.response;
  return { IncomingMessage: BornRequest, ServerResponse: BornResponse };
}

function refuseMalformed(error: Error & { code?: string; rawPacket?: Buffer }, socket: Socket): void {
  switch (error.code) {
    case 'HPE_HEADER_OVERFLOW':
      return refuse(
        socket,
        431,
        'HEADERS_TOO_LARGE',
        `The headers are larger than the limit of ${headerBytesMax} bytes`,
      );
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return refuse(socket, 408, 'REQUEST_TIMEOUT', 'The request took too long to come');
    case 'HPE_INVALID_METHOD':
      if (!/^[!-~]+ [!-~]+ HTTP\/1\.[01]\r\n/.test(error.rawPacket?.toString('latin1') ?? '')) break;
      return refuse(socket, 405, 'METHOD_NOT_ALLOWED', 'There is no such method');
    case 'ECONNRESET':
      socket.destroy();
      return;
    default:
      break;
  }
  refuse(socket, 400, 'MALFORMED_REQUEST', 'This is not HTTP that can be understood');
}

const statusTexts: Record<number, string> = {
  400: 'Bad Request',
  405: 'Method Not Allowed',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
  503: 'Service Unavailable',
};

/** Answers on a connection that never got as far as a request. */
function refuse(socket: Socket & { _httpMessage?: unknown }, status: number, code: string, message: string): void {
  // With an answer under way on the connection, a second one would be read as part of it.
  if (!socket.writable || socket._httpMessage) {
    socket.destroy();
    return;
  }
  const body = JSON.stringify({ error: message, code, details: {} });
  const lines = [
    `HTTP/1.1 ${status} ${statusTexts[status]}`,
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${newRequestId()}`,
    'X-Content-Type-Options: nosniff',
    'Cache-Control: no-store',
    'Connection: close',
  ];
  if (status === 503) lines.push('Retry-After: 1');
  if (status === 405) lines.push('Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS');
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
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
