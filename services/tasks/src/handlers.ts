import { invalid, notFound, ServiceError } from '@granary/shared/errors';
import type { Commit } from '@granary/shared/gen/granary/data/v1/Commit';
import type { DataDefinition } from '@granary/shared/gen/granary/data/v1/Data';
import type { Job } from '@granary/shared/gen/granary/data/v1/Job';
import type { Task as TaskMessage } from '@granary/shared/gen/granary/tasks/v1/Task';
import type { TasksDefinition } from '@granary/shared/gen/granary/tasks/v1/Tasks';
import { newCall, type Call, type Client, type Handlers } from '@granary/shared/rpc/types';
import { parseTicket } from '@granary/shared/ids';
import type { Logger } from '@granary/shared/logger';
import { checkListingLimit } from '@granary/shared/postgres/listing';
import type { Pool } from '@granary/shared/postgres/pool';
import {
  findTask,
  hasEnded,
  isFurther,
  isTaskStatus,
  listTasks,
  statuses,
  TASK_NOT_FOUND,
  type Task,
  type TaskStatus,
} from './tasks';

interface TasksContext {
  pool: Pool;
  log: Logger;
  data: Client<DataDefinition>;
}

const dataTimeoutMs = 5_000;

export function tasksHandlers(parts: TasksContext): Handlers<TasksDefinition> {
  return {
    getTask: async ({ ticketId }, call) => {
      switch (parseTicket(ticketId)?.kind) {
        case 'c':
          return fromCommit(await parts.data.getCommit({ ticketId }, newCall(call.requestId, dataTimeoutMs, call)));
        case 'j':
          return toMessage(await getJobTask(parts, ticketId, call));
        case 'p':
        case undefined:
          throw taskNotFound();
      }
    },

    listTasks: async ({ appId, status, limit, cursor }) => {
      const filter = { appId: required(appId), status: status === '' ? undefined : toStatus(status) };
      const { entries, nextCursor } = await listTasks(parts.pool, filter, { limit: checkListingLimit(limit), cursor });
      return { tasks: entries.map(toMessage), nextCursor };
    },
  };
}

function required(appId: string): string {
  if (appId === '') throw invalid('An application is needed', { app_id: ['is required'] });
  return appId;
}

function toStatus(status: string): TaskStatus {
  if (isTaskStatus(status)) return status;
  throw invalid('The status is not one of a task', { status: [`must be one of ${statuses.join(', ')}`] });
}

const taskNotFound = () => notFound(TASK_NOT_FOUND, 'There is no such task');

/** The task of a job from its events or, if they have not arrived yet, from the service that runs the job. */
async function getJobTask({ pool, log, data }: TasksContext, ticketId: string, call: Call): Promise<Task> {
  const storedTask = await findTask(pool, ticketId);
  if (storedTask && hasEnded(storedTask)) return storedTask;
  try {
    const jobTask = fromJob(await data.getJob({ ticketId }, newCall(call.requestId, dataTimeoutMs, call)));
    return storedTask && !isFurther(jobTask, storedTask) ? storedTask : jobTask;
  } catch (error) {
    if (!storedTask) throw error;
    // The job may belong to another service; and the known state is correct, if perhaps not the latest.
    if (!(error instanceof ServiceError && error.reason === TASK_NOT_FOUND)) {
      log.warn({ err: error, requestId: call.requestId }, 'reading a job from data failed');
    }
    return storedTask;
  }
}

function fromJob(job: Job): Task {
  if (!isTaskStatus(job.status)) throw new Error(`data returned the unknown status ${job.status}`);
  return {
    ticketId: job.ticketId,
    appId: job.appId,
    operationType: job.operationType,
    status: job.status,
    error: job.status === 'Failed' ? job.error : null,
    progress: job.progress,
    progressLog: job.progressLog,
    resultText: job.resultJson || null,
    createdAt: new Date(job.createdAt),
    updatedAt: new Date(job.updatedAt),
  };
}

function toMessage(task: Task): TaskMessage {
  return {
    ticketId: task.ticketId,
    status: task.status,
    error: task.error ?? '',
    operationType: task.operationType,
    appId: task.appId,
    createdAt: task.createdAt.toISOString(),
    updatedAt: task.updatedAt.toISOString(),
    userAddress: '',
    transactionHash: '',
    blockHeight: '0',
    resultJson: task.resultText ?? '',
    progressLog: task.progressLog,
    progress: task.progress,
  };
}

/** A write's ticket is either committed or unknown, so such a task has no other state. */
function fromCommit(commit: Commit): TaskMessage {
  return {
    ticketId: commit.ticketId,
    status: 'Completed',
    error: '',
    operationType: commit.operationType,
    appId: commit.appId,
    createdAt: commit.committedAt,
    updatedAt: commit.committedAt,
    userAddress: commit.userAddress,
    transactionHash: commit.transactionHash,
    blockHeight: commit.height,
    resultJson: commit.resultJson.toString(),
    progressLog: [`${commit.committedAt} committed at height ${commit.height}`],
    progress: 1,
  };
}
