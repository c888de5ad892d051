import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { gatewayConfig } from './config';
import { startGateway } from './service';

const log = createLogger('gateway', process.env['LOG_LEVEL'] ?? 'info');
void runUntilSignalled(log, () => startGateway(readConfig(gatewayConfig, process.env), { log }));
