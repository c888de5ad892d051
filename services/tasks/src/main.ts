import { runService } from '@granary/shared/run-service';
import { tasksConfig } from './config';
import { startTasks } from './service';

void runService('tasks', tasksConfig, process.env, startTasks);
