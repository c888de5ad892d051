import { invalid, ServiceError } from '@granary/shared/errors';
import type { Dataset } from '@granary/shared/gen/granary/data/v1/Dataset';
import type { DatasetRequest } from '@granary/shared/gen/granary/data/v1/DatasetRequest';
import type { DeleteDatasetResponse } from '@granary/shared/gen/granary/data/v1/DeleteDatasetResponse';
import type { ListDatasetsResponse } from '@granary/shared/gen/granary/data/v1/ListDatasetsResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { PutDatasetRequest } from '@granary/shared/gen/granary/data/v1/PutDatasetRequest';
import { FairScheduler } from '@granary/shared/concurrency/fair-scheduler';
import type { Logger } from '@granary/shared/logger';
import { nameRule } from '@granary/shared/names';
import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { findApp, type App } from '../catalog/app';
import { lockApp, withAppLockOnce } from '../catalog/app-lock';
import { datasetNotFound } from '../catalog/dataset';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import { isName } from '../catalog/names';
import { listPage } from '@granary/shared/postgres/listing';
import { dropAbandoned } from '../tables/abandoned';
import { makeDatasetTable } from './table';
import { datasetTables, type DatasetTableSweeper } from './table-sweeper';
import { parseDatasetBody, type DatasetValues } from './values';

/** Data sets of one app. */
export const datasetsMax = 100;
/** The statement timeout throughout the transaction that makes a table of 100,000 values. */
const replaceTimeoutMs = 60_000;

export interface DatasetContext {
  pool: Pool;
  log: Logger;
  /** The scheduler of replacements: each parses up to 5 MiB and holds a connection for as long as its copy takes. */
  replacements: FairScheduler;
  /** Drops the tables that replacements leave. */
  sweeper: Pick<DatasetTableSweeper, 'sweepLater'>;
}

/** Few at a time, so that an app which replaces its data sets all the time leaves connections to others. */
export const datasetReplacements = (): FairScheduler =>
  new FairScheduler({
    concurrency: 2,
    concurrencyPerKey: 1,
    queueMax: 32,
    queueMaxPerFlow: 8,
    refusal: () =>
      new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many replacements of data sets are waiting'),
  });

interface DatasetInfo {
  name: string;
  value_count: number;
  size_bytes: number;
  updated_at: Date;
}

const infoColumns = sql`name, value_count, octet_length(values_text) as size_bytes, updated_at`;

const toDataset = ({ name, value_count, size_bytes, updated_at }: DatasetInfo) => ({
  name,
  count: value_count,
  sizeBytes: size_bytes,
  updatedAt: updated_at.toISOString(),
});

/**
 * Replaces a data set as a whole, or creates it. Who reads meanwhile sees the old values or the new ones. Throws
 * APP_NOT_FOUND, VALIDATION_FAILED, MALFORMED_JSON, LIMIT_EXCEEDED, TOO_MANY_REQUESTS.
 */
export async function putDataset(context: DatasetContext, request: PutDatasetRequest): Promise<Dataset> {
  const { appId, name } = request;
  if (!isName(name)) throw invalid('The name is not valid', { name: [nameRule] });
  const key = toIdempotencyKey(request.idempotency);
  return context.replacements.run(appId, async () => {
    const values = await parseDatasetBody(request.body);
    const { app, saved } = await retriedTransaction(
      context.pool,
      async (tx) => {
        const app = await findApp(tx, appId);
        return { app, saved: await once(tx, key, () => replaceDataset(tx, app, name, values)) };
      },
      { statementTimeoutMs: replaceTimeoutMs },
    );
    context.sweeper.sweepLater(app.number);
    return saved;
  });
}

/** The table is made before the app is locked, so that commits wait for the swap only. */
async function replaceDataset(tx: Connection, app: App, name: string, values: DatasetValues): Promise<Dataset> {
  const { tableNumber } = await makeDatasetTable(tx, app.number, values.rows);
  await lockApp(tx, app.number);
  const { exists, others } = (await row<{ exists: boolean; others: bigint }>(
    tx,
    sql`select coalesce(bool_or(name = ${name}), false) as exists, count(*) filter (where name <> ${name}) as others
        from dataset where app_number = ${app.number}`,
  ))!;
  if (others >= datasetsMax) throw invalid(`An app may have at most ${datasetsMax} data sets`, {}, LIMIT_EXCEEDED);
  const saved = await row<DatasetInfo>(
    tx,
    sql`insert into dataset as d (app_number, name, table_number, value_count, values_text, updated_at)
        values (${app.number}, ${name}, ${tableNumber}, ${values.count}, ${values.text}, clock_timestamp())
        on conflict (app_number, name) do update
          set table_number = excluded.table_number, value_count = excluded.value_count, values_text = excluded.values_text,
            updated_at = excluded.updated_at
        returning ${infoColumns}`,
  );
  return { ...toDataset(saved!), valuesJson: Buffer.alloc(0), created: !exists };
}

/** A page of the data sets of an app, by name, without their values. Throws APP_NOT_FOUND, INVALID_CURSOR. */
export async function listDatasets({ pool }: { pool: Pool }, request: ListRequest): Promise<ListDatasetsResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns: infoColumns,
    from: sql`dataset where app_number = ${app.number}`,
    key: [{ column: sql`name`, type: 'text' as const }],
    bytes: sql`0`,
    keyOf: ({ name }: DatasetInfo) => [name],
  };
  const { entries, nextCursor } = await listPage<DatasetInfo>(pool, source, request);
  return { datasets: entries.map((info) => ({ ...toDataset(info), valuesJson: Buffer.alloc(0) })), nextCursor };
}

/** A data set with its values, as they were sent. Throws APP_NOT_FOUND, DATASET_NOT_FOUND. */
export async function getDataset({ pool }: { pool: Pool }, { appId, name }: DatasetRequest): Promise<Dataset> {
  const app = await findApp(pool, appId);
  const dataset = await row<DatasetInfo & { values_text: string }>(
    pool,
    sql`select ${infoColumns}, values_text from dataset where app_number = ${app.number} and name = ${name}`,
  );
  if (!dataset) throw datasetNotFound(name);
  return { ...toDataset(dataset), valuesJson: Buffer.from(dataset.values_text) };
}

/** Throws APP_NOT_FOUND, DATASET_NOT_FOUND. */
export async function deleteDataset(context: DatasetContext, request: DatasetRequest): Promise<DeleteDatasetResponse> {
  const { pool } = context;
  const { appId, name } = request;
  const deleted = await withAppLockOnce<DeleteDatasetResponse>(pool, request, async (tx, app) => {
    const count = await execute(tx, sql`delete from dataset where app_number = ${app.number} and name = ${name}`);
    if (count === 0) throw datasetNotFound(name);
    return {};
  });
  await dropAbandoned(context, (await findApp(pool, appId)).number, datasetTables);
  return deleted;
}
