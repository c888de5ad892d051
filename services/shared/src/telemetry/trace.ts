import type { Sampler } from './settings';

/**
 * Manual spans (ADR 0011). Sampling is decided once, where a request enters; from there its trace context is passed
 * along explicitly as text (`traceparent` of W3C Trace Context). Work without one is not traced: no span, object or id
 * is created for it, here or in a service behind. There is no AsyncLocalStorage, which would cost every request.
 */
export interface Span {
  /** The trace context for work within this span. */
  readonly traceparent: string;
  set(attribute: string, value: string | number): void;
  rename(name: string): void;
  /** `error`: the error that the work of the span failed with. */
  end(error?: unknown): void;
}

export type SpanKind = 'server' | 'internal' | 'client' | 'producer' | 'consumer';

export interface SpanStart {
  /** The service that does the work. */
  service: string;
  name: string;
  kind: SpanKind;
  attributes?: Record<string, string | number>;
}

/** The parent of a span; ids in hexadecimal digits. */
export interface SpanParent {
  traceId: string;
  spanId: string;
}

export interface Tracer {
  start(span: SpanStart, parent: SpanParent | undefined): Span;
}

export interface Sampling {
  sampler: Sampler;
  /** The share of requests that is traced, from 0 to 1, for the samplers that have a ratio. */
  ratio: number;
}

interface Tracing extends Sampling {
  tracer: Tracer;
}

let tracing: Tracing | undefined;

/** Sets the tracer of the process; undefined turns tracing off. */
export function useTracer(next: Tracing | undefined): void {
  tracing = next;
}

/**
 * The span of a request from outside, if it is sampled. `traceparent` is the header of the client: with a
 * `parentbased_` sampler it decides whether the request is sampled, with the others it only gives the parent.
 */
export function startRequest(span: () => SpanStart, traceparent: unknown): Span | undefined {
  if (tracing === undefined) return undefined;
  const parent = typeof traceparent === 'string' ? parse(traceparent) : undefined;
  return isSampled(tracing, parent) ? tracing.tracer.start(span(), parent) : undefined;
}

/** A child span; undefined when `traceparent` is, or when its trace is not sampled. */
export function startSpan(span: SpanStart, traceparent: string | undefined): Span | undefined {
  if (tracing === undefined || traceparent === undefined) return undefined;
  const parent = parse(traceparent);
  return parent?.sampled ? tracing.tracer.start(span, parent) : undefined;
}

/** Runs `work` in a child span if the trace is sampled; `work` gets the trace context to pass along. */
export function traced<T>(
  span: SpanStart,
  traceparent: string | undefined,
  work: (traceparent: string | undefined) => Promise<T>,
): Promise<T> {
  const started = startSpan(span, traceparent);
  return started ? ended(started, work(started.traceparent)) : work(traceparent);
}

/** Ends a span with the outcome of its work. */
export function ended<T>(span: Span, work: Promise<T>): Promise<T> {
  return allEnded([span], work);
}

/** Ends several spans with the outcome of one piece of work. */
export async function allEnded<T>(spans: ReadonlyArray<Span | undefined>, work: Promise<T>): Promise<T> {
  try {
    const result = await work;
    for (const span of spans) span?.end();
    return result;
  } catch (error) {
    for (const span of spans) span?.end(error);
    throw error;
  }
}

const form = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

function parse(traceparent: string): (SpanParent & { sampled: boolean }) | undefined {
  const match = form.exec(traceparent);
  if (!match) return undefined;
  return { traceId: match[1]!, spanId: match[2]!, sampled: (parseInt(match[3]!, 16) & 1) === 1 };
}

function isSampled({ sampler, ratio }: Sampling, parent: (SpanParent & { sampled: boolean }) | undefined): boolean {
  switch (sampler) {
    case 'always_on':
      return true;
    case 'always_off':
      return false;
    case 'traceidratio':
      return isWithin(ratio, parent);
    case 'parentbased_always_on':
      return parent?.sampled ?? true;
    case 'parentbased_always_off':
      return parent?.sampled ?? false;
    case 'parentbased_traceidratio':
      return parent?.sampled ?? isWithin(ratio, undefined);
  }
}

/** Decides by the trace id, so that all services decide alike about one trace; a new trace has no id yet. */
function isWithin(ratio: number, parent: SpanParent | undefined): boolean {
  if (!parent) return Math.random() < ratio;
  // W3C Trace Context makes the last seven bytes random; 52 bits of them fit into a number.
  return parseInt(parent.traceId.slice(-13), 16) / 2 ** 52 < ratio;
}
