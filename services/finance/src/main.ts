import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { financeConfig } from './config';
import { startFinance } from './service';

const log = createLogger('finance', process.env.LOG_LEVEL ?? 'info');
void runUntilSignalled(log, () => startFinance(readConfig(financeConfig, process.env), { log }));
