import { join } from 'node:path';
import { startConsumer } from '@granary/shared/bus/start-consumer';
import { outboxDefinition } from '@granary/shared/bus/outbox';
import { ConfigError } from '@granary/shared/config';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { OutboxDefinition } from '@granary/shared/gen/granary/events/v1/Outbox';
import type { TasksDefinition } from '@granary/shared/gen/granary/tasks/v1/Tasks';
import { openClient, type Target } from '@granary/shared/grpc/client';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import type { Schema } from '@granary/shared/service/schema';
import {
  startService,
  type Context,
  type Overrides,
  type Parts,
  type RunningService,
} from '@granary/shared/service/start';
import type { AccessTo } from '@granary/shared/rpc/access';
import type { TasksConfig } from './config';
import { tasksHandlers } from './handlers';
import { handleJobEvent, tasksTopic } from './tasks';

export const tasksDefinition = loadService<TasksDefinition>('tasks', 'Tasks');
const dataDefinition = loadService<DataDefinition>('data', 'Data');

export interface TasksOverrides extends Overrides {
  data?: Target<DataDefinition>;
  dataOutbox?: Target<OutboxDefinition>;
}

/** What its database has. */
export const tasksSchema: Schema = { migrations: join(__dirname, '..', 'migrations'), bus: true };

/** The tasks service: the state of tickets. Throws a ConfigError when the address of `data` is missing. */
export async function startTasks(config: TasksConfig, overrides: TasksOverrides = {}): Promise<RunningService> {
  const data = overrides.data ?? dataAt(config);
  const dataOutbox = overrides.dataOutbox ?? dataAt(config);
  const build = (context: Context) => Promise.resolve(buildTasks(context, data, dataOutbox));
  return startService('tasks', config, tasksSchema, overrides, build);
}

function dataAt(config: TasksConfig): { address: string } {
  if (config.DATA_ADDRESS === undefined)
    throw new ConfigError('The configuration is wrong:\n  DATA_ADDRESS: is missing');
  return { address: config.DATA_ADDRESS };
}

function buildTasks(
  { pool, log, bus, trust }: Context,
  dataTarget: Target<DataDefinition>,
  outboxTarget: Target<OutboxDefinition>,
): Parts {
  const credentials = () => trust.towards('data');
  const data = openClient(dataDefinition, dataTarget, {
    log,
    credentials,
    repeatable: ['getCommit', 'getJob'],
  });
  const outbox = openClient(outboxDefinition, outboxTarget, { log, credentials });
  const consumer = startConsumer({
    pool,
    log,
    bus,
    name: 'tasks-data',
    from: 'data',
    source: outbox.client,
    verifier: trust.verifier('data'),
    topics: [tasksTopic],
    handle: handleJobEvent,
  });
  const tasks: Implementation<TasksDefinition> = {
    definition: tasksDefinition,
    access: { gateway: '*' } satisfies AccessTo<TasksDefinition>,
    handlers: tasksHandlers({ pool, log, data: data.client }),
  };
  return {
    implementations: [tasks],
    checks: { 'events of data': consumer.lag },
    failed: consumer.failed,
    stop: async () => {
      await consumer.stop();
      data.close();
      outbox.close();
    },
  };
}
