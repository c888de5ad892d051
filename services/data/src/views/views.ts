import { conflict, invalid } from '@granary/shared/errors';
import { message } from '@granary/shared/rpc/types';
import type { CreateViewRequest } from '@granary/shared/gen/granary/data/v1/CreateViewRequest';
import type { DeleteViewResponse } from '@granary/shared/gen/granary/data/v1/DeleteViewResponse';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { ListViewsResponse } from '@granary/shared/gen/granary/data/v1/ListViewsResponse';
import type { View } from '@granary/shared/gen/granary/data/v1/View';
import type { ViewRequest } from '@granary/shared/gen/granary/data/v1/ViewRequest';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { ReadAccess } from '../catalog/collection';
import { enqueueJob, type JobKind, type JobOptions } from '../jobs/queue';
import { listPage } from '@granary/shared/postgres/listing';
import { ALREADY_EXISTS } from '../catalog/names';
import { checkDefinition, definitionOf, insertView } from './definition';
import { readLayout } from './layout';
import { beginRowLog } from './row-log';
import { findApp, type App } from '../catalog/app';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { storedPrice } from '../catalog/read-price';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import { requireView, viewColumns, viewNotFound, viewsWithApp, type ViewRef } from './view';
import { dropAbandonedViews } from './tables';
import type { PoolContext } from '../postgres/databases';

type ViewJobKind = Extract<JobKind, 'view.refresh' | 'view.change'>;

/** Views of one app, at most. */
export const viewsMax = 1_000;
interface Context extends PoolContext {
  log: Logger;
}

/**
 * Creates a view, and a job that fills it. Throws ALREADY_EXISTS when a view or collection has the name,
 * COLLECTION_NOT_FOUND, LIMIT_EXCEEDED, INVALID_QUERY; FORBIDDEN when it would make a private source public and the
 * caller may not publish.
 */
export async function createView(
  { pool, defaultRead }: PoolContext & { defaultRead: ReadAccess },
  request: CreateViewRequest,
): Promise<JobResponse> {
  const definition = definitionOf(request);
  const { name } = definition;
  const { ticketId } = request;
  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    if (await isCreated(tx, app, name, ticketId)) return { name, ticketId };
    const { readAccess, mayPublish } = request;
    const checked = await checkDefinition(tx, app, definition, { readAccess, mayPublish, defaultRead });
    const number = await insertView(tx, app, definition, checked);
    if (definition.keepsChanges) await beginRowLog(tx, { appNumber: app.number, number, name });
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return { name, ticketId: await enqueueRefresh(tx, app, number, name, { ticketId }) };
  });
}

/** Whether this call has created the view already: its response was lost. Throws ALREADY_EXISTS, LIMIT_EXCEEDED. */
async function isCreated(tx: Connection, app: App, name: string, ticketId: string): Promise<boolean> {
  const taken = (await row<{ ofThisCall: boolean; ofOthers: boolean; views: bigint }>(
    tx,
    sql`select exists (select from job j join view v on v.number::text = j.payload::json ->> 'view_number'
                       where j.ticket_id = ${ticketId} and j.app_number = ${app.number} and v.name = ${name}) as "ofThisCall",
          exists (select from view v where v.app_number = ${app.number} and v.name = ${name})
          or exists (select from collection c where c.app_number = ${app.number} and c.name = ${name}
                     and c.deleted_at is null) as "ofOthers",
          (select count(*) from view v where v.app_number = ${app.number} and v.replaces is null) as views`,
  ))!;
  if (taken.ofThisCall) return true;
  if (taken.ofOthers) throw conflict(ALREADY_EXISTS, `A collection or view with the name ${name} already exists`);
  if (taken.views >= viewsMax) throw invalid(`An app may have at most ${viewsMax} views`, {}, LIMIT_EXCEEDED);
  return false;
}

/**
 * Queues the refresh of a view, or the building of one that takes its place. Returns its ticket. Throws TOO_MANY_JOBS.
 */
export function enqueueRefresh(
  tx: Connection,
  app: App,
  number: bigint,
  name: string,
  { kind = 'view.refresh', ...options }: Pick<JobOptions, 'ticketId' | 'isRequired'> & { kind?: ViewJobKind },
): Promise<string> {
  const payload = { view_number: number.toString(), view_name: name };
  // A waiting refresh has read nothing yet: it will include all that was committed before this call.
  return enqueueJob(tx, app, kind, payload, { ...options, subject: number.toString() });
}

/** A page of the views of an app, by name. Throws INVALID_CURSOR. */
export async function listViews({ pool }: Context, request: ListRequest): Promise<ListViewsResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns: viewColumns,
    from: sql`${viewsWithApp} where v.app_number = ${app.number} and v.replaces is null`,
    key: [{ column: sql`v.name`, type: 'text' as const }],
    bytes: sql`octet_length(v.query_text) + octet_length(v.variables_text) + coalesce(octet_length(v.error), 0)
      + octet_length(array_to_string(v.source_collections, '","'))`,
    keyOf: ({ name }: ViewRef) => [name],
  };
  const { entries, nextCursor } = await listPage<ViewRef>(pool, source, request);
  return { views: entries.map(toView), nextCursor };
}

/** Throws VIEW_NOT_FOUND. */
export async function getView({ pool }: PoolContext, { appId, name }: ViewRequest): Promise<View> {
  return toView(await requireView(pool, appId, name));
}

function toView(view: ViewRef): View {
  return message<View>({
    name: view.name,
    queryJson: Buffer.from(view.queryText),
    sourceCollections: view.sourceCollections,
    refreshMode: view.refreshMode,
    variablesJson: Buffer.from(view.variablesText),
    readAccess: view.readAccess,
    status: view.status,
    error: view.error ?? undefined,
    rowCount: view.rowCount.toString(),
    unindexedJoinFields: [...readLayout(view.layoutText).unindexedFields],
    createdAt: view.createdAt.toISOString(),
    refreshedAt: view.refreshedAt?.toISOString(),
    readPriceConfig: storedPrice(view.readPriceText),
    keepsChanges: view.keepsChanges,
  });
}

/** Deletes a view with its rows. Throws VIEW_NOT_FOUND. */
export async function deleteView({ pool, log }: Context, request: ViewRequest): Promise<DeleteViewResponse> {
  const { appId, name } = request;
  const answer = await withAppLockOnce<DeleteViewResponse>(pool, request, async (tx, app) => {
    const deleted = await execute(tx, sql`delete from view where app_number = ${app.number} and name = ${name}`);
    if (deleted === 0) throw viewNotFound(name);
    await bumpCatalogRevision(tx, app.number);
    return {};
  });
  await dropAbandonedViews({ pool, log }, (await findApp(pool, appId)).number);
  return answer;
}

/**
 * Queues a refresh. Returns its ticket, or that of a refresh that is waiting already. Throws VIEW_NOT_FOUND,
 * TOO_MANY_JOBS.
 */
export async function refreshView({ pool }: Context, request: ViewRequest): Promise<JobResponse> {
  const { appId, name, ticketId } = request;
  const refresh = async (tx: Connection): Promise<JobResponse> => {
    const view = await requireView(tx, appId, name);
    const repeated = await row(
      tx,
      sql`select from job where ticket_id = ${ticketId} and app_number = ${view.appNumber}`,
    );
    if (repeated) return { name, ticketId };
    const app = { number: view.appNumber, appId };
    return { name, ticketId: await enqueueRefresh(tx, app, view.number, name, { ticketId }) };
  };
  const key = toIdempotencyKey(request.idempotency);
  return retriedTransaction(pool, (tx) => once(tx, key, () => refresh(tx)));
}
