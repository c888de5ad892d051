import { z } from 'zod';

/** An empty variable is one that is not set, as OpenTelemetry has it. */
const unlessEmpty = <S extends z.ZodType>(schema: S) =>
  z.preprocess((value) => (value === '' ? undefined : value), schema);
const text = unlessEmpty(z.string().optional());

/** The names that OpenTelemetry gives to ways of choosing what is traced. */
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
 * What every process reads of its environment about what it tells of itself. Nothing is sent anywhere unless an
 * endpoint or an exporter is named; all else that OpenTelemetry knows (`OTEL_EXPORTER_OTLP_HEADERS`, the limits of the
 * batches and so on) is read by its SDK.
 */
export const telemetrySettings = {
  /** host:port of an HTTP listener for Prometheus; absent: none. */
  METRICS_LISTEN: unlessEmpty(
    z
      .string()
      .regex(/^[^:\s]+:\d{1,5}$/, 'host:port is expected')
      .optional(),
  ),
  OTEL_SDK_DISABLED: z.string().default('false'),
  OTEL_SERVICE_NAME: text,
  OTEL_EXPORTER_OTLP_ENDPOINT: text,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text,
  /** As the SDK has it, for example `otlp` or `console`. */
  OTEL_TRACES_EXPORTER: text,
  OTEL_TRACES_SAMPLER: unlessEmpty(z.enum(samplers).default('parentbased_always_on')),
  /** The share of requests that is traced, for the samplers that have a ratio. */
  OTEL_TRACES_SAMPLER_ARG: unlessEmpty(z.coerce.number().min(0).max(1).default(1)),
};

export const telemetrySchema = z.object(telemetrySettings);
export type TelemetrySettings = Partial<z.infer<typeof telemetrySchema>>;

/** Whether the environment says where traces go. */
export function wantsTraces(settings: TelemetrySettings): boolean {
  if (settings.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || settings.OTEL_TRACES_EXPORTER === 'none') return false;
  const { OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = settings;
  return [OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT].some(Boolean);
}
