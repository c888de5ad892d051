import { gatewayConfig } from '@granary/gateway/config';
import { startGateway, type RunningGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { healthImplementation } from '@granary/shared/service/health-rpc';
import { createLogger } from '@granary/shared/logger';

/** A gateway whose data service is these handlers; other calls fail, and the other services are not there. */
export function startWithData(
  given: Record<string, (request: never) => Promise<object>>,
  settings: Record<string, string> = {},
): Promise<RunningGateway> {
  const config = readConfig(gatewayConfig, {
    PORT: '0',
    OPERATOR_KEY: 'the key of the operator',
    INTERNAL_SECRET: 'a secret that the services share with each other',
    BLOBS_HTTP_ADDRESS: '127.0.0.1:1',
    ...settings,
  });
  const missing = () => Promise.reject(new Error('not expected'));
  const handlers = new Proxy(given, { get: (of, name) => of[String(name)] ?? missing }) as Implementation['handlers'];
  const implementation: Implementation = { definition: loadService<DataDefinition>('data', 'Data'), handlers };
  const data = { implementations: [implementation, healthImplementation({}, 5_000) as unknown as Implementation] };
  const nowhere = { address: '127.0.0.1:1' };
  const targets = { data, blobs: nowhere, finance: nowhere, payments: nowhere, tasks: nowhere };
  return startGateway(config, { log: createLogger('gateway', 'silent'), targets });
}
