import { append } from '@granary/shared/bus/outbox';
import { ServiceError } from '@granary/shared/errors';
import { databaseTime } from '@granary/shared/postgres/clock';
import { fromPostgres, isConnectionError, isRetryable } from '@granary/shared/postgres/errors';
import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction, transaction } from '@granary/shared/postgres/transaction';
import { isStorageFull, type StorageMonitor } from '@granary/shared/health/storage-monitor';
import { JobInterruptedError, taskEvent, type JobContext, type JobHandler, type JobKind, type Report } from './queue';

/** Runs of one job before it has failed. */
const attemptsMax = 5;
/** Runs of one job, those included that ended with their process: what kills each process that runs it is given up. */
const runsMax = 25;
/** Longest pause before a retry. */
const retryPauseMaxS = 60;
/** The time from one poll to the next while all workers of the process are idle. */
const pollMs = 250;
/** Jobs that need disk space: on a full disk they wait, and only jobs that free it run. */
const needingSpace: readonly JobKind[] = ['index.build', 'view.refresh', 'view.change', 'encryption.rotate'];
/** Advisory lock during the choice of a job, so that two workers do not take jobs of one app at once. */
const takingLock = 7_265_003;

interface OpenJob {
  ticket_id: string;
  app_id: string;
  kind: JobKind;
  payload: string;
  attempts: number;
  /** Whether its progress log already has the line of its start. */
  started: boolean;
}

/**
 * Runs jobs until stopped, `concurrency` at a time, fairly by app: each job has a rank (see enqueueJob), and the lowest
 * rank is next. While jobs of several apps wait, an app has one job running, and it never has all workers. All replicas
 * of the service share the queue; the one that holds the lease of a job runs it.
 */
export class JobWorker {
  private readonly stopping = new AbortController();
  private readonly loops: Array<Promise<void>>;
  private readonly idle = new Set<() => void>();
  /** The last poll has failed, which was logged. */
  private isFailing = false;

  constructor(
    private readonly context: Omit<JobContext, 'stopping'>,
    private readonly handlers: Record<JobKind, JobHandler>,
    private readonly concurrency: number,
    private readonly storage: Pick<StorageMonitor, 'isFull'>,
    /** Called after each event that a job has written. */
    private readonly notify: () => void,
    /** How long a job stays leased after its worker has died; renewed while it runs. */
    private readonly leaseMs = 60_000,
  ) {
    this.loops = Array.from({ length: concurrency }, () => this.work());
  }

  /** Polls now. */
  wake(): void {
    for (const wake of this.idle) wake();
  }

  /** Waits for the running jobs: short ones end, long ones return to the queue. */
  async stop(): Promise<void> {
    this.stopping.abort();
    this.wake();
    await Promise.all(this.loops);
  }

  private async work(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      const job = await this.poll();
      if (job)
        await this.run(job).catch((error: unknown) =>
          this.context.log.warn({ err: error, ticket: job.ticket_id }, 'a job was abandoned'),
        );
      else await this.pause();
    }
  }

  /** The next job, if there is one. Consecutive failures are logged once. */
  private async poll(): Promise<OpenJob | undefined> {
    const { log } = this.context;
    try {
      const job = await this.take();
      if (this.isFailing) log.info('polling for jobs works again');
      this.isFailing = false;
      return job;
    } catch (error) {
      if (!this.isFailing) log.warn({ err: error }, 'could not poll for jobs, trying again');
      this.isFailing = true;
      return undefined;
    }
  }

  private pause(): Promise<void> {
    if (this.stopping.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.idle.delete(wake);
        resolve();
      };
      this.idle.add(wake);
      // Idle workers take turns, so that more of them do not mean more polls.
      const timer = setTimeout(wake, pollMs * this.idle.size);
    });
  }

  private async take(): Promise<OpenJob | undefined> {
    const { pool } = this.context;
    const waiting = this.storage.isFull ? sql`${isFree} and j.kind <> all(${needingSpace})` : isFree;
    // Most polls find nothing, and are one statement.
    if (!(await row(pool, sql`select from job j where ${waiting} limit 1`))) return undefined;
    return transaction(pool, async (tx) => {
      await execute(tx, sql`select pg_advisory_xact_lock(${takingLock})`);
      const takeBelow = (appLimit: number) => takeJob(tx, waiting, appLimit, this.leaseMs);
      return (await takeBelow(1)) ?? (await takeBelow(Math.max(1, this.concurrency - 1)));
    });
  }

  private async run(job: OpenJob): Promise<void> {
    const { log } = this.context;
    const { signal: stopping } = this.stopping;
    const report: Report = async (progress, message) => {
      if (stopping.aborted) throw new JobInterruptedError('the service stops');
      if (this.storage.isFull && needingSpace.includes(job.kind)) throw new JobInterruptedError('the storage is full');
      await this.record(job, 'StoringData', { progress, message });
    };
    const lease = setInterval(() => this.renew(job), this.leaseMs / 3);
    const { neverFails, giveUp } = this.handlers[job.kind];
    try {
      if (job.attempts > runsMax && !neverFails) throw abandoned;
      if (!job.started) await report(0, `${job.kind} started`);
      const result = await this.handlers[job.kind].run({ ...this.context, stopping }, payloadOf(job), report);
      await this.record(job, 'Completed', { progress: 1, message: `${job.kind} completed`, result });
      log.info({ ticket: job.ticket_id, kind: job.kind, app: job.app_id }, 'job completed');
    } catch (error) {
      const interrupted = error instanceof JobInterruptedError || isStorageFull(fromPostgres(error) ?? error);
      const temporary = interrupted || isConnectionError(error) || isRetryable(error);
      const isHopeless = (error instanceof ServiceError && !interrupted) || (job.attempts >= attemptsMax && !temporary);
      const final = isHopeless && !neverFails;
      // The caller reads in the task why a job cannot be done.
      const level = interrupted ? 'debug' : error instanceof ServiceError ? 'info' : 'warn';
      log[level]({ err: error, ticket: job.ticket_id, kind: job.kind, attempt: job.attempts, final }, 'job failed');
      if (final) {
        const reason = await giveUp?.({ ...this.context, stopping }, payloadOf(job), error);
        const text = reason ?? (error instanceof ServiceError ? error.message : 'The job failed repeatedly');
        await this.record(job, 'Failed', { message: text, error: text });
      } else {
        // Released for a retry after a pause.
        await execute(
          this.context.pool,
          sql`update job set leased_until = null, attempts = attempts - ${temporary ? 1 : 0},
                not_before = now() + interval '1 second' * ${Math.min(job.attempts, retryPauseMaxS)}
              where ticket_id = ${job.ticket_id}`,
        );
      }
    } finally {
      clearInterval(lease);
    }
  }

  /** A job may report nothing for as long as one statement takes; no other worker may start it meanwhile. */
  private renew(job: OpenJob): void {
    execute(
      this.context.pool,
      sql`update job set leased_until = now() + ${this.leaseMs} * interval '1 ms'
          where ticket_id = ${job.ticket_id} and attempts = ${job.attempts} and status = 'StoringData'`,
    ).catch((error: unknown) =>
      this.context.log.warn({ err: error, ticket: job.ticket_id }, 'the lease of a job was not renewed'),
    );
  }

  /** Stores a state of the job with its event. The state of an ended job never changes. */
  private async record(
    job: OpenJob,
    status: 'StoringData' | 'Completed' | 'Failed',
    state: { progress?: number; message: string; result?: object; error?: string },
  ): Promise<void> {
    await retriedTransaction(this.context.pool, async (tx) => {
      const time = await databaseTime(tx);
      const result = state.result === undefined ? null : JSON.stringify(state.result);
      const changed = await row<{ event_sequence: bigint; progress: number }>(
        tx,
        sql`update job set status = ${status}, progress = greatest(progress, ${state.progress ?? 0}), error = ${state.error ?? null},
              result_text = ${result}, event_sequence = event_sequence + 1, updated_at = ${time},
              leased_until = now() + ${this.leaseMs} * interval '1 ms',
              progress_log = (array_append(progress_log, ${`${time.toISOString()} ${state.message}`}::text))[
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
          at: time.toISOString(),
        }),
      ]);
    });
    this.notify();
  }
}

const abandoned = new ServiceError(
  'ABORTED',
  'INTERNAL',
  `The processes that ran the job ended before it did, ${runsMax} times`,
);

const payloadOf = ({ payload }: OpenJob): Record<string, unknown> => JSON.parse(payload) as Record<string, unknown>;

const isFree = sql`j.status in ('Pending', 'StoringData') and (j.leased_until is null or j.leased_until < now())
  and (j.not_before is null or j.not_before < now())`;

/** The number of an app's jobs that are running, where `j` is one of its jobs. */
const runningOfApp = sql`(select count(*) from job r where r.app_number = j.app_number
  and r.status = 'StoringData' and r.leased_until is not null and r.leased_until >= now())`;

/** Whether a job of the same kind and subject is running, which it waits for. */
const isSubjectBusy = sql`exists (select from job s where s.app_number = j.app_number and s.kind = j.kind
  and s.subject = j.subject and s.ticket_id <> j.ticket_id and s.status = 'StoringData' and s.leased_until >= now())`;

/**
 * Takes the free job of the lowest rank, among the waiting ones of apps that have fewer than `appLimit` jobs running.
 */
function takeJob(tx: Connection, waiting: Sql, appLimit: number, leaseMs: number): Promise<OpenJob | undefined> {
  const next: Sql = sql`select j.ticket_id from job j where ${waiting} and ${runningOfApp} < ${appLimit}
      and not ${isSubjectBusy}
    order by j.rank, j.created_at limit 1 for update skip locked`;
  return row<OpenJob>(
    tx,
    sql`update job set status = 'StoringData', attempts = attempts + 1, leased_until = now() + ${leaseMs} * interval '1 ms'
        from application a
        where a.number = job.app_number and ticket_id = (${next})
        returning ticket_id, a.app_id, kind, payload, attempts, cardinality(progress_log) > 0 as started`,
  );
}
