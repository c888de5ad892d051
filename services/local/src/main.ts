import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { localConfig } from './config';
import { startLocal } from './service';

const log = createLogger('local', process.env['LOG_LEVEL'] ?? 'warn');
const start = () => startLocal(readConfig(localConfig, process.env), log, (line) => console.log(line));

void runUntilSignalled(log, start, (message) => console.error(message));
