import type { Sampler } from './settings';

/**
 * Spans of our own, few of them. A request is chosen for tracing where it comes in; from there on its trace context
 * travels with it as text (the `traceparent` of W3C), and what carries none is not traced: no span, no object, no id is
 * made for it, here or in any service behind. Nothing is looked up in an AsyncLocalStorage, which would cost every
 * request, traced or not.
 */
export interface Span {
  /** What is done within this span carries this. */
  readonly traceparent: string;
  set(attribute: string, value: string | number): void;
  rename(name: string): void;
  /** `error`: what the work of the span failed with. */
  end(error?: unknown): void;
}

export type SpanKind = 'server' | 'internal' | 'client' | 'producer' | 'consumer';

export interface SpanStart {
  /** The part of Granary that does the work. */
  service: string;
  name: string;
  kind: SpanKind;
  attributes?: Record<string, string | number>;
}

/** Where a span belongs; ids in hexadecimal digits. */
export interface SpanParent {
  traceId: string;
  spanId: string;
}

export interface Tracer {
  start(span: SpanStart, parent: SpanParent | undefined): Span;
}

export interface Sampling {
  sampler: Sampler;
  /** From 0 to 1. */
  ratio: number;
}

interface Tracing extends Sampling {
  tracer: Tracer;
}

let tracing: Tracing | undefined;

/** Spans are made by this tracer from now on; undefined: none are. There is one for the whole process. */
export function useTracer(next: Tracing | undefined): void {
  tracing = next;
}

/**
 * The span of a request that comes from outside, if it is to be traced. `traceparent` is what the client sent: with the
 * `parentbased_` samplers it decides, with the others only the trace is continued.
 */
export function startRequest(span: () => SpanStart, traceparent: unknown): Span | undefined {
  if (tracing === undefined) return undefined;
  const given = typeof traceparent === 'string' ? parse(traceparent) : undefined;
  return isSampled(tracing, given) ? tracing.tracer.start(span(), given) : undefined;
}

/** A span within one that is traced; undefined when `traceparent` is. */
export function startSpan(span: SpanStart, traceparent: string | undefined): Span | undefined {
  if (tracing === undefined || traceparent === undefined) return undefined;
  const parent = parse(traceparent);
  return parent?.sampled ? tracing.tracer.start(span, parent) : undefined;
}

/** Does `work` in a span, where there is something to be traced; `work` gets what goes on from here. */
export function traced<T>(
  span: SpanStart,
  traceparent: string | undefined,
  work: (traceparent: string | undefined) => Promise<T>,
): Promise<T> {
  const started = startSpan(span, traceparent);
  return started ? ended(started, work(started.traceparent)) : work(traceparent);
}

/** Ends a span with what its work ends with. */
export function ended<T>(span: Span, work: Promise<T>): Promise<T> {
  return allEnded([span], work);
}

/** The same for several spans of one piece of work; there may be none. */
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
  const found = form.exec(traceparent);
  if (!found) return undefined;
  return { traceId: found[1]!, spanId: found[2]!, sampled: (parseInt(found[3]!, 16) & 1) === 1 };
}

function isSampled({ sampler, ratio }: Sampling, given: (SpanParent & { sampled: boolean }) | undefined): boolean {
  switch (sampler) {
    case 'always_on':
      return true;
    case 'always_off':
      return false;
    case 'traceidratio':
      return isWithin(ratio, given);
    case 'parentbased_always_on':
      return given?.sampled ?? true;
    case 'parentbased_always_off':
      return given?.sampled ?? false;
    case 'parentbased_traceidratio':
      return given?.sampled ?? isWithin(ratio, undefined);
  }
}

/** By its id, as everybody decides about a trace that others began; a new one has no id yet. */
function isWithin(ratio: number, given: SpanParent | undefined): boolean {
  if (!given) return Math.random() < ratio;
  // The last seven bytes are the random ones.
  return parseInt(given.traceId.slice(-13), 16) / 2 ** 52 < ratio;
}
