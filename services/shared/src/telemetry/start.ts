import type { Logger } from '../logger';
import { startMetricsServer, type ReadinessCheck } from './metrics-server';
import { openSdk } from './sdk';
import { wantsTraces, type TelemetrySettings } from './settings';
import { useTracer } from './trace';

export interface Telemetry {
  /** host:port of the metrics; absent when they are not served. */
  metricsAddress?: string;
  stop(): Promise<void>;
}

/**
 * Starts the telemetry that the settings ask for: metrics and probes over HTTP, traces to the exporter of `OTEL_*`.
 * `name` is the service name of the traces unless `OTEL_SERVICE_NAME` gives another.
 */
export async function startTelemetry(
  name: string,
  settings: TelemetrySettings,
  log: Logger,
  readiness?: ReadinessCheck,
): Promise<Telemetry> {
  const stops: Array<() => Promise<void>> = [];
  const telemetry: Telemetry = {
    stop: async () => {
      for (const stop of stops) await stop();
    },
  };
  if (settings.METRICS_LISTEN !== undefined) {
    const server = await startMetricsServer(settings.METRICS_LISTEN, readiness);
    stops.push(() => server.stop());
    telemetry.metricsAddress = server.address;
    log.info({ address: server.address }, 'listening for scrapes of metrics');
  }
  if (wantsTraces(settings)) stops.push(await startTracing(name, settings, log));
  return telemetry;
}

async function startTracing(name: string, settings: TelemetrySettings, log: Logger): Promise<() => Promise<void>> {
  const sdk = await openSdk({ name: settings.OTEL_SERVICE_NAME ?? name, log });
  const { OTEL_TRACES_SAMPLER: sampler = 'parentbased_always_on', OTEL_TRACES_SAMPLER_ARG: ratio = 1 } = settings;
  useTracer({ tracer: sdk.tracer, sampler, ratio });
  log.info({ sampler, ratio }, 'requests are traced');
  return async () => {
    useTracer(undefined);
    await sdk.stop();
  };
}
