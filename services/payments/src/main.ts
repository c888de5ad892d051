import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { paymentsConfig } from './config';
import { startPayments } from './service';

const log = createLogger('payments', process.env.LOG_LEVEL ?? 'info');
void runUntilSignalled(log, () => startPayments(readConfig(paymentsConfig, process.env), { log }));
