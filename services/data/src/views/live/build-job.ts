import { execute, row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { JobInterruptedError, type JobContext, type Report } from '../../jobs/queue';
import { deletedView } from '../build';
import { failBuild, reasonOf, refreshViewJob } from '../refresh-job';
import { dropAbandonedViews } from '../tables';
import { viewColumns, viewsWithApp, type ViewRef } from '../view';
import { beginLiveBuild, runLiveBuild, type LiveBuild } from './build';

/** The job that fills a view: a lazy one again, or a live one whose rows follow the writes from then on. */
export async function buildViewJob(
  context: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const number = BigInt(String(payload['view_number']));
  const view = await row<ViewRef>(
    context.pool,
    sql`select ${viewColumns} from ${viewsWithApp} where v.number = ${number}`,
  );
  if (!view) throw deletedView();
  return view.refreshMode === 'lazy' ? refreshViewJob(context, payload, report) : buildLiveView(context, view, report);
}

/** How often progress is reported, at most. */
const reportMs = 1_000;

async function buildLiveView(context: JobContext, { number, ...view }: ViewRef, report: Report): Promise<object> {
  const { pool } = context;
  const build = await beginLiveBuild(pool, { number, ...view });
  await dropAbandonedViews(context, view.appNumber);
  try {
    const rows = await runLiveBuild(pool, build, progressOf(context, build, report));
    return { view_name: view.name, row_count: rows };
  } catch (error) {
    const reason = await reasonOf(context, build, error);
    if (!(reason instanceof JobInterruptedError)) {
      // The rows that are there follow the writes still.
      await failBuild(pool, build, reason, sql`table_number is null`);
    }
    const ours = sql`number = ${number} and building_table_number = ${build.table.number}`;
    await execute(pool, sql`update view set building_table_number = null where ${ours}`);
    throw reason;
  } finally {
    await dropAbandonedViews(context, view.appNumber);
  }
}

/** Reports the documents that have been read, of as many as there are. */
function progressOf(
  { stopping }: JobContext,
  { base, partner }: LiveBuild,
  report: Report,
): (documents: number) => Promise<void> {
  const documents = Number(base.rowCount + (partner?.rowCount ?? 0n));
  let reportedAtMs = 0;
  let done = 0;
  return async (read) => {
    if (stopping.aborted) throw new JobInterruptedError('the service stops');
    done += read;
    const nowMs = performance.now();
    if (nowMs - reportedAtMs < reportMs) return;
    reportedAtMs = nowMs;
    const progress = (0.9 * done) / Math.max(1, documents, done);
    await report(progress, `${done} documents read`);
  };
}
