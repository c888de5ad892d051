import { append } from '@granary/shared/bus/outbox';
import { notFound, ServiceError } from '@granary/shared/errors';
import { newTicket, parseTicket } from '@granary/shared/ids';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Logger } from '@granary/shared/logger';
import { isConnectionError, isRetryable } from '@granary/shared/postgres/errors';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { Job } from '@granary/shared/gen/granary/data/v1/Job';

export const TASK_NOT_FOUND = 'TASK_NOT_FOUND';

export type JobKind = 'index.build' | 'view.refresh' | 'collection.drop' | 'app.drop';

export interface JobContext {
  pool: Pool;
  log: Logger;
  /** Aborted when the worker stops. What takes long ends then, for the next start does it again. */
  stopping: AbortSignal;
}

/** Says how far a job is, 0 to 1, with a line for its progress log. */
export type Report = (progress: number, message: string) => Promise<void>;

/**
 * Does a job: may be called again after a crash, so it begins by looking at what is there already. What it returns
 * is the result of the task; a ServiceError fails it for good, anything else is tried again.
 */
export type JobFunction = (context: JobContext, payload: Record<string, unknown>, report: Report) => Promise<object>;

/** Thrown by a job that has to wait for something else: it is taken again soon, and this run does not count. */
export class JobInterruptedError extends Error {
  override readonly name = 'JobInterruptedError';
}

/** How long a worker that has died holds a job; renewed while one is at work. */
const leaseMs = 60_000;
/** Runs of one job before it has failed. */
const attemptsMax = 5;
/** Longest pause before a job is tried again. */
const retryPauseMaxS = 60;
const pollMs = 250;

/**
 * Puts a job into the queue, in the transaction that asks for it; gives its ticket (a new one where none is given).
 */
export async function enqueueJob(
  tx: Queryable,
  app: { number: bigint; appId: string },
  kind: JobKind,
  payload: object,
  ticketId: string = newTicket('j', app.number),
): Promise<string> {
  const at = new Date();
  await execute(
    tx,
    sql`insert into job (ticket_id, app_number, kind, payload, status, created_at, updated_at, event_sequence)
        values (${ticketId}, ${app.number}, ${kind}, ${JSON.stringify(payload)}, 'Pending', ${at}, ${at}, 1)`,
  );
  await append(tx, [
    taskEvent('job.created', ticketId, 1n, {
      app_id: app.appId,
      operation_type: kind,
      status: 'Pending',
      progress: 0,
      at: at.toISOString(),
    }),
  ]);
  return ticketId;
}

function taskEvent(type: string, ticketId: string, sequence: bigint, fields: object) {
  return {
    topic: 'tasks',
    key: ticketId,
    aggregateId: ticketId,
    aggregateSequence: sequence,
    type,
    payload: { ticket_id: ticketId, ...fields },
  };
}

interface OpenJob {
  ticket_id: string;
  app_id: string;
  kind: JobKind;
  payload: string;
  attempts: number;
  /** Whether its progress log tells of a start already. */
  started: boolean;
}

/**
 * Works through the queue until stopped: `concurrency` jobs at a time, oldest first. All copies of the service do so at
 * once: each job is taken by one (skip locked), which renews its hold of it.
 */
export class JobWorker {
  private readonly stopping = new AbortController();
  private readonly loops: Array<Promise<void>>;
  private readonly sleepers = new Set<() => void>();
  private isBlind = false;

  constructor(
    private readonly context: Omit<JobContext, 'stopping'>,
    private readonly functions: Record<JobKind, JobFunction>,
    concurrency: number,
    /** Called after each event that a job has written. */
    private readonly notify: () => void,
  ) {
    this.loops = Array.from({ length: concurrency }, () => this.work());
  }

  /** Looks at once instead of at the next poll. */
  wake(): void {
    for (const wake of this.sleepers) wake();
  }

  /** Waits for the jobs under way: short ones end, long ones are put back. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.wake();
    await Promise.all(this.loops);
  }

  private async work(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      const job = await this.look();
      if (job)
        await this.run(job).catch((error: unknown) =>
          this.context.log.warn({ err: error, ticket: job.ticket_id }, 'a job was left'),
        );
      else await this.pause();
    }
  }

  /** The next job, if there is one. That none can be looked for is said once and not at each look. */
  private async look(): Promise<OpenJob | undefined> {
    const { log } = this.context;
    try {
      const job = await this.take();
      if (this.isBlind) log.info('jobs can be looked for again');
      this.isBlind = false;
      return job;
    } catch (error) {
      if (!this.isBlind) log.warn({ err: error }, 'could not look for jobs, trying again');
      this.isBlind = true;
      return undefined;
    }
  }

  private pause(): Promise<void> {
    if (this.stopping.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.sleepers.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, pollMs);
      this.sleepers.add(wake);
    });
  }

  private take(): Promise<OpenJob | undefined> {
    return row<OpenJob>(
      this.context.pool,
      sql`update job set status = 'StoringData', attempts = attempts + 1, leased_until = now() + ${leaseMs} * interval '1 ms'
          from application a
          where a.number = job.app_number and ticket_id = (
            select ticket_id from job
            where status in ('Pending', 'StoringData') and (leased_until is null or leased_until < now())
            order by created_at limit 1 for update skip locked)
          returning ticket_id, a.app_id, kind, payload, attempts, cardinality(progress_log) > 0 as started`,
    );
  }

  private async run(job: OpenJob): Promise<void> {
    const { log } = this.context;
    const { signal: stopping } = this.stopping;
    const report: Report = async (progress, message) => {
      if (stopping.aborted) throw new JobInterruptedError('the service stops');
      await this.record(job, 'StoringData', { progress, message });
    };
    const lease = setInterval(() => this.renew(job), leaseMs / 3);
    try {
      if (!job.started) await report(0, `${job.kind} started`);
      const payload = JSON.parse(job.payload) as Record<string, unknown>;
      const result = await this.functions[job.kind]({ ...this.context, stopping }, payload, report);
      await this.record(job, 'Completed', { progress: 1, message: `${job.kind} completed`, result });
      log.info({ ticket: job.ticket_id, kind: job.kind, app: job.app_id }, 'job completed');
    } catch (error) {
      const interrupted = error instanceof JobInterruptedError;
      const temporary = interrupted || isConnectionError(error) || isRetryable(error);
      const final = error instanceof ServiceError || (job.attempts >= attemptsMax && !temporary);
      // What a job was asked for and cannot be is for the caller, who reads it in the task.
      const level = interrupted ? 'debug' : error instanceof ServiceError ? 'info' : 'warn';
      log[level]({ err: error, ticket: job.ticket_id, kind: job.kind, attempt: job.attempts, final }, 'job failed');
      if (final) {
        const text = error instanceof ServiceError ? error.message : 'The job failed repeatedly';
        await this.record(job, 'Failed', { message: text, error: text });
      } else {
        // Free again after a moment, for whoever looks next.
        await execute(
          this.context.pool,
          sql`update job set leased_until = now() + interval '1 second' * ${Math.min(job.attempts, retryPauseMaxS)},
                attempts = attempts - ${interrupted ? 1 : 0}
              where ticket_id = ${job.ticket_id}`,
        );
      }
    } finally {
      clearInterval(lease);
    }
  }

  /** A job may be silent for as long as one statement takes; nobody else may start it meanwhile. */
  private renew(job: OpenJob): void {
    execute(
      this.context.pool,
      sql`update job set leased_until = now() + ${leaseMs} * interval '1 ms'
          where ticket_id = ${job.ticket_id} and attempts = ${job.attempts} and status = 'StoringData'`,
    ).catch((error: unknown) =>
      this.context.log.warn({ err: error, ticket: job.ticket_id }, 'the lease of a job was not renewed'),
    );
  }

  /** Writes a state of the job with its event. A job only moves forward: what has ended stays as it is. */
  private async record(
    job: OpenJob,
    status: 'StoringData' | 'Completed' | 'Failed',
    state: { progress?: number; message: string; result?: object; error?: string },
  ): Promise<void> {
    const at = new Date();
    await retriedTransaction(this.context.pool, async (tx) => {
      const result = state.result === undefined ? null : JSON.stringify(state.result);
      const changed = await row<{ event_sequence: bigint; progress: number }>(
        tx,
        sql`update job set status = ${status}, progress = greatest(progress, ${state.progress ?? 0}), error = ${state.error ?? null},
              result_text = ${result}, event_sequence = event_sequence + 1, updated_at = ${at},
              leased_until = ${at}::timestamptz + ${leaseMs} * interval '1 ms',
              progress_log = (array_append(progress_log, ${`${at.toISOString()} ${state.message}`}::text))[
                greatest(1, cardinality(progress_log) - 98):]
            where ticket_id = ${job.ticket_id} and status in ('Pending', 'StoringData')
            returning event_sequence, progress`,
      );
      if (!changed) return;
      const type = status === 'Completed' ? 'job.completed' : status === 'Failed' ? 'job.failed' : 'job.progressed';
      await append(tx, [
        taskEvent(type, job.ticket_id, changed.event_sequence, {
          app_id: job.app_id,
          operation_type: job.kind,
          status,
          progress: changed.progress,
          message: state.message,
          result: state.result ?? null,
          error: state.error ?? null,
          at: at.toISOString(),
        }),
      ]);
    });
    this.notify();
  }
}

/** A job as this service knows it: what the tasks service asks for while an event is still on its way. */
export async function getJob(pool: Pool, ticketId: string): Promise<Job> {
  const found =
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
  if (!found) throw notFound(TASK_NOT_FOUND, 'There is no such task');
  return {
    ticketId,
    appId: found.app_id,
    operationType: found.kind,
    status: found.status,
    error: found.error ?? '',
    progress: found.progress,
    createdAt: found.created_at.toISOString(),
    updatedAt: found.updated_at.toISOString(),
    progressLog: found.progress_log,
    resultJson: found.result_text ?? '',
  };
}
