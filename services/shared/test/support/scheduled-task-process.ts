import { createLogger } from '@granary/shared/logger';
import { startChore } from '@granary/shared/postgres/scheduled-task';
import { createPool } from '@granary/shared/postgres/pool';

/** What a process that a test kills in the middle of a chore is given. */
export interface ChoreProcess {
  url: string;
  name: string;
  leaseMs: number;
}

const { url, name, leaseMs } = JSON.parse(process.argv[2]!) as ChoreProcess;
const log = createLogger('chore', 'silent');
const pool = createPool({ url, size: 2, applicationName: 'chore-process', log });
startChore({
  ...{ pool, log, name, leaseMs, everyMs: 20 },
  // It never comes to its end.
  run: () => {
    process.send!('begun');
    return new Promise(() => {});
  },
});
process.on('disconnect', () => process.exit());
