import type { OutgoingEvent } from '@granary/shared/bus/outbox';
import { ServiceError } from '@granary/shared/errors';
import type { GetJobRequest } from '@granary/shared/gen/granary/data/v1/GetJobRequest';
import type { Job } from '@granary/shared/gen/granary/data/v1/Job';
import { row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { getJob, TASK_NOT_FOUND, taskEvent } from '../jobs/queue';
import type { PoolContext } from '../postgres/databases';
import { findImports, type ImportState } from './import-state';

const operationType = 'import';
/** Characters of an error in a task. */
const errorLengthMax = 2_000;

/** The task of a ticket: a job, or an import. Throws TASK_NOT_FOUND. */
export async function getTask(context: PoolContext, request: GetJobRequest): Promise<Job> {
  try {
    return await getJob(context, request);
  } catch (error) {
    if (!(error instanceof ServiceError && error.reason === TASK_NOT_FOUND)) throw error;
    const [state] = await findImports(context.pool, sql`ticket_id = ${request.ticketId}`);
    const app = state && (await appIdOf(context, state));
    if (app === undefined) throw error;
    return toTask(app, state!);
  }
}

async function appIdOf({ pool }: PoolContext, { appNumber }: ImportState): Promise<string | undefined> {
  const app = await row<{ app_id: string }>(pool, sql`select app_id from application where number = ${appNumber}`);
  return app?.app_id;
}

function toTask(appId: string, state: ImportState): Job {
  const [created, updated] = [state.createdAt.toISOString(), state.updatedAt.toISOString()];
  const progressLog = [`${created} an import into ${state.collection} began`];
  if (state.offset > 0) progressLog.push(`${updated} ${progressText(state)}`);
  return {
    ticketId: state.ticketId,
    appId,
    operationType,
    status: { open: 'StoringData', completed: 'Completed', failed: 'Failed' }[state.status],
    error: errorText(state),
    progress: progressOf(state),
    createdAt: created,
    updatedAt: updated,
    progressLog,
    resultJson: state.status === 'completed' ? JSON.stringify(resultOf(state)) : '',
  };
}

const progressText = ({ lines, written, skipped, failed }: ImportState): string =>
  `${lines} lines were read: ${written} documents written, ${skipped} skipped, ${failed} failed`;

const errorText = ({ error }: ImportState): string => error?.message.slice(0, errorLengthMax) ?? '';

/** The part of the file that is done; 0 as long as nobody knows how long it is. */
function progressOf({ status, offset, sizeBytes }: ImportState): number {
  if (status === 'completed') return 1;
  return sizeBytes === undefined || sizeBytes === 0 ? 0 : Math.min(1, offset / sizeBytes);
}

const resultOf = ({ offset, lines, written, skipped, failed, height }: ImportState) => ({
  offset,
  lines,
  written,
  skipped,
  failed,
  height: Number(height),
});

/** The event that makes the task of an import. */
export const beginningEvent = (appId: string, { ticketId, createdAt }: ImportState): OutgoingEvent =>
  taskEvent('job.created', ticketId, 1n, {
    app_id: appId,
    operation_type: operationType,
    status: 'StoringData',
    progress: 0,
    at: createdAt.toISOString(),
  });

/** The event that ends the task of an import. Its progress until then is in the import itself. */
export function endEvent(appId: string, state: ImportState, reason = errorText(state)): OutgoingEvent {
  const isCompleted = state.status === 'completed';
  return taskEvent(isCompleted ? 'job.completed' : 'job.failed', state.ticketId, 2n, {
    app_id: appId,
    operation_type: operationType,
    status: isCompleted ? 'Completed' : 'Failed',
    progress: progressOf(state),
    message: progressText(state),
    result: isCompleted ? resultOf(state) : null,
    error: isCompleted ? null : reason,
    at: state.updatedAt.toISOString(),
  });
}
