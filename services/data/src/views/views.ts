import { conflict, forbidden, invalid } from '@granary/shared/errors';
import { message } from '@granary/shared/rpc/types';
import type { CreateViewRequest } from '@granary/shared/gen/granary/data/v1/CreateViewRequest';
import type { DeleteViewResponse } from '@granary/shared/gen/granary/data/v1/DeleteViewResponse';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { ListViewsResponse } from '@granary/shared/gen/granary/data/v1/ListViewsResponse';
import type { View } from '@granary/shared/gen/granary/data/v1/View';
import type { ViewRequest } from '@granary/shared/gen/granary/data/v1/ViewRequest';
import { toText } from '@granary/shared/json/value';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { nameRule } from '@granary/shared/names';
import { findCollections, type CollectionRef, type ReadAccess } from '../catalog/collection';
import { enqueueJob, type JobOptions } from '../jobs/queue';
import { listPage } from '../listings/listing';
import { ALREADY_EXISTS, isName } from '../catalog/names';
import { noSuchCollection } from '../catalog/near-collection';
import { invalidQuery } from '../query/language/query-error';
import { resolveReferences } from '../query/execute/references';
import { readJsonText } from '../query/language/paging';
import { assertLiveQuery, liveViewsMax } from './language/live-support';
import { parseViewQuery, type ViewQuery } from './language/view-query';
import { assertPlainSources } from './encrypted-sources';
import { layoutOf, readLayout } from './layout';
import { assertOperands } from '../query/plan/operands';
import { planView } from './plan/view-plan';
import { viewRows } from './sql/view-sql';
import { findApp, type App } from '../catalog/app';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { priceText, storedPrice } from '../catalog/read-price';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import { requireView, viewColumns, viewNotFound, viewsWithApp, type ViewRef } from './view';
import { dropAbandonedViews } from './tables';
import { checkVariableLengths, parseVariables } from './variables';

/** Views of one app, at most. */
export const viewsMax = 1_000;
interface Context {
  pool: Pool;
  log: Logger;
}

/**
 * Creates a view, and a job that fills it. Throws ALREADY_EXISTS when a view or collection has the name,
 * COLLECTION_NOT_FOUND, LIMIT_EXCEEDED, INVALID_QUERY; FORBIDDEN when it would make a private source public and the
 * caller may not publish.
 */
export async function createView(
  { pool }: Context,
  request: CreateViewRequest,
  defaultRead: ReadAccess,
): Promise<JobResponse> {
  const definition = definitionOf(request);
  const { name } = definition;
  const { ticketId } = request;
  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    if (await isCreated(tx, app, name, ticketId)) return { name, ticketId };
    const sources = await requireSources(tx, app, definition.sourceCollections);
    assertPlainSources(definition.query, sources.values());
    if (definition.refreshMode === 'live') await checkLiveViews(tx, app, definition.sourceCollections);
    const readAccess = readAccessOf(sources, request, defaultRead);
    const number = await insertView(tx, app, definition, readAccess, await checkedLayout(tx, app, definition, sources));
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return { name, ticketId: await enqueueRefresh(tx, app, number, name, { ticketId }) };
  });
}

interface ViewDefinition {
  name: string;
  queryText: string;
  query: ViewQuery;
  variablesText: string;
  variables: ReturnType<typeof parseVariables>;
  sourceCollections: string[];
  refreshMode: string;
  readPriceText: string | null;
}

/** The definition that is asked for. Throws VALIDATION_FAILED, INVALID_QUERY, LIMIT_EXCEEDED. */
function definitionOf(request: CreateViewRequest): ViewDefinition {
  const { name, sourceCollections } = request;
  if (!isName(name)) throw invalid('The name is not valid', { name: [nameRule] });
  const refreshMode = request.refreshMode || 'lazy';
  if (refreshMode !== 'lazy' && refreshMode !== 'live') throw invalidQuery('refresh_mode', 'must be lazy or live');
  if (!['', 'public', 'private'].includes(request.readAccess)) {
    throw invalidQuery('access_policy.read', 'must be public or private');
  }
  const queryText = textOf(request.queryJson, 'query');
  const variablesText = textOf(request.variablesJson, 'variables');
  const queryValue = readJsonText(Buffer.from(queryText), 'query');
  // A view that is stored with it keeps all rows.
  if (queryValue instanceof Map && queryValue.get('limit') === null)
    throw invalidQuery('query.limit', 'must not be null');
  const query = parseViewQuery(queryValue, sourceCollections);
  if (refreshMode === 'live') assertLiveQuery(query);
  const variables = parseVariables(variablesText);
  checkVariableLengths(variables);
  const readPriceText = priceText(request.readPriceConfig);
  return { name, queryText, query, variablesText, variables, sourceCollections, refreshMode, readPriceText };
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
          (select count(*) from view v where v.app_number = ${app.number}) as views`,
  ))!;
  if (taken.ofThisCall) return true;
  if (taken.ofOthers) throw conflict(ALREADY_EXISTS, `A collection or view with the name ${name} already exists`);
  if (taken.views >= viewsMax) throw invalid(`An app may have at most ${viewsMax} views`, {}, LIMIT_EXCEEDED);
  return false;
}

/** Throws COLLECTION_NOT_FOUND with the name that is near. */
async function requireSources(tx: Connection, app: App, names: readonly string[]): Promise<Map<string, CollectionRef>> {
  const found = new Map((await findCollections(tx, app, names)).map((source) => [source.name, source]));
  const missing = names.find((name) => !found.has(name));
  if (missing !== undefined) throw await noSuchCollection(tx, app, missing);
  return found;
}

/** Throws LIMIT_EXCEEDED where a collection has as many live views as it may. */
async function checkLiveViews(tx: Connection, app: App, names: readonly string[]): Promise<void> {
  const found = await row<{ name: string }>(
    tx,
    sql`select s.name from view v cross join unnest(v.source_collections) s(name)
        where v.app_number = ${app.number} and v.refresh_mode = 'live' and s.name = any(${names})
        group by s.name having count(*) >= ${liveViewsMax} limit 1`,
  );
  if (found) throw invalid(`The collection ${found.name} has ${liveViewsMax} live views already`, {}, LIMIT_EXCEEDED);
}

/** Who may read the view; private by default where a source is. Throws FORBIDDEN. */
function readAccessOf(
  sources: ReadonlyMap<string, CollectionRef>,
  request: CreateViewRequest,
  defaultRead: ReadAccess,
): string {
  const showsPrivate = [...sources.values()].some((source) => source.readAccess === 'private');
  if (showsPrivate && request.readAccess === 'public' && !request.mayPublish) {
    throw forbidden('A public view of a private collection needs the permission Admin');
  }
  return request.readAccess || (showsPrivate ? 'private' : defaultRead);
}

/** The layout of a view, after making its statement: what its sources do not allow is refused now. Throws INVALID_QUERY. */
async function checkedLayout(
  tx: Connection,
  app: App,
  { query, variables }: ViewDefinition,
  sources: ReadonlyMap<string, CollectionRef>,
): Promise<string> {
  const find = await resolveReferences(tx, app.appId, query.find);
  const plan = planView({ ...query, find }, sources);
  assertOperands(plan.rows, find);
  viewRows(plan);
  return JSON.stringify(
    layoutOf(
      plan,
      [...variables.values()].map(({ path }) => path),
    ),
  );
}

async function insertView(
  tx: Connection,
  app: App,
  view: ViewDefinition,
  readAccess: string,
  layoutText: string,
): Promise<bigint> {
  const { name, queryText, variablesText, sourceCollections, refreshMode } = view;
  const { number } = (await row<{ number: bigint }>(
    tx,
    sql`insert into view (app_number, name, query_text, source_collections, refresh_mode, variables_text, read_access,
          layout_text, read_price_config_text, status, created_at)
        values (${app.number}, ${name}, ${queryText}, ${sourceCollections}, ${refreshMode}, ${variablesText},
          ${readAccess}, ${layoutText}, ${view.readPriceText}, 'building', clock_timestamp()) returning number`,
  ))!;
  return number;
}

/** Queues the refresh of a view. Returns its ticket. Throws TOO_MANY_JOBS. */
export function enqueueRefresh(
  tx: Connection,
  app: App,
  number: bigint,
  name: string,
  options: Pick<JobOptions, 'ticketId' | 'isRequired'>,
): Promise<string> {
  const payload = { view_number: number.toString(), view_name: name };
  // A waiting refresh has read nothing yet: it will include all that was committed before this call.
  return enqueueJob(tx, app, 'view.refresh', payload, { ...options, subject: number.toString() });
}

/** JSON text of an object, without the white space that it came with; `{}` for none. */
function textOf(bytes: Uint8Array, at: string): string {
  if (bytes.length === 0) return '{}';
  const value = readJsonText(Buffer.from(bytes), at);
  if (value === null) return '{}';
  if (!(value instanceof Map)) throw invalidQuery(at, 'must be an object');
  return toText(value);
}

/** A page of the views of an app, by name. Throws INVALID_CURSOR. */
export async function listViews({ pool }: Context, request: ListRequest): Promise<ListViewsResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns: viewColumns,
    from: sql`${viewsWithApp} where v.app_number = ${app.number}`,
    key: [{ column: sql`v.name`, type: 'text' as const }],
    bytes: sql`octet_length(v.query_text) + octet_length(v.variables_text) + coalesce(octet_length(v.error), 0)
      + octet_length(array_to_string(v.source_collections, '","'))`,
    keyOf: ({ name }: ViewRef) => [name],
  };
  const { entries, nextCursor } = await listPage<ViewRef>(pool, source, request);
  return { views: entries.map(toView), nextCursor };
}

/** Throws VIEW_NOT_FOUND. */
export async function getView({ pool }: Context, appId: string, name: string): Promise<View> {
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

/** Queues a refresh. Returns its ticket, or that of a refresh that is waiting already. Throws VIEW_NOT_FOUND, TOO_MANY_JOBS. */
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
