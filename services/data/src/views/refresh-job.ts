import { ServiceError } from '@granary/shared/errors';
import { sqlState } from '@granary/shared/postgres/errors';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { JobInterruptedError, type JobContext, type Report } from '../jobs/queue';
import { invalidQuery } from '../query/language/query-error';
import { abandonedBuild, beginBuild, buildTimeoutMs, isCurrent, runBuild, type Build } from './build';
import { dropAbandonedViews } from './tables';

/** How often a build looks whether its view is still there and the worker still runs. */
const watchMs = 1_000;
/** How often progress is reported, at most. */
const reportMs = 1_000;

/**
 * The job of a refresh: fills a new table, which then replaces the old one. Until then readers get the old rows, and they
 * keep them when it fails.
 */
export async function refreshViewJob(
  context: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const { pool } = context;
  const build = await beginBuild(pool, BigInt(String(payload['view_number'])));
  const { appNumber, number } = build.view;
  await dropAbandonedViews(context, appNumber);
  const watch = new BuildWatch(context, build);
  try {
    const rows = await runBuild(pool, build, {
      reading: (processId) => watch.start(processId),
      filled: progressOf(context, build, report),
    });
    return { view_name: build.view.name, row_count: rows };
  } catch (error) {
    const reason = await reasonOf(context, build, error);
    if (!(reason instanceof JobInterruptedError)) {
      await failBuild(pool, build, reason);
    }
    const ours = sql`number = ${number} and building_table_number = ${build.table.number}`;
    await execute(pool, sql`update view set building_table_number = null where ${ours}`);
    throw reason;
  } finally {
    watch.stop();
    await dropAbandonedViews(context, appNumber);
  }
}

/** Reports the rows that are there, of as many as there were at the last refresh. */
function progressOf({ stopping }: JobContext, { view }: Build, report: Report): (rows: number) => Promise<void> {
  let reportedAtMs = 0;
  return async (rows) => {
    if (stopping.aborted) throw new JobInterruptedError('the service stops');
    const nowMs = performance.now();
    if (nowMs - reportedAtMs < reportMs) return;
    reportedAtMs = nowMs;
    const expected = Math.max(Number(view.rowCount), rows);
    await report((0.9 * rows) / Math.max(1, expected + (view.tableNumber === null ? rows : 0)), `${rows} rows written`);
  };
}

/** Keeps the reason of a failed build; the view has failed where `isFailed`. */
export async function failBuild(
  pool: Pool,
  { view }: Build,
  reason: unknown,
  isFailed: Sql = sql`true`,
): Promise<void> {
  const text = reason instanceof ServiceError ? reason.message : 'The view could not be filled';
  await execute(
    pool,
    sql`update view set status = case when ${isFailed} then 'failed' else status end, error = ${text}
        where number = ${view.number}`,
  );
}

/** Why a build failed: a ServiceError cannot be remedied by trying again. */
export async function reasonOf({ pool, stopping }: JobContext, build: Build, error: unknown): Promise<unknown> {
  if (error instanceof JobInterruptedError) return error;
  if (stopping.aborted) return new JobInterruptedError('the service stops', { cause: error });
  if (!(await isCurrent(pool, build))) return abandonedBuild(pool, build);
  const state = sqlState(error) ?? '';
  // query_canceled
  if (state === '57014')
    return invalidQuery('query', `takes longer than ${buildTimeoutMs / 60_000} minutes to compute`);
  // data_exception, program_limit_exceeded
  if (/^(22|54)/.test(state)) return invalidQuery('query', 'gives a value that is too large to be stored');
  return error;
}

/** Cancels the statement of a build whose view was deleted, or when the worker stops. */
class BuildWatch {
  #timer: NodeJS.Timeout | undefined;
  #processId: number | undefined;

  constructor(
    private readonly context: JobContext,
    private readonly build: Build,
  ) {}

  start(processId: number): void {
    this.#processId = processId;
    this.#timer = setInterval(this.#look, watchMs);
    this.context.stopping.addEventListener('abort', this.#look);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#processId = undefined;
    this.context.stopping.removeEventListener('abort', this.#look);
  }

  readonly #look = (): void => {
    const { pool, log, stopping } = this.context;
    this.#cancel(pool, stopping.aborted).catch((error: unknown) =>
      log.warn({ err: error, view: this.build.view.name }, 'the build of a view was not watched'),
    );
  };

  async #cancel(pool: Pool, isStopping: boolean): Promise<void> {
    if (!isStopping && (await isCurrent(pool, this.build))) return;
    if (this.#processId !== undefined) await execute(pool, sql`select pg_cancel_backend(${this.#processId})`);
  }
}
