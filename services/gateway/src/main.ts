import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { gatewayConfig } from './config';
import { startGateway } from './service';

const config = readConfig(gatewayConfig, process.env);
const log = createLogger('gateway', config.LOG_LEVEL);
void runUntilSignalled(log, () => startGateway(config, { log }));
