import type { Socket } from 'node:net';
import type { ErrorRequestHandler, NextFunction, Request, RequestHandler, Response } from 'express';
import { invalid, notFound, ServiceError } from '@granary/shared/errors';
import { namesCurrent } from '@granary/shared/http/etag';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { newId } from '@granary/shared/ids';
import type { Logger } from '@granary/shared/logger';
import { clientKeys } from '../admission/client-budget';
import type { Answer } from '../http/answer';
import { discardRest } from '../http/body';
import { etagOf, type ContentEncoding } from '../http/compression';
import type { GatewayConfig } from '../config';
import { exchangeOf, type Exchange } from './request-context';
import { requestBegins, requestEnds } from './request-metrics';
import { internalProblem, methodNotAllowed, problemOf, problemText } from '../errors/problem';
import type { Context } from './route';

const allowOrigin = 'Access-Control-Allow-Origin';
const allowedHeaders = [
  ...['X-App-Key', 'Authorization', 'X-API-Key', 'X-Agent-Key', 'X-Operator-Key'],
  ...['X-Wallet-Address', 'X-Timestamp', 'X-Signature', 'X-Pubkey'],
  ...['Content-Type', 'Idempotency-Key', 'If-Match', 'If-None-Match', 'If-Modified-Since', 'If-Range', 'Range'],
  ...['X-Blob-Metadata', 'X-Request-Id', 'X-PAYMENT', 'PAYMENT-SIGNATURE'],
  // What tracing libraries, HTTP clients and browsers that bypass their cache add by themselves.
  ...['traceparent', 'tracestate', 'baggage', 'X-Requested-With', 'Cache-Control'],
].join(', ');
const exposedHeaders = [
  ...['X-Request-Id', 'ETag', 'Content-Range', 'Content-Disposition', 'Accept-Ranges', 'Retry-After', 'Allow'],
  ...['Location', 'Idempotency-Replayed', 'Link'],
  ...['X-PAYMENT-RESPONSE', 'PAYMENT-REQUIRED', 'PAYMENT-RESPONSE'],
].join(', ');
const preflightAgeSeconds = '600';

export function newRequestId(): string {
  return newId('');
}

/** The first thing that happens to a request: its id, its log line, the headers that every answer has. */
export function begin(context: Pick<Context, 'config' | 'log' | 'isDraining'>): RequestHandler {
  const cors = corsHeaders(context.config);
  const end = ending(context);
  return (request, response, next) => {
    const given = request.headers['x-request-id'];
    const requestId = typeof given === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(given) ? given : newRequestId();
    const exchange: Exchange = {
      requestId,
      startedAtMs: performance.now(),
      headers: ['X-Request-Id', requestId, 'X-Content-Type-Options', 'nosniff', ...cors(request)],
      gone: new Cancellation(),
      span: undefined,
      route: undefined,
      appId: undefined,
      code: undefined,
      isPrivate: false,
      allowed: undefined,
    };
    response.locals = exchange;
    requestBegins(request, exchange);
    if (context.isDraining()) response.setHeader('Connection', 'close');
    response.once('close', () => end(request, response, exchange));
    if (!response.socket) closeWithConnection(request.socket, response);
    // HTTP/1.1 demands one; Node's own refusal would have no body.
    if (request.httpVersion === '1.1' && request.headers.host === undefined)
      next(invalid('The header Host is missing'));
    else next();
  };
}

/**
 * For the answer to a pipelined request, which has to wait for those before it: if the connection is closed meanwhile,
 * Node says so only to the one whose turn it is.
 */
function closeWithConnection(socket: Socket, response: Response): void {
  const close = () => {
    if (response.socket) return;
    response.destroy();
    response.emit('close');
  };
  socket.setMaxListeners(0).once('close', close);
  response.once('close', () => socket.off('close', close));
}

function corsHeaders({ CORS_ORIGINS }: GatewayConfig): (request: Request) => readonly string[] {
  const exposed = ['Access-Control-Expose-Headers', exposedHeaders];
  if (CORS_ORIGINS === '*') {
    const anyOrigin = [allowOrigin, '*', ...exposed];
    return () => anyOrigin;
  }
  const origins = new Set(CORS_ORIGINS.split(',').map((origin) => origin.trim()));
  return ({ headers: { origin } }) => {
    const allowed = origin !== undefined && origins.has(origin) ? [allowOrigin, origin, ...exposed] : [];
    return ['Vary', 'Origin', ...allowed];
  };
}

/**
 * Sends status and headers. A flat list in one go is what Node takes most cheaply; what was set on the response before
 * stays, unless the list says otherwise.
 */
function writeHead(response: Response, status: number, headers: Record<string, string>): void {
  const list = [...exchangeOf(response).headers];
  for (const name in headers) list.push(name, headers[name]!);
  response.writeHead(status, list);
}

/** For a handler that writes the head of its answer itself: what `writeHead` would add. */
export function setCommonHeaders(response: Response): void {
  const { headers } = exchangeOf(response);
  for (let at = 0; at < headers.length; at += 2) response.setHeader(headers[at]!, headers[at + 1]!);
}

/** Answers OPTIONS, a CORS preflight or not. */
export function answerOptions(response: Response, allowed: readonly string[]): void {
  const methods = allowed.join(', ');
  const cors = {
    'Access-Control-Allow-Methods': methods,
    'Access-Control-Allow-Headers': allowedHeaders,
    'Access-Control-Max-Age': preflightAgeSeconds,
  };
  const { headers } = exchangeOf(response);
  const isOriginAllowed = headers.some((text, at) => at % 2 === 0 && text === allowOrigin);
  writeHead(response, 204, { Allow: methods, ...(isOriginAllowed && cors) });
  response.end();
}

/** The last thing that happens to a request, once its answer is sent or its client has gone. */
function ending({ config, log }: Pick<Context, 'config' | 'log'>) {
  // The line names its fields one by one, and to search it for secrets would be two thirds of its price.
  const lines = log.child({}, { redact: [] });
  // Without a proxy that is trusted, Express would read what others say only to throw it away.
  const ipOf = (request: Request) => (config.TRUST_PROXY === false ? request.socket.remoteAddress : request.ip);
  return (request: Request, response: Response, exchange: Exchange): void => {
    const isCut = !response.writableFinished;
    if (isCut) exchange.gone.abort();
    requestEnds(request, response, exchange);
    if (!lines.isLevelEnabled('info')) return;
    lines.info(
      {
        requestId: exchange.requestId,
        method: request.method,
        route: exchange.route,
        status: response.headersSent ? response.statusCode : undefined,
        code: exchange.code,
        ms: Math.round((performance.now() - exchange.startedAtMs) * 10) / 10,
        app: exchange.appId,
        ip: ipOf(request),
        ...(exchange.span && { traceId: exchange.span.traceparent.slice(3, 35) }),
        ...(isCut && { cut: true }),
      },
      'request',
    );
  };
}

/**
 * Writes an answer, compressed if the client asks for that, or 304 where the client has it already. Throws OVERLOADED
 * when one that the client may not take at once does not fit the memory.
 */
export function send(
  request: Request,
  response: Response,
  answer: Answer,
  { answers, compression }: Pick<Context, 'answers' | 'compression'>,
  address: string,
): void {
  const exchange = exchangeOf(response);
  discardRest(request, response);
  const headers: Record<string, string> = {
    'Cache-Control': exchange.isPrivate ? 'no-store' : 'no-cache',
    ...answer.headers,
  };
  let encoding: ContentEncoding | undefined;
  if (compression.covers(answer)) {
    headers['Vary'] = 'Accept-Encoding';
    encoding = compression.encodingFor(request.headers['accept-encoding']);
    if (encoding !== undefined && headers['ETag'] !== undefined) headers['ETag'] = etagOf(headers['ETag'], encoding);
  }
  if (headers['ETag'] !== undefined && isKnown(request, answer, headers['ETag'])) {
    for (const name of describingBody) delete headers[name];
    writeHead(response, 304, headers);
    response.end();
    return;
  }
  const body = request.method === 'HEAD' ? undefined : answer.body;
  const keys = clientKeys(exchange.appId, address);
  const held = body && answers.hold(request, response, { body, keys, isStreamed: encoding !== undefined });
  if (encoding !== undefined) headers['Content-Encoding'] = encoding;
  else if (answer.status !== 204) headers['Content-Length'] = String(answer.body?.length ?? 0);
  writeHead(response, answer.status, headers);
  if (body === undefined) response.end();
  else if (encoding !== undefined) compression.send(response, body, encoding);
  else if (held) held.send(body);
  else answers.sendSmall(request, response, body, keys);
}

/** Headers that a 304 leaves out, which has no body. */
const describingBody = ['Content-Type', 'Content-Encoding'];

/** Whether a client that reads has what it would be answered. */
function isKnown({ method, headers }: Request, { status }: Answer, etag: string): boolean {
  return status === 200 && (method === 'GET' || method === 'HEAD') && namesCurrent(headers['if-none-match'], etag);
}

/** For what no route has answered. */
export const notFoundHandler: RequestHandler = (_, response) => {
  const allowed = [...(exchangeOf(response).allowed ?? [])];
  if (allowed.length === 0) throw notFound('NOT_FOUND', 'No such route');
  response.setHeader('Allow', allowed.join(', '));
  throw methodNotAllowed(allowed);
};

/** The one place where errors become answers. */
export function errorHandler(log: Logger): ErrorRequestHandler {
  return (error: unknown, request: Request, response: Response, _next: NextFunction) => {
    const exchange = exchangeOf(response);
    const problem = problemOf(error) ?? internalProblem;
    // Once for each request: a service logs what it answers as INTERNAL, with the same request id.
    if (problem.status === 500 && !(error instanceof ServiceError && error.isLogged))
      log.error({ err: error, requestId: exchange.requestId, route: exchange.route }, 'unexpected error');
    exchange.code = problem.code;
    if (response.headersSent || response.destroyed) {
      // Half an answer must not look like a whole one.
      response.destroy();
      return;
    }
    discardRest(request, response);
    const body = Buffer.from(problemText(problem));
    writeHead(response, problem.status, {
      'Content-Type': 'application/json; charset=utf-8',
      'Content-Length': String(body.length),
      'Cache-Control': 'no-store',
      ...problem.headers,
    });
    response.end(request.method === 'HEAD' ? undefined : body);
  };
}
