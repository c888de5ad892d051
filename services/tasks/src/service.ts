import { join } from 'node:path';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { TasksDefinition } from '@granary/shared/gen/granary/tasks/v1/Tasks';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import { openConsumer } from '@granary/shared/service/open-consumer';
import { RequiredAddresses } from '@granary/shared/service/required-addresses';
import type { Schema } from '@granary/shared/service/schema';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import { tasksAccess } from './access';
import type { TasksConfig } from './config';
import { tasksHandlers } from './handlers';
import { handleJobEvent, tasksTopic } from './tasks';

export const tasksDefinition = loadService<TasksDefinition>('tasks', 'Tasks');
const dataDefinition = loadService<DataDefinition>('data', 'Data');

export interface TasksOverrides extends Overrides {
  data?: Target<DataDefinition>;
  dataOutbox?: Target<OutboxDefinition>;
}

/** The tables of the service's database. */
export const tasksSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true };

/** The tasks service: the state of tickets. Throws a ConfigError when the address of `data` is missing. */
export async function startTasks(config: TasksConfig, overrides: TasksOverrides = {}): Promise<RunningService> {
  const addresses = new RequiredAddresses(config);
  const data = overrides.data ?? addresses.of('DATA_ADDRESS');
  const dataOutbox = overrides.dataOutbox ?? addresses.of('DATA_ADDRESS');
  addresses.assertComplete();
  return startService('tasks', config, tasksSchema, overrides, (context) => assemble(context, { data, dataOutbox }));
}

function assemble(
  context: Context,
  targets: { data: Target<DataDefinition>; dataOutbox: Target<OutboxDefinition> },
): Parts {
  const { pool, log, trust, onStop } = context;
  const data = openClient(dataDefinition, targets.data, {
    log,
    credentials: () => trust.towards('data'),
    repeatable: ['getCommit', 'getJob'],
  });
  onStop(() => data.close());
  const consumer = openConsumer(context, {
    name: 'tasks-data',
    from: 'data',
    topics: [tasksTopic],
    handle: handleJobEvent,
    outbox: targets.dataOutbox,
  });
  const tasks: Implementation<TasksDefinition> = {
    definition: tasksDefinition,
    access: tasksAccess,
    handlers: tasksHandlers({ pool, log, data: data.client }),
  };
  return {
    implementations: [tasks],
    checks: { 'events of data': consumer.lag },
    failed: consumer.failed,
  };
}
