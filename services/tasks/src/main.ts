import { readConfig } from '@granary/shared/config';
import { runUntilSignalled } from '@granary/shared/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { tasksConfig } from './config';
import { startTasks } from './service';

const log = createLogger('tasks', process.env.LOG_LEVEL ?? 'info');
void runUntilSignalled(log, () => startTasks(readConfig(tasksConfig, process.env), { log }));
