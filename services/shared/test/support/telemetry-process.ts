import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { telemetrySchema } from '@granary/shared/telemetry/settings';
import { startTelemetry } from '@granary/shared/telemetry/start';
import { startRequest, startSpan } from '@granary/shared/telemetry/trace';

/** The trace of a request in a process with the environment of this one, for telemetry.test.ts. */
export interface Traced {
  /** The traceparents of the span of the request and of one within it. */
  traceparents: Array<string | undefined>;
  isSdkLoaded: boolean;
}

async function run(): Promise<void> {
  const telemetry = await startTelemetry(
    'granary-test',
    readConfig(telemetrySchema, process.env),
    createLogger('test', 'warn'),
  );
  const span = startRequest(() => ({ service: 'gateway', name: 'GET', kind: 'server' }), undefined);
  const within = startSpan({ service: 'data', name: 'commit', kind: 'client' }, span?.traceparent);
  within?.end(Object.assign(new Error('with the text of a user'), { code: '23505' }));
  span?.end();
  await telemetry.stop();
  const traced: Traced = {
    traceparents: [span?.traceparent, within?.traceparent],
    isSdkLoaded: Object.keys(require.cache).some((file) => file.includes('sdk-node')),
  };
  process.send!(traced, () => process.disconnect());
}

void run();
