import { runService } from '@granary/shared/service/run';
import { tasksConfig } from './config';
import { tasksSchema, startTasks } from './service';

void runService('tasks', tasksConfig, process.env, startTasks, tasksSchema);
