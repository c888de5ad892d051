import type { Task } from '@granary/client';
import type { Command } from 'commander';
import { action, type Invocation } from '../session/invocation.ts';
import { printList, printObject } from '../terminal/table.ts';
import { allOf } from '../session/listing.ts';
import { choiceOption, limitOption } from './options.ts';
import { apiPath } from '../session/paths.ts';
import { finishedTask } from './waiting.ts';

interface ListOptions {
  status?: string;
  limit?: number;
}

const statuses = [
  'Pending',
  'PaymentBroadcast',
  'PaymentConfirming',
  'PaymentConfirmed',
  'StoringData',
  'Completed',
  'Failed',
];

export function addTaskCommands(program: Command): void {
  const tasks = program.command('tasks').description('work that the service does by itself');
  tasks
    .command('list')
    .description('list the tasks of the app, the newest first')
    .addOption(choiceOption('--status <status>', 'only those in this state', statuses))
    .addOption(limitOption())
    .action(action<ListOptions>(list));
  tasks.command('show').description('show a task').argument('<ticket>').action(action(show));
  tasks.command('wait').description('wait until a task is completed').argument('<ticket>').action(action(wait));
}

async function list(call: Invocation<ListOptions>): Promise<void> {
  const { status, limit } = call.options;
  const app = await call.app();
  const options = { signal: call.signal, query: { status }, most: limit };
  await printList(call.terminal, await allOf<Task>(app, apiPath('apps', app.id, 'tasks'), 'tasks', options), {
    ticket: (task) => task.ticket_id,
    operation: (task) => task.operation_type,
    status: (task) => (typeof task.status === 'object' ? 'Failed' : task.status),
    progress: ({ progress }) => `${Math.floor(progress * 100)} %`,
    created: (task) => task['created_at'],
    error: (task) => (typeof task.status === 'object' ? task.status.Failed.error : undefined),
  });
}

async function show(call: Invocation): Promise<void> {
  const [ticket] = call.args<[string]>();
  // The ticket is the permission.
  const service = await call.everybody();
  await printTask(call, await service.task(ticket, { signal: call.signal }));
}

async function wait(call: Invocation): Promise<void> {
  const [ticket] = call.args<[string]>();
  await printTask(call, await finishedTask(call, await call.everybody(), ticket));
}

function printTask({ terminal }: Invocation, task: Task): Promise<void> {
  if (!terminal.isForPeople || typeof task.status !== 'object') return printObject(terminal, task);
  return printObject(terminal, { ...task, status: 'Failed', error: task.status.Failed.error });
}
