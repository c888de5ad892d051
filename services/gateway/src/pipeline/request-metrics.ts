import {
  addSource,
  counters,
  gauges,
  histograms,
  type Counter,
  type Histogram,
} from '@granary/shared/telemetry/metrics';
import { startRequest } from '@granary/shared/telemetry/trace';
import type { Request, Response } from 'express';
import type { Exchange } from './request-context';
import type { Context } from './route';

const requests = counters({
  name: 'granary_http_requests_total',
  help: 'Requests to the HTTP API that have ended. Status 0: the client had gone before there was an answer.',
  labels: ['method', 'route', 'status'],
});
const durations = histograms({
  name: 'granary_http_request_duration_seconds',
  help: 'How long requests to the HTTP API took, until the answer had been sent.',
  labels: ['method', 'route'],
});
const inFlight = gauges({
  name: 'granary_http_in_flight',
  help: 'Requests to the HTTP API under way.',
  labels: [],
}).with();

interface RouteMetrics {
  duration: Histogram;
  byStatus: Map<number, Counter>;
}

/** What no route has answered: paths that are not there must not each become a series. */
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

/** A request has come: counts it, and begins its trace if it is to have one. */
export function requestBegins(request: Request, exchange: Exchange): void {
  inFlight.value += 1;
  exchange.span = startRequest(
    () => ({
      service: 'gateway',
      name: request.method,
      kind: 'server',
      attributes: { 'http.request.method': request.method },
    }),
    request.headers['traceparent'],
  );
}

/** It has been answered, or its client has gone. */
export function requestEnds(request: Request, response: Response, exchange: Exchange): void {
  inFlight.value -= 1;
  const { method } = request;
  const route = exchange.route ?? noRoute;
  const status = response.headersSent ? response.statusCode : 0;
  const { duration, byStatus } = metricsOf(method, route);
  duration.observe((performance.now() - exchange.startedAtMs) / 1_000);
  let counter = byStatus.get(status);
  if (!counter)
    byStatus.set(status, (counter = requests.with(methods.has(method) ? method : 'other', route, String(status))));
  counter.add();
  if (exchange.span) endSpan(exchange.span, method, exchange, status);
}

function endSpan(span: NonNullable<Exchange['span']>, method: string, exchange: Exchange, status: number): void {
  span.set('granary.request_id', exchange.requestId);
  if (exchange.route !== undefined) {
    span.rename(`${method} ${exchange.route}`);
    span.set('http.route', exchange.route);
  }
  if (status > 0) span.set('http.response.status_code', status);
  span.end(status >= 500 ? { reason: exchange.code ?? String(status) } : undefined);
}

/** Has gates and budget asked at each scrape, until what it returns is called. */
export function observeLimits({
  gate,
  transfers,
  memory: { budget },
  bodies,
  answers,
}: Pick<Context, 'gate' | 'transfers' | 'memory' | 'bodies' | 'answers'>): () => void {
  return addSource({
    families: [
      { name: 'granary_gate_inside', help: 'Requests that are worked on.', labels: ['gate'], type: 'gauge' },
      { name: 'granary_gate_waiting', help: 'Requests that wait for their turn.', labels: ['gate'], type: 'gauge' },
      { name: 'granary_gate_limit', help: 'Requests that may be worked on at once.', labels: ['gate'], type: 'gauge' },
      {
        name: 'granary_body_budget_used_bytes',
        help: 'Bytes of bodies and large answers that are held.',
        labels: [],
        type: 'gauge',
      },
      {
        name: 'granary_body_budget_limit_bytes',
        help: 'Bytes of bodies and large answers that may be held.',
        labels: [],
        type: 'gauge',
      },
      { name: 'granary_waiting_bodies', help: 'Requests whose body has not arrived.', labels: [], type: 'gauge' },
      { name: 'granary_waiting_bodies_limit', help: 'How many there may be.', labels: [], type: 'gauge' },
      { name: 'granary_unsent_answers', help: 'Answers that clients have not read.', labels: [], type: 'gauge' },
      {
        name: 'granary_slow_clients_total',
        help: 'Bodies and transfers refused, and answers cut, because they were too slow or gave way to others.',
        labels: ['direction', 'reason'],
        type: 'counter',
      },
    ],
    collect: () => {
      const gates = [
        ['requests', gate.counts()],
        ['uploads', transfers.uploadPlaces.counts()],
        ['downloads', transfers.downloadPlaces.counts()],
      ] as const;
      const [bodyCounts, answerCounts] = [bodies.counts(), answers.counts()];
      return {
        granary_gate_inside: gates.map(([name, counts]) => [[name], counts.inside]),
        granary_gate_waiting: gates.map(([name, counts]) => [[name], counts.waiting]),
        granary_gate_limit: gates.map(([name, counts]) => [[name], counts.limit]),
        granary_body_budget_used_bytes: [[[], budget.counts().used]],
        granary_body_budget_limit_bytes: [[[], budget.counts().total]],
        granary_waiting_bodies: [[[], bodyCounts.waiting]],
        granary_waiting_bodies_limit: [[[], bodyCounts.limit]],
        granary_unsent_answers: [[[], answerCounts.unsent]],
        granary_slow_clients_total: [
          [['body', 'too_slow'], bodyCounts.tooSlow],
          [['body', 'evicted'], bodyCounts.evicted],
          [['answer', 'too_slow'], answerCounts.tooSlow],
          [['answer', 'evicted'], answerCounts.evicted],
          [['upload', 'too_slow'], transfers.counts().slowUploads],
          [['upload', 'evicted'], transfers.uploadPlaces.counts().evicted],
          [['download', 'too_slow'], transfers.counts().slowDownloads],
          [['download', 'evicted'], transfers.downloadPlaces.counts().evicted],
        ],
      };
    },
  });
}
