import { z } from 'zod';
import { hostPort } from '../host-port';

/** An empty variable counts as unset, as OpenTelemetry specifies. */
const unlessEmpty = <S extends z.ZodType>(schema: S) =>
  z.preprocess((value) => (value === '' ? undefined : value), schema);
const text = unlessEmpty(z.string().optional());

/** Samplers, by the names of OpenTelemetry. */
export const samplers = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;
export type Sampler = (typeof samplers)[number];

/**
 * The telemetry settings of every process. Nothing is sent unless an endpoint or an exporter is named. The SDK of
 * OpenTelemetry reads its other variables itself (`OTEL_EXPORTER_OTLP_HEADERS`, the limits of batches and so on).
 */
export const telemetrySettings = {
  /** host:port of the HTTP listener for Prometheus; there is none when absent. */
  METRICS_LISTEN: unlessEmpty(hostPort.optional()),
  OTEL_SDK_DISABLED: z.string().default('false'),
  OTEL_SERVICE_NAME: text,
  OTEL_EXPORTER_OTLP_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text,
  /** The exporter of traces by its name in the SDK, for example `otlp` or `console`. */
  OTEL_TRACES_EXPORTER: text,
  OTEL_TRACES_SAMPLER: unlessEmpty(z.enum(samplers).default('parentbased_always_on')),
  /** The share of requests that is traced, for the samplers that have a ratio. */
  OTEL_TRACES_SAMPLER_ARG: unlessEmpty(z.coerce.number().min(0).max(1).default(1)),
};

export const telemetrySchema = z.object(telemetrySettings);
export type TelemetrySettings = Partial<z.infer<typeof telemetrySchema>>;

/** Whether the environment names a destination for traces. */
export function wantsTraces(settings: TelemetrySettings): boolean {
  if (settings.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || settings.OTEL_TRACES_EXPORTER === 'none') return false;
  const { OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = settings;
  return [OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT].some(Boolean);
}
