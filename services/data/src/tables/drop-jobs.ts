import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { named, sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { commitsTable } from '../chain/commit-log';
import { erasuresTable } from '../chain/erasure-log';
import type { JobContext, Report } from '../jobs/queue';
import {
  documentsTable,
  historyTable,
  viewEntriesTable,
  viewJoinKeysTable,
  viewLogTable,
  viewTable,
} from '../catalog/table-names';
import { cancelBuilds } from './build-job';

/** Drops a table in a transaction of its own: many at once would need a lock for each. */
async function dropTable(pool: Pool, table: Sql): Promise<void> {
  await retriedTransaction(pool, (tx) => execute(tx, sql`drop table if exists ${table}`), {
    statementTimeoutMs: 60_000,
  });
}

/** The job behind the deletion of a collection: its tables and those of the views that went with it. */
export async function dropCollectionJob({ pool }: JobContext, payload: Record<string, unknown>): Promise<object> {
  const number = BigInt(String(payload['collection_number']));
  const [collection] = await rows<{ app_number: bigint }>(
    pool,
    sql`select app_number from collection where number = ${number}`,
  );
  if (!collection) return {};
  // A build holds its table for as long as it takes.
  await cancelBuilds(pool, sql`i.collection_number = ${number}`);
  const table = { appNumber: collection.app_number, number };
  const views = (payload['view_tables'] as string[])
    .map(BigInt)
    .flatMap((view) =>
      [viewTable, viewEntriesTable, viewJoinKeysTable].map((table) => table(collection.app_number, view)),
    );
  for (const one of [documentsTable(table), historyTable(table), ...views]) await dropTable(pool, one);
  await execute(pool, sql`delete from document_index where collection_number = ${number}`);
  await execute(pool, sql`delete from indexed_field where collection_number = ${number}`);
  await execute(pool, sql`delete from encrypted_field where collection_number = ${number}`);
  await execute(pool, sql`update collection set dropped_at = now() where number = ${number}`);
  return {};
}

/** A table of an app by the name that the catalog of Postgres has. */
function tableOf(appNumber: bigint, name: string): Sql {
  const match = /^([chvdwj]_)(\d+)$/.exec(name);
  if (match) return named('a_', appNumber, `.${match[1]!}`, BigInt(match[2]!));
  const table = tablesOfApp.get(name);
  if (!table) throw new Error(`an app has a table ${name}, which is none of ours`);
  return table(appNumber);
}

/** The tables that an app has once, by their names. */
const tablesOfApp = new Map([
  ['commits', commitsTable],
  ['erasures', erasuresTable],
  ['view_log', viewLogTable],
]);

/** The job behind the deletion of an app: table by table, then its schema. */
export async function dropAppJob(
  { pool }: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const number = BigInt(String(payload['app_number']));
  const schema = named('a_', number);
  await cancelBuilds(pool, sql`i.app_number = ${number}`);
  const tables = await rows<{ relname: string }>(
    pool,
    sql`select relname from pg_class where relnamespace = to_regnamespace(${`a_${number}`}) and relkind = 'r' order by relname`,
  );
  for (const [index, { relname }] of tables.entries()) {
    await dropTable(pool, tableOf(number, relname));
    if (index % 50 === 49)
      await report((0.9 * index) / tables.length, `${index + 1} of ${tables.length} tables dropped`);
  }
  await execute(pool, sql`drop schema if exists ${schema}`);
  for (const table of [
    'document_index',
    'indexed_field',
    'encrypted_field',
    'data_key',
    'query',
    'view',
    'dataset',
    'import',
  ] as const) {
    await execute(pool, sql`delete from ${named(table)} where app_number = ${number}`);
  }
  await execute(pool, sql`update application set dropped_at = now() where number = ${number}`);
  return {};
}
