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
  METRICS_LISTEN: unlessEmpty(hostPort.optional()).describe(
    'host:port of an HTTP listener with `GET /metrics` for Prometheus, and `/livez` and `/readyz` for probes. ' +
      'It is unauthenticated; expose it only on a private network. Each process needs its own. ' +
      "With `npm run stack` this is the gateway's, and the services use the ports after it.",
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: text.describe(
    'Where traces go. It, the next one or `OTEL_TRACES_EXPORTER` turns tracing on.',
  ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: text.describe('Where traces go, with its whole path.'),
  OTEL_TRACES_EXPORTER: text.meta({
    description: '`otlp`, `console` (standard output) or `none`.',
    defaultText: '`otlp`',
  }),
  OTEL_TRACES_SAMPLER: unlessEmpty(z.enum(samplers).default('parentbased_always_on')).describe(
    'Which requests are traced, see below.',
  ),
  OTEL_TRACES_SAMPLER_ARG: unlessEmpty(z.coerce.number().min(0).max(1).default(1)).describe(
    'The fraction of requests that is traced, for the samplers that have a ratio.',
  ),
  OTEL_SERVICE_NAME: text.meta({
    description: 'The service name of the process; `granary` for `npm start`.',
    defaultText: '`granary-<name>`',
  }),
  OTEL_SDK_DISABLED: z.string().default('false').describe('`true` turns tracing off again.'),
};

export const telemetrySchema = z.object(telemetrySettings);
export type TelemetrySettings = Partial<z.infer<typeof telemetrySchema>>;

/** Whether the environment names a destination for traces. */
export function wantsTraces(settings: TelemetrySettings): boolean {
  if (settings.OTEL_SDK_DISABLED?.toLowerCase() === 'true' || settings.OTEL_TRACES_EXPORTER === 'none') return false;
  const { OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT } = settings;
  return [OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT].some(Boolean);
}
