import { z } from 'zod';
import { notFound } from '@granary/shared/errors';
import type { Task } from '@granary/shared/gen/granary/tasks/v1/Task';
import { parseTicket } from '@granary/shared/ids';
import { json, jsonText, type Answer } from '../answer';
import { route, type Context, type RouteRequest } from '../route';
import { objectSchema, timeSchema } from '../schemas';

const statuses = [
  ...['Pending', 'PaymentBroadcast', 'PaymentConfirming', 'PaymentConfirmed', 'StoringData', 'Completed'],
] as const;

const taskSchema = z
  .object({
    ticket_id: z.string(),
    status: z.union([z.enum(statuses), z.object({ Failed: z.object({ error: z.string() }) })]),
    operation_type: z.string(),
    app_id: z.string(),
    created_at: timeSchema,
    updated_at: timeSchema,
    user_address: z.string().optional(),
    transaction_hash: z.string().optional(),
    block_height: z.int().optional(),
    result: objectSchema.optional(),
    progress: z.number().min(0).max(1),
    progress_log: z.array(z.string()),
  })
  .meta({ id: 'Task' });

function taskJson(task: Task) {
  return {
    ticket_id: task.ticketId,
    status: task.status === 'Failed' ? { Failed: { error: task.error } } : task.status,
    operation_type: task.operationType,
    app_id: task.appId,
    created_at: task.createdAt,
    updated_at: task.updatedAt,
    user_address: task.userAddress || undefined,
    transaction_hash: task.transactionHash || undefined,
    block_height: Number(task.blockHeight) || undefined,
    result: jsonText(task.resultJson) ?? undefined,
    progress: task.progress,
    progress_log: task.progressLog,
  };
}

async function getTask({ clients }: Context, { path, call }: RouteRequest<'ticket_id'>): Promise<Answer> {
  // Text that never was a ticket needs no search.
  if (!parseTicket(path.ticket_id)) throw notFound('TASK_NOT_FOUND', 'There is no such task');
  return json(200, taskJson(await clients.tasks.getTask({ ticketId: path.ticket_id }, call)));
}

const shared = {
  method: 'GET',
  summary: 'Read the task of a ticket',
  description: 'The ticket is the capability: whoever has it may ask.',
  tag: 'Tasks',
  auth: { kind: 'public' },
  responses: { 200: { description: 'The task', schema: taskSchema } },
  handle: getTask,
} as const;

export const taskRoutes = [
  route({ ...shared, path: '/tasks/{ticket_id}', id: 'getTask' }),
  route({
    ...shared,
    path: '/task/{ticket_id}',
    prefixes: ['', '/api'],
    id: 'getTaskAlias',
    summary: 'The same at another path',
  }),
];
