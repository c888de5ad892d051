import { createLogger } from '@granary/shared/logger';
import { loadSdk, openSdk } from '@granary/shared/telemetry/sdk';
import type { Sampler } from '@granary/shared/telemetry/settings';
import { useTracer } from '@granary/shared/telemetry/trace';

export interface SeenSpan {
  name: string;
  /** The service that created it. */
  service: string;
  traceId: string;
  spanId: string;
  parentSpanId: string | undefined;
  attributes: Record<string, unknown>;
  failed: boolean;
}

export interface SpanCollector {
  /** The spans that have ended. */
  spans(): SeenSpan[];
  stop(): Promise<void>;
}

/** Collects the spans of this process in memory. */
export async function collectSpans(sampler: Sampler, ratio = 1): Promise<SpanCollector> {
  const { api, tracing } = await loadSdk();
  const exporter = new tracing.InMemorySpanExporter();
  const sdk = await openSdk({ name: 'granary-test', log: createLogger('test', 'silent'), exporter });
  useTracer({ tracer: sdk.tracer, sampler, ratio });
  return {
    spans: () =>
      exporter.getFinishedSpans().map((span) => ({
        name: span.name,
        service: span.instrumentationScope.name.replace('granary-', ''),
        traceId: span.spanContext().traceId,
        spanId: span.spanContext().spanId,
        parentSpanId: span.parentSpanContext?.spanId,
        attributes: { ...span.attributes },
        failed: span.status.code === api.SpanStatusCode.ERROR,
      })),
    stop: async () => {
      useTracer(undefined);
      await sdk.stop();
    },
  };
}
