import { z } from 'zod';
import { PoisonEvent, type Handle } from '@granary/shared/bus/inbox';
import { listPage, type Listing, type ListingRequest } from '@granary/shared/postgres/listing';
import { execute, row, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql } from '@granary/shared/postgres/sql';

export const TASK_NOT_FOUND = 'TASK_NOT_FOUND';

/** The topic on which services publish the progress of their jobs. */
export const tasksTopic = 'tasks';

/** The statuses in order. A task only moves forward, and not at all once it is Completed or Failed. */
export const statuses = [
  'Pending',
  'PaymentBroadcast',
  'PaymentConfirming',
  'PaymentConfirmed',
  'StoringData',
  'Completed',
  'Failed',
] as const;

export type TaskStatus = (typeof statuses)[number];

export interface Task {
  ticketId: string;
  appId: string;
  operationType: string;
  status: TaskStatus;
  error: string | null;
  /** 0 to 1. */
  progress: number;
  progressLog: string[];
  /** JSON text. */
  resultText: string | null;
  createdAt: Date;
  updatedAt: Date;
}

export function isTaskStatus(text: string): text is TaskStatus {
  return (statuses as readonly string[]).includes(text);
}

export function hasEnded(task: { status: TaskStatus }): boolean {
  return task.status === 'Completed' || task.status === 'Failed';
}

/** Whether `a` is a later state of a task than `b`. */
export function isFurther(a: Task, b: Task): boolean {
  const steps = statuses.indexOf(a.status) - statuses.indexOf(b.status);
  return steps > 0 || (steps === 0 && a.updatedAt > b.updatedAt);
}

/** The progress log keeps this many of its newest lines. */
const progressLines = 100;

const eventTypes = ['job.created', 'job.progressed', 'job.completed', 'job.failed'];

const jobEvent = z.object({
  ticket_id: z.string().min(1),
  app_id: z.string().min(1),
  operation_type: z.string().min(1),
  status: z.enum(statuses),
  progress: z.number().min(0).max(1).nullish(),
  message: z.string().nullish(),
  result: z.json().nullish(),
  error: z.string().nullish(),
  at: z.iso.datetime({ offset: true }),
});

/** Updates tasks from the events of the services that run the jobs. Other event types are ignored. */
export const handleJobEvent: Handle = async (tx, event) => {
  if (!eventTypes.includes(event.type)) return;
  const parsed = jobEvent.safeParse(event.payload);
  if (!parsed.success) throw new PoisonEvent(`${event.type}: ${z.prettifyError(parsed.error)}`);
  const job = parsed.data;
  if (job.ticket_id !== event.aggregateId)
    throw new PoisonEvent(`${event.type} of ${event.aggregateId} names another ticket`);
  const failed = job.status === 'Failed';
  await advanceTask(tx, {
    ticketId: job.ticket_id,
    appId: job.app_id,
    operationType: job.operation_type,
    status: job.status,
    error: failed ? (job.error ?? 'unknown') : null,
    progress: job.status === 'Completed' ? 1 : (job.progress ?? 0),
    progressLog: job.message == null ? [] : [`${job.at} ${job.message}`],
    resultText: job.result == null ? null : JSON.stringify(job.result),
    createdAt: new Date(job.at),
    updatedAt: new Date(job.at),
  });
};

/** Stores a new state and appends its log lines. A step back changes nothing. */
async function advanceTask(tx: Queryable, task: Task): Promise<void> {
  await execute(
    tx,
    sql`insert into task (ticket_id, app_id, operation_type, status, error, progress, progress_log, result_text, created_at, updated_at)
      values (${task.ticketId}, ${task.appId}, ${task.operationType}, ${task.status}, ${task.error}, ${task.progress},
        ${task.progressLog}, ${task.resultText}, ${task.createdAt}, ${task.updatedAt})
      on conflict (ticket_id) do update set
        status = excluded.status,
        error = excluded.error,
        progress = greatest(task.progress, excluded.progress),
        progress_log = (task.progress_log || excluded.progress_log)[
          greatest(1, cardinality(task.progress_log) + cardinality(excluded.progress_log) - ${progressLines - 1}::int):],
        result_text = coalesce(excluded.result_text, task.result_text),
        updated_at = greatest(task.updated_at, excluded.updated_at)
      where task.status not in ('Completed', 'Failed') and task_stage(excluded.status) >= task_stage(task.status)`,
  );
}

const columns = sql`ticket_id as "ticketId", app_id as "appId", operation_type as "operationType", status, error, progress,
  progress_log as "progressLog", result_text as "resultText", created_at as "createdAt", updated_at as "updatedAt"`;

export function findTask(db: Queryable, ticketId: string): Promise<Task | undefined> {
  return row<Task>(db, sql`select ${columns} from task where ticket_id = ${ticketId}`);
}

/** A page of the tasks of an app, or of those in one state, the newest first. Throws INVALID_CURSOR. */
export function listTasks(
  db: Queryable,
  { appId, status }: { appId: string; status: TaskStatus | undefined },
  request: ListingRequest,
): Promise<Listing<Task>> {
  const source = {
    columns,
    from: sql`task where app_id = ${appId} ${status === undefined ? empty : sql`and status = ${status}`}`,
    key: [
      // A Date made it, so that it has whole milliseconds.
      { column: sql`created_at`, type: 'time' as const },
      { column: sql`ticket_id`, type: 'text' as const },
    ],
    isDescending: true,
    bytes: sql`coalesce(octet_length(result_text), 0) + coalesce(octet_length(error), 0)
      + octet_length(array_to_string(progress_log, ''))`,
    keyOf: ({ createdAt, ticketId }: Task) => [createdAt, ticketId],
  };
  return listPage<Task>(db, source, request);
}
