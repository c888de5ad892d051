import type { ErrorRequestHandler, NextFunction, Request, RequestHandler, Response } from 'express';
import { notFound, ServiceError } from '@granary/shared/errors';
import { shortened } from '@granary/shared/shortened';
import type { Logger } from '@granary/shared/logger';
import { internalProblem, methodNotAllowed, problemOf, problemText } from '../errors/problem';
import { discardUnreadBody } from '../http/body';
import { requestContextOf } from './request-context';
import { writeHead } from './send-answer';

/** Refuses requests that no route has answered: 405 if a route has the path, else 404. */
export const notFoundHandler: RequestHandler = (request, response) => {
  const allowed = [...(requestContextOf(response).allowedMethods ?? [])];
  if (allowed.length === 0) throw notFound('NOT_FOUND', `No such route: ${request.method} ${shownPath(request)}`);
  response.setHeader('Allow', allowed.join(', '));
  throw methodNotAllowed(allowed);
};

const shownPathLengthMax = 200;
/** The path as it was sent, percent-encoded; without the query string, which may hold what is not for logs. */
const shownPath = ({ originalUrl }: Request): string => shortened(originalUrl.split('?')[0]!, shownPathLengthMax);

/** The only place that turns errors into answers. */
export function errorHandler(log: Logger): ErrorRequestHandler {
  return (error: unknown, request: Request, response: Response, _next: NextFunction) => {
    const context = requestContextOf(response);
    const problem = problemOf(error) ?? internalProblem;
    // A service logs what it answers as INTERNAL, with the same request id; each error is logged once.
    if (problem.status === 500 && !(error instanceof ServiceError && error.isLogged))
      log.error({ err: error, requestId: context.requestId, route: context.route }, 'unexpected error');
    context.code = problem.code;
    if (response.headersSent || response.destroyed) {
      // An incomplete answer must not look complete.
      response.destroy();
      return;
    }
    discardUnreadBody(request, response);
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
