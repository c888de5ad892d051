import { createLogger } from '@granary/shared/logger';
import { startConstellation, type DatabaseService } from '@granary/local/start/constellation';

export interface GranaryOrders {
  databaseUrls: Record<DatabaseService, string>;
  directory: string;
  operatorKey: string;
}

/** All of Granary in a process to be killed; it answers with its URL. */
process.once('message', (orders: GranaryOrders) => void start(orders));

async function start(orders: GranaryOrders): Promise<void> {
  const log = createLogger('test', 'silent');
  const internalSecret = 'internal-secret-of-the-tests-0123456789';
  const options = { ...orders, internalSecret, host: '127.0.0.1', port: 0, transport: 'direct' as const, log };
  const { url } = await startConstellation(options);
  process.send!(url);
}
