import { counters, gauges, histograms, type Counter, type Histogram } from '@granary/shared/telemetry/metrics';
import { startRequest } from '@granary/shared/telemetry/trace';
import type { Request, Response } from 'express';
import type { RequestContext } from './request-context';

const requests = counters({
  name: 'granary_http_requests_total',
  help: 'Completed requests to the HTTP API. Status 0: the client disconnected before the answer.',
  labels: ['method', 'route', 'status'],
});
const durations = histograms({
  name: 'granary_http_request_duration_seconds',
  help: 'Duration of requests to the HTTP API, until the answer was sent; of feeds, until they began.',
  labels: ['method', 'route'],
});
const inFlight = gauges({
  name: 'granary_http_in_flight',
  help: 'Requests to the HTTP API in flight.',
  labels: [],
}).with();

interface RouteMetrics {
  duration: Histogram;
  byStatus: Map<number, Counter>;
}

/** The label of requests that no route has answered: paths that are not there must not each become a series. */
const noRoute = 'none';
const methods = new Map(
  ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].map((method) => [
    method,
    new Map<string, RouteMetrics>(),
  ]),
);
const otherMethods = new Map<string, RouteMetrics>();

function metricsOf(method: string, route: string): RouteMetrics {
  const routes = methods.get(method);
  const ofMethod = routes ?? otherMethods;
  let metrics = ofMethod.get(route);
  if (!metrics) {
    metrics = { duration: durations.with(routes ? method : 'other', route), byStatus: new Map() };
    ofMethod.set(route, metrics);
  }
  return metrics;
}

/** Counts a request, and starts its trace if it is sampled. */
export function recordRequestStart(request: Request, context: RequestContext): void {
  inFlight.inc();
  context.span = startRequest(
    () => ({
      service: 'gateway',
      name: request.method,
      kind: 'server',
      attributes: { 'http.request.method': request.method },
    }),
    request.headers['traceparent'],
  );
}

/** The request was answered, or its client has disconnected. */
export function recordRequestEnd(request: Request, response: Response, context: RequestContext): void {
  inFlight.dec();
  const { method } = request;
  const route = context.route ?? noRoute;
  const status = response.headersSent ? response.statusCode : 0;
  const { duration, byStatus } = metricsOf(method, route);
  duration.observe(((context.streamedAtMs ?? performance.now()) - context.startedAtMs) / 1_000);
  let counter = byStatus.get(status);
  if (!counter)
    byStatus.set(status, (counter = requests.with(methods.has(method) ? method : 'other', route, String(status))));
  counter.inc();
  if (context.span) endSpan(context.span, method, context, status);
}

function endSpan(
  span: NonNullable<RequestContext['span']>,
  method: string,
  context: RequestContext,
  status: number,
): void {
  span.set('granary.request_id', context.requestId);
  if (context.route !== undefined) {
    span.rename(`${method} ${context.route}`);
    span.set('http.route', context.route);
  }
  if (status > 0) span.set('http.response.status_code', status);
  span.end(status >= 500 ? { reason: context.code ?? String(status) } : undefined);
}
