import { gatewayConfig } from '@granary/gateway/config';
import { startGateway } from '@granary/gateway/service';
import { readConfig } from '@granary/shared/config';
import { collectSeldom } from '@granary/shared/service/v8';
import { createLogger } from '@granary/shared/logger';
import { serve } from '../child.mjs';

/** The gateway alone. It calls all other services over gRPC, at `address`. */
let running;

serve({
  start: async ({ address, blobsHttpAddress, operatorKey, internalSecret }) => {
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
    running = await startGateway(config, { log: createLogger('bench', 'error') });
    return { port: running.port };
  },
  stop: () => running?.stop(),
});
