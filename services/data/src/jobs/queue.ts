import { append } from '@granary/shared/bus/outbox';
import { notFound, ServiceError, unavailable } from '@granary/shared/errors';
import { newTicket, parseTicket } from '@granary/shared/ids';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Logger } from '@granary/shared/logger';
import type { Job } from '@granary/shared/gen/granary/data/v1/Job';
import type { App } from '../catalog/app';
import type { PoolContext } from '../postgres/databases';
import type { GetJobRequest } from '@granary/shared/gen/granary/data/v1/GetJobRequest';

export const TASK_NOT_FOUND = 'TASK_NOT_FOUND';
export const TOO_MANY_JOBS = 'TOO_MANY_JOBS';

export type JobKind =
  | 'index.build'
  | 'view.refresh'
  | 'view.change'
  | 'encryption.rotate'
  | 'instants.renew'
  | 'collection.drop'
  | 'app.drop';

/** Jobs that users ask for, and that are refused where too many wait. */
const refusable: ReadonlySet<JobKind> = new Set(['index.build', 'view.refresh', 'view.change', 'encryption.rotate']);

export interface JobContext {
  pool: Pool;
  log: Logger;
  /** Aborted when the worker stops. Long work ends then; it is repeated after the next start. */
  stopping: AbortSignal;
}

/** Reports the progress of a job, 0 to 1, with a line for its progress log. */
export type Report = (progress: number, message: string) => Promise<void>;

/**
 * Runs a job. It may run again after a crash, so it first checks what has been done already. It returns the result of
 * the task; a ServiceError fails the job for good, any other error leads to a retry.
 */
export type JobFunction = (context: JobContext, payload: Record<string, unknown>, report: Report) => Promise<object>;

/** How the jobs of one kind are run and given up. */
export interface JobHandler {
  run: JobFunction;
  /** It is repeated until it succeeds: what it removes is gone for users already, and would take space for ever. */
  neverFails?: true;
  /**
   * Called with the last error of a job before it is recorded as failed, and again after a crash. Returns what the task
   * says, undefined for the usual.
   */
  giveUp?: (context: JobContext, payload: Record<string, unknown>, error: unknown) => Promise<string | undefined>;
}

/** Thrown by a job that must wait for something else: it runs again soon, and this run is not counted. */
export class JobInterruptedError extends Error {
  override readonly name = 'JobInterruptedError';
}

/** View refreshes and index builds of one app that may wait. */
export const waitingJobsMax = 256;
/** A waiting job may start between the insertion that it prevents and the search for it, but hardly more than once. */
const enqueueAttempts = 5;

export interface JobOptions {
  /** A new one is made where it is empty or absent. */
  ticketId?: string;
  /**
   * Identifies the thing that the job is for. While a job of the same kind and subject waits, no second one is queued.
   */
  subject?: string;
  /** It follows from a change that is not refused, so it is queued whatever waits. */
  isRequired?: boolean;
}

/**
 * Queues a job, in the transaction of the change that needs it. Returns its ticket, or that of the waiting job with the
 * same subject. Throws TOO_MANY_JOBS.
 */
export async function enqueueJob(
  tx: Queryable,
  app: App,
  kind: JobKind,
  payload: object,
  options: JobOptions = {},
): Promise<string> {
  // Drops are never refused: the collection or app is deleted already.
  const mayBeRefused = refusable.has(kind) && !options.isRequired;
  if (mayBeRefused) await checkWaiting(tx, app.number);
  const ticketId = options.ticketId || newTicket('j', app.number);
  const subject = options.subject ?? null;
  for (let attempt = 1; attempt <= enqueueAttempts; attempt++) {
    if (await insertJob(tx, { ticketId, appNumber: app.number, kind, payload, subject }, app.appId)) return ticketId;
    // It is locked, so that it starts after the commit of `tx` and sees what that changes.
    const waiting = await row<{ ticket_id: string }>(
      tx,
      sql`select ticket_id from job
          where app_number = ${app.number} and kind = ${kind} and subject = ${subject} and status = 'Pending' for share`,
    );
    if (waiting) return waiting.ticket_id;
  }
  throw unavailable('The job could not be queued, try again');
}

async function checkWaiting(tx: Queryable, appNumber: bigint): Promise<void> {
  const { waiting } = (await row<{ waiting: bigint }>(
    tx,
    sql`select count(*) as waiting from job where app_number = ${appNumber} and status = 'Pending'`,
  ))!;
  if (waiting < BigInt(waitingJobsMax)) return;
  throw new ServiceError(
    'RESOURCE_EXHAUSTED',
    TOO_MANY_JOBS,
    `${waitingJobsMax} jobs of this app are waiting, which is the limit; try again later`,
  );
}

interface NewJob {
  ticketId: string;
  appNumber: bigint;
  kind: JobKind;
  payload: object;
  subject: string | null;
}

/** False when a job of this kind and subject waits already. */
async function insertJob(tx: Queryable, job: NewJob, appId: string): Promise<boolean> {
  const { ticketId, appNumber, kind, payload, subject } = job;
  const time = await databaseTime(tx);
  const inserted = await execute(
    tx,
    sql`insert into job (ticket_id, app_number, kind, payload, subject, rank, status, created_at, updated_at, event_sequence)
        values (${ticketId}, ${appNumber}, ${kind}, ${JSON.stringify(payload)}, ${subject},
          greatest((select coalesce(min(rank), 0) from job where status = 'Pending'),
                   (select coalesce(max(rank), 0) + 1 from job
                    where app_number = ${appNumber} and status in ('Pending', 'StoringData'))),
          'Pending', ${time}, ${time}, 1)
        on conflict (app_number, kind, subject) where status = 'Pending' and subject is not null do nothing`,
  );
  if (inserted === 0) return false;
  const state = { app_id: appId, operation_type: kind, status: 'Pending', progress: 0, at: time.toISOString() };
  await append(tx, [taskEvent('job.created', ticketId, 1n, state)]);
  return true;
}

export function taskEvent(type: string, ticketId: string, sequence: bigint, fields: object) {
  return {
    topic: 'tasks',
    key: ticketId,
    aggregateId: ticketId,
    aggregateSequence: sequence,
    type,
    payload: { ticket_id: ticketId, ...fields },
  };
}

/** A job as this service stores it, for the tasks service, which may not have received its events yet. */
export async function getJob({ pool }: PoolContext, { ticketId }: GetJobRequest): Promise<Job> {
  const job =
    parseTicket(ticketId)?.kind === 'j'
      ? await row<{
          app_id: string;
          kind: string;
          status: string;
          error: string | null;
          progress: number;
          progress_log: string[];
          result_text: string | null;
          created_at: Date;
          updated_at: Date;
        }>(
          pool,
          sql`select a.app_id, j.kind, j.status, j.error, j.progress, j.progress_log, j.result_text, j.created_at, j.updated_at
              from job j join application a on a.number = j.app_number where j.ticket_id = ${ticketId}`,
        )
      : undefined;
  if (!job) throw notFound(TASK_NOT_FOUND, 'There is no such task');
  return {
    ticketId,
    appId: job.app_id,
    operationType: job.kind,
    status: job.status,
    error: job.error ?? '',
    progress: job.progress,
    createdAt: job.created_at.toISOString(),
    updatedAt: job.updated_at.toISOString(),
    progressLog: job.progress_log,
    resultJson: job.result_text ?? '',
  };
}
