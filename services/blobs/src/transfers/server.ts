import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { KeyedBudget } from '@granary/shared/concurrency/keyed-budget';
import { ServiceError, unavailable, type StatusName } from '@granary/shared/errors';
import {
  permitErrorHeader,
  permitHeader,
  uploadMethod,
  type TransferPermit,
} from '@granary/shared/trust/transfer-permit';
import { toServiceError } from '@granary/shared/rpc/status';
import { formatHostPort, parseHostPort } from '@granary/shared/host-port';
import { drainHttp } from '@granary/shared/http/drain';
import { serverOptions } from '@granary/shared/trust/tls';
import type { ServerTrust } from '@granary/shared/trust/trust';
import type { BlobsContext } from '../records/context';
import { download } from './download';
import { tracedTransfer } from './tracing';
import { upload } from './upload';

export interface TransferServerOptions {
  /** host:port, 0 for any free port. */
  listen: string;
  trust: ServerTrust;
  maxBytes: number;
  /** Uploads at once, and as many downloads. */
  transfersMax: number;
  idleTimeoutMs: number;
  /** How long transfers in flight may take to finish when it stops. */
  drainTimeoutMs: number;
}

export interface TransferServer {
  /** host:port, with the actual port. */
  address: string;
  /** Has each connection close after its current answer from now on, so that callers choose another replica. */
  leave(): void;
  stop(): Promise<void>;
}

/** Longer than the gateway keeps an idle connection, so that the server never closes one that is about to be used. */
const keepAliveTimeoutMs = 120_000;
/** The share of the transfers in one direction that one application may have. */
const appPercent = 75;
const headersTimeoutMs = 10_000;
/** How long a refused client may go on sending before its connection is closed; it must receive its answer first. */
const lingerMs = 5_000;
const socketBufferBytes = 256 * 1024;

/**
 * The internal HTTP listener: `POST /blob` uploads, `PUT /blob` uploads under an id that the client has chosen, `GET`
 * and `HEAD /blob` download. The permit of the gateway names the operation and the blob; requests without one are
 * refused.
 */
export async function startTransferServer(
  context: BlobsContext,
  options: TransferServerOptions,
): Promise<TransferServer> {
  const { transfersMax: total } = options;
  const slots = () => new KeyedBudget({ total, perKey: { app: Math.ceil((total * appPercent) / 100) } });
  const directions = { upload: slots(), read: slots() };
  let leaving = false;
  const server = createHttpServer(options.trust.tls, (request, response) => {
    if (leaving) response.setHeader('Connection', 'close');
    const requestId = String(request.headers['x-request-id'] ?? '');
    const transfer = async () => {
      const header = request.headers[permitHeader];
      const permit = options.trust.guard.permit(typeof header === 'string' ? header : undefined);
      const slot = directions[permit.op].open({ app: permit.appId });
      try {
        if (!slot.tryTake(1)) throw unavailable('Too many blob transfers at once; retry later');
        const { traceparent } = request.headers;
        const trace = typeof traceparent === 'string' ? traceparent : undefined;
        await tracedTransfer(context, `${request.method} /blob`, trace, (within) =>
          serve(within, options, request, response, { permit, requestId }),
        );
      } finally {
        slot.release();
      }
    };
    transfer().catch((error: unknown) => answerError(context, request, response, error, requestId));
  });
  server.timeout = options.idleTimeoutMs;
  const address = await listen(server, options.listen);
  context.log.info({ address }, 'listening for bytes');
  return {
    address,
    leave: () => {
      leaving = true;
    },
    stop: () => drainHttp(server, options.drainTimeoutMs),
  };
}

/** Gateways take 16 KiB, of which each byte of metadata can become an escape of six. */
const headerBytesMax = 128 * 1024;

function createHttpServer(tls: ServerTrust['tls'], listener: RequestListener): Server {
  const limits = {
    keepAliveTimeout: keepAliveTimeoutMs,
    headersTimeout: headersTimeoutMs,
    // An upload may take any time as long as bytes arrive.
    requestTimeout: 0,
    maxHeaderSize: headerBytesMax,
    highWaterMark: socketBufferBytes,
  };
  if (!tls) return createServer(limits, listener);
  const server = createTlsServer({ ...limits, ...serverOptions(tls) }, listener);
  server.once(
    'close',
    tls.files.watch((pem) => server.setSecureContext(pem)),
  );
  return server;
}

async function serve(
  context: BlobsContext,
  options: TransferServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
  { permit, requestId }: { permit: TransferPermit; requestId: string },
): Promise<void> {
  const { method, url } = request;
  if (url === '/blob' && permit.op === 'upload' && method === uploadMethod(permit)) {
    const bounded = { ...permit, maxBytes: Math.min(permit.maxBytes, options.maxBytes) };
    answerJson(response, 202, await upload(context, request, bounded, requestId));
  } else if (url === '/blob' && (method === 'GET' || method === 'HEAD') && permit.op === 'read') {
    await download(context, request, response, permit);
  } else {
    throw new ServiceError('NOT_FOUND', 'NOT_FOUND', 'There is nothing here');
  }
}

const httpStatus: Partial<Record<StatusName, number>> = {
  INVALID_ARGUMENT: 400,
  UNAUTHENTICATED: 401,
  PERMISSION_DENIED: 403,
  NOT_FOUND: 404,
  FAILED_PRECONDITION: 412,
  RESOURCE_EXHAUSTED: 413,
  OUT_OF_RANGE: 416,
  UNAVAILABLE: 503,
  DEADLINE_EXCEEDED: 504,
  INTERNAL: 500,
};

/** Sends an error in the form from which the gateway rebuilds it. The status is for debugging only. */
function answerError(
  context: BlobsContext,
  request: IncomingMessage,
  response: ServerResponse,
  error: unknown,
  requestId: string,
): void {
  // The client is gone, or an answer has already begun.
  if (response.destroyed || response.headersSent || request.errored) {
    if (!response.writableFinished) response.destroy();
    return;
  }
  const { code, reason, message, details } = toServiceError(error, context.log, requestId, `${request.method} /blob`);
  response.setHeader(permitErrorHeader, `${code} ${reason}`);
  answerJson(response, httpStatus[code] ?? 409, { code, reason, message, details });
  if (request.complete) return;
  request.resume();
  const cutOff = setTimeout(() => request.socket.destroy(), lingerMs);
  request.once('close', () => clearTimeout(cutOff));
}

function answerJson(response: ServerResponse, status: number, body: object): void {
  const text = JSON.stringify(body);
  response
    .writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) })
    .end(text);
}

function listen(server: Server, address: string): Promise<string> {
  const { host, port } = parseHostPort(address);
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => resolve(formatHostPort({ host, port: (server.address() as AddressInfo).port })));
  });
}
