import { startConstellation } from '@granary/local/constellation';
import { createLogger } from '@granary/shared/logger';
import { serve } from '../child.mjs';

/** Granary as `npm start` runs it: all six services in this process. */
let running;

serve({
  start: async ({ databaseUrls, directory, operatorKey, internalSecret }) => {
    running = await startConstellation({
      ...{ databaseUrls, directory, operatorKey, internalSecret },
      ...{ host: '127.0.0.1', port: 0, transport: 'direct', log: createLogger('bench', 'error') },
    });
    return { port: running.port };
  },
  stop: () => running?.stop(),
});
