import { createLogger } from '@granary/shared/logger';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { createPool } from '@granary/shared/postgres/pool';

/** The options of a process that a test kills while it runs a task. */
export interface TaskProcess {
  url: string;
  name: string;
  leaseMs: number;
}

const { url, name, leaseMs } = JSON.parse(process.argv[2]!) as TaskProcess;
const log = createLogger('scheduled-task', 'silent');
const pool = createPool({ url, size: 2, applicationName: 'scheduled-task-process', log });
startScheduledTask({
  pool,
  log,
  name,
  leaseMs,
  everyMs: 20,
  // It never ends.
  run: () => {
    process.send!('begun');
    return new Promise(() => {});
  },
});
process.on('disconnect', () => process.exit());
