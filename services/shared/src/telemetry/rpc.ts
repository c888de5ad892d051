import { ServiceError } from '../errors';
import { counters, gauges, histograms, type Counter, type Gauge, type Histogram } from './metrics';
import { ended, startSpan } from './trace';

const labels = ['method', 'direction'];
const handled = counters({
  name: 'granary_rpc_requests_total',
  help: 'Completed calls between services.',
  labels: [...labels, 'code'],
});
const durations = histograms({
  name: 'granary_rpc_request_duration_seconds',
  help: 'Duration of calls between services.',
  labels,
});
const inFlight = gauges({ name: 'granary_rpc_in_flight', help: 'Calls between services in flight.', labels });

/** `server`: the handler, also for callers in the same process. `client`: a call over the network, each attempt. */
type Direction = 'server' | 'client';

/** Request metrics of one method. */
export class MethodMetrics {
  private readonly duration: Histogram;
  private readonly inFlight: Gauge;
  private readonly byCode = new Map<string, Counter>();

  constructor(
    private readonly method: string,
    private readonly direction: Direction,
  ) {
    this.duration = durations.with(method, direction);
    this.inFlight = inFlight.with(method, direction);
  }

  /** Returns the argument `beganAtMs` of `end`. */
  begin(): number {
    this.inFlight.inc();
    return performance.now();
  }

  /** `code`: the name of a gRPC status. */
  end(beganAtMs: number, code: string): void {
    this.inFlight.dec();
    this.duration.observe((performance.now() - beganAtMs) / 1_000);
    let counter = this.byCode.get(code);
    if (!counter) this.byCode.set(code, (counter = handled.with(this.method, this.direction, code)));
    counter.inc();
  }
}

const metricsByDirection = { server: new Map<string, MethodMetrics>(), client: new Map<string, MethodMetrics>() };

/** Metrics of the method at a path, `/package.Service/Method`. */
export function methodMetrics(path: string, direction: Direction): MethodMetrics {
  let metrics = metricsByDirection[direction].get(path);
  if (!metrics) metricsByDirection[direction].set(path, (metrics = new MethodMetrics(path.slice(1), direction)));
  return metrics;
}

/** Adds client metrics to a function that sends calls. */
export function measuredCalls<A extends unknown[], T>(
  path: string,
  send: (...args: A) => Promise<T>,
): (...args: A) => Promise<T> {
  const metrics = methodMetrics(path, 'client');
  return async (...args) => {
    const beganAtMs = metrics.begin();
    try {
      const result = await send(...args);
      metrics.end(beganAtMs, 'OK');
      return result;
    } catch (error) {
      metrics.end(beganAtMs, error instanceof ServiceError ? error.code : 'INTERNAL');
      throw error;
    }
  };
}

/** `data` of `/granary.data.v1.Data/Store`. */
const serviceOf = (path: string): string => path.split('.')[1] ?? 'unknown';

/** Runs the handler of a traced call in a span; the call that the handler gets carries that span as its parent. */
export function inSpan<C extends { trace?: string | undefined }, T>(
  path: string,
  call: C,
  handler: (call: C) => Promise<T>,
): Promise<T> {
  if (call.trace === undefined) return handler(call);
  const span = startSpan({ service: serviceOf(path), name: path.slice(1), kind: 'server' }, call.trace);
  return span ? ended(span, handler({ ...call, trace: span.traceparent })) : handler(call);
}
