import { sqlState } from '@granary/shared/postgres/errors';
import { execute, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { JobInterruptedError, type JobContext, type Report } from '../../jobs/queue';
import { invalidQuery } from '../../query/language/query-error';
import { dropAbandonedViews } from '../tables';
import {
  abandonedBuild,
  buildTimeoutMs,
  endBuild,
  failBuild,
  isCurrent,
  viewByNumber,
  type Build,
  type RunnableBuild,
} from './build';
import { beginLiveBuild } from './live-build';
import { beginSnapshotBuild } from './snapshot-build';

/** How often a build looks whether its view is still there and the worker still runs. */
const watchMs = 1_000;
/** How often progress is reported, at most. */
const reportMs = 1_000;

/**
 * The job that fills a view: a lazy one with the rows of a snapshot, or a live one with rows that follow the writes
 * from then on. It fills a new table, which then replaces the old one. Until then readers get the old rows, and they
 * keep them when it fails.
 */
export async function buildViewJob(
  context: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const { pool } = context;
  const view = await viewByNumber(pool, BigInt(String(payload['view_number'])));
  const build = await (view.refreshMode === 'lazy' ? beginSnapshotBuild(pool, view) : beginLiveBuild(pool, view));
  await dropAbandonedViews(context, view.appNumber);
  const watch = new BuildWatch(context, build);
  try {
    const rows = await build.run({
      reading: (processId) => watch.start(processId),
      filled: progressOf(context, build, report),
    });
    return { view_name: build.view.name, row_count: rows };
  } catch (error) {
    const reason = await reasonOf(context, build, error);
    if (!(reason instanceof JobInterruptedError)) await failBuild(pool, build, reason);
    await endBuild(pool, build);
    throw reason;
  } finally {
    watch.stop();
    await dropAbandonedViews(context, view.appNumber);
  }
}

/** Reports the steps that are done of those that are expected; half of them where nobody knows how many there are. */
function progressOf(
  { stopping }: JobContext,
  { expected, unit }: RunnableBuild,
  report: Report,
): (steps: number) => Promise<void> {
  let reportedAtMs = 0;
  let done = 0;
  return async (steps) => {
    if (stopping.aborted) throw new JobInterruptedError('the service stops');
    done += steps;
    const nowMs = performance.now();
    if (nowMs - reportedAtMs < reportMs) return;
    reportedAtMs = nowMs;
    const share = expected === undefined ? 0.5 : done / Math.max(1, expected, done);
    await report(0.9 * share, `${done} ${unit}`);
  };
}

/** Why a build failed: a ServiceError cannot be remedied by trying again. */
async function reasonOf({ pool, stopping }: JobContext, build: Build, error: unknown): Promise<unknown> {
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
