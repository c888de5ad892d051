import { createServer, IncomingMessage, ServerResponse, type Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Express, Request, Response } from 'express';
import { ConnectionAges } from '../admission/connection-ages';
import { Connections } from '../admission/connections';
import { PipelinedRequests } from '../admission/pipelined-requests';
import type { GatewayConfig } from '../config';
import { markExpectsContinue } from './body';
import { newRequestId } from './request-id';

/** How often Node checks whether the head of a request is late. */
const connectionsCheckEveryMs = 1_000;

/** The largest request line and headers together. */
const headerBytesMax = 16 * 1024;

/**
 * The HTTP server of an Express application. Express replaces the prototype of every request and response, which makes
 * V8 run all HTTP code slowly on Node 20 and 22. Here both are created with the prototypes that Express sets.
 */
export function createHttpServer(app: Express, config: GatewayConfig): Server {
  const pipelined = new PipelinedRequests(config.PIPELINED_REQUESTS);
  // Express's own final handler costs more to make than the routing of a request. Nothing gets as far as to this one,
  // because the error handler answers everything.
  const ages = new ConnectionAges(config.CONNECTION_AGE_MS);
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    const answer = ages.next(request.socket);
    if (answer === 'none') return;
    if (answer === 'last') response.setHeader('Connection', 'close');
    app(request as Request, response as Response, () => response.destroy());
  };
  const serve = (request: IncomingMessage, response: ServerResponse) => {
    // A response without a socket waits behind the answer to an earlier pipelined request.
    if (response.socket) handle(request, response);
    else pipelined.admit(request.socket, response, () => handle(request, response));
  };
  const server = createServer(
    {
      ...expressClasses(app),
      maxHeaderSize: headerBytesMax,
      headersTimeout: Math.min(config.HEAD_TIMEOUT_MS, config.UPLOAD_TIMEOUT_MS),
      connectionsCheckingInterval: connectionsCheckEveryMs,
      // Bodies and uploads have timeouts of their own, which answer with an error; imports may take as long as they
      // move.
      requestTimeout: 0,
      keepAliveTimeout: config.KEEP_ALIVE_TIMEOUT_MS,
      requireHostHeader: false,
    },
    serve,
  );
  const refuseConnection = (socket: Socket) =>
    refuse(socket, 503, 'OVERLOADED', 'The server has too many connections; retry later');
  new Connections(config.CONNECTIONS, refuseConnection).watch(server);
  ages.watch(server);
  server.setTimeout(config.IDLE_TIMEOUT_MS);
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    markExpectsContinue(request);
    serve(request, response);
  });
  server.on('checkExpectation', serve);
  server.on('clientError', refuseMalformed);
  server.on('connect', (_, socket: Socket) => refuse(socket, 405, 'METHOD_NOT_ALLOWED', 'CONNECT is not allowed'));
  return server;
}

/**
 * Classes of requests and responses with the prototypes that Express sets. They are subclasses, because V8 then knows
 * how many fields an instance has and allocates them at once, which saves 6 µs per request.
 */
function expressClasses(app: Express) {
  class ExpressRequest extends IncomingMessage {}
  class ExpressResponse extends ServerResponse {}
  Object.setPrototypeOf(ExpressRequest.prototype, app.request);
  Object.setPrototypeOf(ExpressResponse.prototype, app.response);
  app.request = ExpressRequest.prototype as typeof app.request;
  app.response = ExpressResponse.prototype as typeof app.response;
  return { IncomingMessage: ExpressRequest, ServerResponse: ExpressResponse };
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

/** Answers on a connection whose request was not parsed, and closes it. */
function refuse(socket: Socket & { _httpMessage?: unknown }, status: number, code: string, message: string): void {
  // While an answer is being sent, a second one would be read as part of it.
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
