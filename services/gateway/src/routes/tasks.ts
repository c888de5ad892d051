import { z } from 'zod';
import { notFound } from '@granary/shared/errors';
import type { PaymentState } from '@granary/shared/gen/granary/payments/v1/PaymentState';
import type { Task } from '@granary/shared/gen/granary/tasks/v1/Task';
import { parseTicket } from '@granary/shared/ids';
import { json, jsonText, type Answer } from '../http/answer';
import { listingHeaders, newestFirstQuery, nextCursorSchema, nextLink } from '../pipeline/listing';
import { canonicalPathOf, route, type RouteRequest } from '../pipeline/route';
import type { GatewayContext } from '../pipeline/gateway-context';
import { exampleTicket, exampleTime, objectSchema, timeSchema } from '../validation/schemas';

const statuses = [
  'Pending',
  'PaymentBroadcast',
  'PaymentConfirming',
  'PaymentConfirmed',
  'StoringData',
  'Completed',
] as const;

const exampleTask = {
  ticket_id: exampleTicket,
  status: 'Completed',
  operation_type: 'store',
  app_id: 'demo',
  created_at: exampleTime,
  updated_at: exampleTime,
  progress: 1,
  progress_log: [],
};

const taskSchema = z
  .object({
    ticket_id: z.string().describe('The ticket that was asked for'),
    status: z
      .union([
        z.enum(statuses),
        z.object({
          Failed: z
            .object({ error: z.string().describe('Text for people') })
            .describe('The task failed and will not be tried again'),
        }),
      ])
      .describe('It only moves forward. The `Payment…` states are those of a payment that is being settled'),
    operation_type: z.string().describe('What the task does'),
    app_id: z.string().describe('The application that it belongs to'),
    created_at: timeSchema.describe('When it was made'),
    updated_at: timeSchema.describe('When it last changed'),
    user_address: z.string().optional().describe('The wallet that it is done for'),
    transaction_hash: z.string().optional().describe('Hash of the commit'),
    block_height: z.int().optional().describe('Height of the commit'),
    result: objectSchema.optional().describe('What it led to, once it is `Completed`'),
    progress: z.number().min(0).max(1).describe('From 0 to 1'),
    progress_log: z.array(z.string()).describe('What happened so far'),
  })
  .meta({
    id: 'Task',
    examples: [exampleTask],
  });

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

/** The task of a payment that is being settled. */
function paymentJson({ ticketId, status, appId, createdAt, updatedAt, payer, error, payment }: PaymentState) {
  return {
    ticket_id: ticketId,
    status: status === 'Failed' ? { Failed: { error: error ?? 'The payment was refused' } } : status,
    operation_type: 'payment',
    app_id: appId,
    created_at: createdAt,
    updated_at: updatedAt,
    user_address: payer,
    transaction_hash: payment?.transaction,
    block_height: payment && Number(payment.blockHeight),
    result: payment && { ...payment, blockHeight: Number(payment.blockHeight) },
    progress: progressOf[status] ?? 1,
    progress_log: [],
  };
}

const progressOf: Readonly<Record<string, number>> = {
  Pending: 0,
  PaymentBroadcast: 0.25,
  PaymentConfirming: 0.5,
  PaymentConfirmed: 0.75,
  StoringData: 0.9,
};

async function getTask({ clients }: GatewayContext, { path, call }: RouteRequest<'ticket_id'>): Promise<Answer> {
  const { ticket_id: ticketId } = path;
  // Text without the form of a ticket needs no look-up.
  const ticket = parseTicket(ticketId);
  if (!ticket) throw notFound('TASK_NOT_FOUND', 'There is no such task');
  if (ticket.kind === 'p') return json(200, paymentJson(await clients.payments.getPayment({ ticketId }, call)));
  return json(200, taskJson(await clients.tasks.getTask({ ticketId }, call)));
}

const shared = {
  method: 'GET',
  summary: 'Read the task of a ticket',
  description: 'The ticket is the capability: it cannot be guessed, and no key is needed.',
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
    undocumented: 'alias',
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/tasks',
    id: 'listTasks',
    summary: 'List the tasks of an application',
    description:
      'The newest first: builds of indexes and views, imports, and what is dropped, as `GET /api/tasks/{ticket_id}` ' +
      'shows them, a moment later; only that shows how far an import is. Writes have been done when they are answered, ' +
      'and are in the list of commits. Payments that are being settled are those of their payers, and are not listed. A ' +
      'ticket lets anybody read its task and do nothing else, and all that a task says can be read with `Read` anyway.',
    tag: 'Tasks',
    auth: { kind: 'app', permission: 'Read' },
    query: newestFirstQuery.extend({
      status: z
        .enum([...statuses, 'Failed'])
        .optional()
        .describe('Only those in this state'),
    }),
    responses: {
      200: {
        description: 'A page of tasks',
        schema: z.object({
          app_id: z.string().describe('The application'),
          tasks: z.array(taskSchema).describe('Newest first'),
          next_cursor: nextCursorSchema,
        }),
        example: { app_id: 'demo', tasks: [{ ...exampleTask, operation_type: 'view.refresh' }] },
        headers: listingHeaders,
      },
      400: { description: 'A parameter is not valid', codes: ['VALIDATION_FAILED', 'INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const { status, limit, cursor = '' } = query;
      const page = await clients.tasks.listTasks({ appId: path.app_id, status: status ?? '', limit, cursor }, call);
      const next = page.nextCursor || undefined;
      const link = next === undefined ? {} : nextLink(canonicalPathOf(request), { status, limit, cursor: next });
      return json(200, { app_id: path.app_id, tasks: page.tasks.map(taskJson), next_cursor: next }, link);
    },
  }),
];
