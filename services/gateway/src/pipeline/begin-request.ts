import type { Socket } from 'node:net';
import type { Request, RequestHandler, Response } from 'express';
import { Cancellation } from '@granary/shared/concurrency/cancellation';
import { invalid } from '@granary/shared/errors';
import { newRequestId } from '../http/request-id';
import { corsHeaders } from './cors';
import type { GatewayContext } from './gateway-context';
import type { RequestContext } from './request-context';
import { recordRequestEnd, recordRequestStart } from './request-metrics';

/** The first middleware: creates the context of the request, and logs and counts the request once it has ended. */
export function beginRequest(gateway: Pick<GatewayContext, 'config' | 'log' | 'isDraining'>): RequestHandler {
  const cors = corsHeaders(gateway.config);
  const endRequest = requestEnd(gateway);
  return (request, response, next) => {
    const header = request.headers['x-request-id'];
    const requestId = typeof header === 'string' && /^[A-Za-z0-9._-]{1,64}$/.test(header) ? header : newRequestId();
    const context: RequestContext = {
      requestId,
      startedAtMs: performance.now(),
      streamedAtMs: undefined,
      headers: ['X-Request-Id', requestId, 'X-Content-Type-Options', 'nosniff', ...cors(request)],
      cancellation: new Cancellation(),
      span: undefined,
      route: undefined,
      appId: undefined,
      code: undefined,
      isPrivate: false,
      allowedMethods: undefined,
    };
    response.locals = context;
    recordRequestStart(request, context);
    if (gateway.isDraining()) response.setHeader('Connection', 'close');
    // Emitted once; to listen `once` costs more.
    response.on('close', () => endRequest(request, response, context));
    if (!response.socket) closeWithConnection(request.socket, response);
    // HTTP/1.1 requires the header. Node's own check is off, because its answer has no body.
    if (request.httpVersion === '1.1' && request.headers.host === undefined)
      next(invalid('The header Host is missing'));
    else next();
  };
}

/**
 * Closes the response to a pipelined request with its connection. Such a response gets its socket after the responses
 * before it, and Node emits `close` only on the response that has the socket.
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

function requestEnd({ config, log }: Pick<GatewayContext, 'config' | 'log'>) {
  // The line names its fields one by one, and a search for secrets would be two thirds of its cost.
  const lines = log.child({}, { redact: [] });
  // Without a trusted proxy, Express would parse forwarded headers only to ignore them.
  const ipOf = (request: Request) => (config.TRUST_PROXY === false ? request.socket.remoteAddress : request.ip);
  return (request: Request, response: Response, context: RequestContext): void => {
    const isCut = !response.writableFinished;
    if (isCut) context.cancellation.abort();
    recordRequestEnd(request, response, context);
    if (!lines.isLevelEnabled('info')) return;
    lines.info(
      {
        requestId: context.requestId,
        method: request.method,
        route: context.route,
        status: response.headersSent ? response.statusCode : undefined,
        code: context.code,
        ms: Math.round((performance.now() - context.startedAtMs) * 10) / 10,
        app: context.appId,
        ip: ipOf(request),
        ...(context.span && { traceId: context.span.traceparent.slice(3, 35) }),
        ...(isCut && { cut: true }),
      },
      'request',
    );
  };
}
