import type { ErrorRequestHandler, NextFunction, Request, RequestHandler, Response } from 'express';
import { invalid, notFound } from '@granary/shared/errors';
import { newId } from '@granary/shared/ids';
import type { Logger } from '@granary/shared/logger';
import type { Answer } from './answer';
import { discardRest, type Budget } from './body';
import type { GatewayConfig } from './config';
import { beginExchange, exchangeOf } from './exchange';
import { internalProblem, methodNotAllowed, problemOf, problemText } from './problem';
import type { Context } from './route';

const allowedHeaders = [
  ...['X-App-Key', 'Authorization', 'X-API-Key', 'X-Agent-Key', 'X-Operator-Key'],
  ...['X-Wallet-Address', 'X-Timestamp', 'X-Signature', 'X-Pubkey'],
  ...['Content-Type', 'Idempotency-Key', 'If-Match', 'If-None-Match', 'If-Range', 'Range'],
  ...['X-Blob-Metadata', 'X-Request-Id', 'X-PAYMENT', 'PAYMENT-SIGNATURE'],
].join(', ');
const exposedHeaders = [
  ...['X-Request-Id', 'ETag', 'Content-Range', 'Content-Disposition', 'Accept-Ranges', 'Retry-After', 'Allow'],
  ...['X-PAYMENT-RESPONSE', 'PAYMENT-REQUIRED', 'PAYMENT-RESPONSE'],
].join(', ');
const preflightAgeSeconds = '600';

export function newRequestId(): string {
  return newId('');
}

/** The first thing that happens to a request: its id, its log line, the headers that every answer has. */
export function begin(context: Pick<Context, 'config' | 'log' | 'isDraining'>): RequestHandler {
  const cors = corsHeaders(context.config);
  return (request, response, next) => {
    const given = request.headers['x-request-id'];
    const requestId = typeof given === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(given) ? given : newRequestId();
    beginExchange(response, {
      requestId,
      startedAtMs: performance.now(),
      isPrivate: false,
      allowed: new Set(),
      releases: [],
    });
    response.setHeader('X-Request-Id', requestId);
    response.setHeader('X-Content-Type-Options', 'nosniff');
    cors(request, response);
    if (context.isDraining()) response.setHeader('Connection', 'close');
    response.once('close', () => finish(request, response, context.log));
    // HTTP/1.1 demands one; Node's own refusal would have no body.
    if (request.httpVersion === '1.1' && request.headers.host === undefined)
      next(invalid('The header Host is missing'));
    else next();
  };
}

function corsHeaders({ CORS_ORIGINS }: GatewayConfig): (request: Request, response: Response) => void {
  if (CORS_ORIGINS === '*') {
    return (_, response) => {
      response.setHeader('Access-Control-Allow-Origin', '*');
      response.setHeader('Access-Control-Expose-Headers', exposedHeaders);
    };
  }
  const origins = new Set(CORS_ORIGINS.split(',').map((origin) => origin.trim()));
  return (request, response) => {
    response.setHeader('Vary', 'Origin');
    const { origin } = request.headers;
    if (origin === undefined || !origins.has(origin)) return;
    response.setHeader('Access-Control-Allow-Origin', origin);
    response.setHeader('Access-Control-Expose-Headers', exposedHeaders);
  };
}

/** Answers OPTIONS, a CORS preflight or not. */
export function answerOptions(response: Response, allowed: readonly string[]): void {
  response.setHeader('Allow', allowed.join(', '));
  if (response.hasHeader('Access-Control-Allow-Origin')) {
    response.setHeader('Access-Control-Allow-Methods', allowed.join(', '));
    response.setHeader('Access-Control-Allow-Headers', allowedHeaders);
    response.setHeader('Access-Control-Max-Age', preflightAgeSeconds);
  }
  response.writeHead(204).end();
}

function finish(request: Request, response: Response, log: Logger): void {
  const exchange = exchangeOf(response);
  for (const release of exchange.releases) release();
  log.info(
    {
      requestId: exchange.requestId,
      method: request.method,
      route: exchange.route,
      status: response.headersSent ? response.statusCode : undefined,
      code: exchange.code,
      ms: Math.round((performance.now() - exchange.startedAtMs) * 10) / 10,
      app: exchange.appId,
      ip: request.ip,
      ...(response.writableFinished ? {} : { cut: true }),
    },
    'request',
  );
}

/** Smaller answers are not worth counting. */
const countedAnswerBytes = 256 * 1024;

/** Writes an answer. Throws OVERLOADED when a large one does not fit the budget. */
export function send(request: Request, response: Response, answer: Answer, budget: Budget): void {
  const exchange = exchangeOf(response);
  const size = answer.body?.length ?? 0;
  discardRest(request, response);
  if (size >= countedAnswerBytes) {
    budget.take(size);
    exchange.releases.push(() => budget.give(size));
  }
  if (answer.status !== 204) response.setHeader('Content-Length', size);
  if (!('Cache-Control' in answer.headers)) {
    response.setHeader('Cache-Control', exchange.isPrivate ? 'no-store' : 'no-cache');
  }
  response.writeHead(answer.status, answer.headers);
  if (request.method === 'HEAD' || answer.body === undefined) response.end();
  else response.end(answer.body);
}

/** For what no route has answered. */
export const notFoundHandler: RequestHandler = (_, response) => {
  const allowed = [...exchangeOf(response).allowed];
  if (allowed.length === 0) throw notFound('NOT_FOUND', 'There is nothing at this path');
  response.setHeader('Allow', allowed.join(', '));
  throw methodNotAllowed(allowed);
};

/** The one place where errors become answers. */
export function errorHandler(log: Logger): ErrorRequestHandler {
  return (error: unknown, request: Request, response: Response, _next: NextFunction) => {
    const exchange = exchangeOf(response);
    let problem = problemOf(error);
    if (!problem) {
      log.error({ err: error, requestId: exchange.requestId, route: exchange.route }, 'unexpected error');
      problem = internalProblem;
    }
    exchange.code = problem.code;
    if (response.headersSent || response.destroyed) {
      // Half an answer must not look like a whole one.
      response.destroy();
      return;
    }
    discardRest(request, response);
    const body = Buffer.from(problemText(problem));
    response.writeHead(problem.status, {
      'Content-Type': 'application/json; charset=utf-8',
      'Content-Length': body.length,
      'Cache-Control': 'no-store',
      ...problem.headers,
    });
    response.end(request.method === 'HEAD' ? undefined : body);
  };
}
