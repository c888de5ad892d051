import type { ContextManager, Span as SdkSpan, Tracer as SdkTracer } from '@opentelemetry/api';
import type { tracing } from '@opentelemetry/sdk-node';
import type { Logger } from '../logger';
import type { Span, SpanKind, Tracer } from './trace';

export interface Sdk {
  tracer: Tracer;
  /** Sends what has not been sent yet. */
  stop(): Promise<void>;
}

export interface SdkOptions {
  /** What the spans are said to come from. */
  name: string;
  log: Logger;
  /** Instead of those that the environment names. */
  exporter?: tracing.SpanExporter;
}

/**
 * The only file that knows the OpenTelemetry SDK. The SDK is loaded when it is asked for and not before: that takes a
 * third of a second and some 30 MB. It reads `OTEL_*` itself; what is sampled was decided before it hears of a span.
 */
export async function openSdk({ name, log, exporter }: SdkOptions): Promise<Sdk> {
  const { NodeSDK, api, resources, tracing } = await import('@opentelemetry/sdk-node');
  api.diag.setLogger(
    {
      error: (message) => log.warn({ said: message }, 'telemetry'),
      warn: (message) => log.warn({ said: message }, 'telemetry'),
      info: () => {},
      debug: () => {},
      verbose: () => {},
    },
    { logLevel: api.DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  const sdk = new NodeSDK({
    serviceName: name,
    sampler: new tracing.AlwaysOnSampler(),
    // Not the one of the process: it tells the command line, in which there may be a key.
    resourceDetectors: [resources.envDetector, resources.hostDetector],
    textMapPropagator: null,
    contextManager: contextless(api),
    instrumentations: [],
    metricReaders: [],
    logRecordProcessors: [],
    ...(exporter && { spanProcessors: [new tracing.SimpleSpanProcessor(exporter)] }),
  });
  sdk.start();
  return {
    tracer: tracerOf(api),
    stop: async () => {
      await sdk.shutdown().catch((error: unknown) => log.warn({ err: error }, 'the last traces were not sent'));
      api.trace.disable();
      api.context.disable();
      api.diag.disable();
    },
  };
}

/**
 * Keeps no context. That of the SDK is an AsyncLocalStorage, which on Node 20 makes every promise of the process dearer
 * from the first batch of spans on.
 */
function contextless({ ROOT_CONTEXT }: typeof import('@opentelemetry/api')): ContextManager {
  const manager: ContextManager = {
    active: () => ROOT_CONTEXT,
    with: (_, work, self, ...args) => work.call(self as ThisParameterType<typeof work>, ...args),
    bind: (_, target) => target,
    enable: () => manager,
    disable: () => manager,
  };
  return manager;
}

function tracerOf(api: typeof import('@opentelemetry/api')): Tracer {
  const { ROOT_CONTEXT, SpanKind: kinds, SpanStatusCode, TraceFlags, trace } = api;
  const kindOf: Record<SpanKind, number> = {
    server: kinds.SERVER,
    internal: kinds.INTERNAL,
    client: kinds.CLIENT,
    producer: kinds.PRODUCER,
    consumer: kinds.CONSUMER,
  };
  const tracers = new Map<string, SdkTracer>();
  const tracerFor = (service: string) => {
    const known = tracers.get(service) ?? trace.getTracer(`granary-${service}`);
    tracers.set(service, known);
    return known;
  };
  const toSpan = (span: SdkSpan): Span => {
    const { traceId, spanId } = span.spanContext();
    return {
      traceparent: `00-${traceId}-${spanId}-01`,
      set: (attribute, value) => void span.setAttribute(attribute, value),
      rename: (name) => void span.updateName(name),
      end: (error) => {
        if (error !== undefined) {
          // No text of an error: it may hold what a user sent.
          span.setStatus({ code: SpanStatusCode.ERROR });
          span.setAttribute('error.type', errorType(error));
        }
        span.end();
      },
    };
  };
  return {
    start: ({ service, name, kind, attributes = {} }, parent) => {
      const context = parent
        ? trace.setSpanContext(ROOT_CONTEXT, {
            traceId: parent.traceId,
            spanId: parent.spanId,
            traceFlags: TraceFlags.SAMPLED,
            isRemote: true,
          })
        : ROOT_CONTEXT;
      return toSpan(tracerFor(service).startSpan(name, { kind: kindOf[kind], attributes }, context));
    },
  };
}

/** What an error is called: the reason of one of ours, the code of one of Postgres or Node, else its class. */
function errorType(error: unknown): string {
  const { reason, code, name } = (error ?? {}) as { reason?: unknown; code?: unknown; name?: unknown };
  return [reason, code, name].find((each): each is string => typeof each === 'string') ?? 'error';
}
