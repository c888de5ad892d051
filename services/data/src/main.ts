import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { dataConfig } from './config';
import { startData } from './service';

const log = createLogger('data', process.env['LOG_LEVEL'] ?? 'info');
void runUntilSignalled(log, () => startData(readConfig(dataConfig, process.env), { log }));
