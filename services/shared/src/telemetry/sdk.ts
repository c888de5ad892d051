import type { ContextManager, Span as SdkSpan, Tracer as SdkTracer } from '@opentelemetry/api';
import type { tracing } from '@opentelemetry/sdk-node';
import type { Logger } from '../logger';
import type { Span, SpanKind, Tracer } from './trace';

export interface Sdk {
  tracer: Tracer;
  /** Sends the remaining spans. */
  stop(): Promise<void>;
}

/** Loads the modules of the SDK. */
export const loadSdk = () => import('@opentelemetry/sdk-node');

export interface SdkOptions {
  /** The service name of the spans. */
  name: string;
  log: Logger;
  /** Instead of those that the environment names. */
  exporter?: tracing.SpanExporter;
}

/**
 * The only file that imports the OpenTelemetry SDK, and only when traces are wanted: loading it takes a third of a
 * second and some 30 MB. The SDK reads `OTEL_*` itself. Sampling is decided before a span is created (trace.ts).
 */
export async function openSdk({ name, log, exporter }: SdkOptions): Promise<Sdk> {
  const { NodeSDK, api, resources, tracing } = await loadSdk();
  api.diag.setLogger(
    {
      error: (message) => log.warn({ detail: message }, 'telemetry'),
      warn: (message) => log.warn({ detail: message }, 'telemetry'),
      info: () => {},
      debug: () => {},
      verbose: () => {},
    },
    { logLevel: api.DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  const sdk = new NodeSDK({
    serviceName: name,
    sampler: new tracing.AlwaysOnSampler(),
    // The process detector is left out: it exports the command line, which may contain a key.
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
 * A context manager without a context. The one of the SDK is an AsyncLocalStorage, which on Node 20 makes every promise
 * of the process more expensive from the first batch of spans on.
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
    const tracer = tracers.get(service) ?? trace.getTracer(`granary-${service}`);
    tracers.set(service, tracer);
    return tracer;
  };
  const toSpan = (span: SdkSpan): Span => {
    const { traceId, spanId } = span.spanContext();
    return {
      traceparent: `00-${traceId}-${spanId}-01`,
      set: (attribute, value) => void span.setAttribute(attribute, value),
      rename: (name) => void span.updateName(name),
      end: (error) => {
        if (error !== undefined) {
          // The message of the error is left out: it may contain user input.
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

/** The reason of a ServiceError, the code of an error of Postgres or Node, otherwise the name of the class. */
function errorType(error: unknown): string {
  const { reason, code, name } = (error ?? {}) as { reason?: unknown; code?: unknown; name?: unknown };
  return [reason, code, name].find((each): each is string => typeof each === 'string') ?? 'error';
}
