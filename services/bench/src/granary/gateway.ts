import { gatewayConfig } from '@granary/gateway/config';
import { startGateway, type RunningGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { collectSeldom } from '@granary/shared/service/v8';
import { createLogger } from '@granary/shared/logger';
import { serve } from '../child';

/** The gateway alone. It calls all other services over gRPC, at `address`. */
let gateway: RunningGateway | undefined;

interface Start {
  /** The gRPC addresses of the services, by name. */
  address: Record<string, string>;
  blobsHttpAddress: string;
  operatorKey: string;
  internalSecret: string;
}

const calls = {
  start: async ({ address, blobsHttpAddress, operatorKey, internalSecret }: Start) => {
    collectSeldom();
    const services = ['DATA', 'BLOBS', 'FINANCE', 'PAYMENTS', 'TASKS'];
    const addresses = Object.fromEntries(services.map((name) => [`${name}_ADDRESS`, address[name.toLowerCase()]]));
    const config = readConfig(gatewayConfig, {
      ...addresses,
      PORT: '0',
      OPERATOR_KEY: operatorKey,
      INTERNAL_SECRET: internalSecret,
      BLOBS_HTTP_ADDRESS: blobsHttpAddress,
    });
    gateway = await startGateway(config, { log: createLogger('bench', 'error') });
    return { port: gateway.port };
  },
  stop: () => gateway?.stop(),
};

export type GatewayCalls = typeof calls;

serve(calls);
