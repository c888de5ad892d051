import { conflict, forbidden, invalid, notFound, notImplemented, ServiceError } from '@granary/shared/errors';
import { message, type Call } from '@granary/shared/rpc/types';
import type { CreateViewRequest } from '@granary/shared/gen/granary/data/v1/CreateViewRequest';
import type { DeleteViewResponse } from '@granary/shared/gen/granary/data/v1/DeleteViewResponse';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import type { ListRequest } from '@granary/shared/gen/granary/data/v1/ListRequest';
import type { ListViewsResponse } from '@granary/shared/gen/granary/data/v1/ListViewsResponse';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import type { View } from '@granary/shared/gen/granary/data/v1/View';
import type { ViewRequest } from '@granary/shared/gen/granary/data/v1/ViewRequest';
import { toText } from '@granary/shared/json/value';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import {
  COLLECTION_NOT_FOUND,
  findCollection,
  viewTable,
  type CollectionRef,
  type ReadAccess,
} from '../catalog/collection';
import { enqueueJob, type JobContext, type Report } from '../jobs/queue';
import { listPage } from '../listings/listing';
import { ALREADY_EXISTS, isName, nameRule } from '../catalog/names';
import { abandonedTables, fillView, nextTableNumber } from './fill';
import { and, invalidQuery, overLimit, parseFind, parseName, type Condition } from '../query/language/filter';
import { conditionOfText, parametersByName, refused, take } from '../query/language/url-filter';
import { AppDatabases, type SharedDatabases } from '../query/execute/read-scheduler';
import { readDocuments, withFreshSource } from '../query/execute/read-page';
import {
  needsKey,
  numberOfText,
  parseCount,
  parseCursor,
  parseLimit,
  parseOffset,
  parseSelect,
  parseSortList,
  readJsonText,
} from '../query/language/paging';
import { rowsOfView } from '../query/plan/relation';
import { parseViewQuery } from '../query/language/view-query';
import { findApp, type App } from '../catalog/app';
import { checkDefinitionBytes, LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { once, toIdempotencyKey } from '../catalog/idempotency';

export const VIEW_NOT_FOUND = 'VIEW_NOT_FOUND';

/** Views of one app, at most. */
export const viewsMax = 1_000;
export const variablesMax = 64;
const variableNameMax = 200;
const variablePathMax = 500;
/** A rebuild that takes longer has failed. */
const rebuildTimeoutMs = 600_000;
/** How often a rebuild says that it is alive, well within the lease of its job. */
const reportEveryMs = 15_000;

/** Parameters of endpoint 8 that no variable may be named after. */
const reservedParameters = new Set(['filter', 'select', 'sort', 'limit', 'offset', 'cursor', 'count']);

interface Context {
  pool: Pool;
  log: Logger;
}

export interface ViewRef {
  appNumber: bigint;
  appId: string;
  number: bigint;
  name: string;
  queryText: string;
  sourceCollections: string[];
  refreshMode: string;
  variablesText: string;
  readAccess: string;
  status: string;
  error: string | null;
  tableNumber: bigint | null;
  rowCount: bigint;
  createdAt: Date;
  refreshedAt: Date | null;
}

const viewColumns = sql`v.app_number as "appNumber", a.app_id as "appId", v.number, v.name, v.query_text as "queryText",
  v.source_collections as "sourceCollections", v.refresh_mode as "refreshMode", v.variables_text as "variablesText",
  v.read_access as "readAccess", v.status, v.error, v.table_number as "tableNumber", v.row_count as "rowCount",
  v.created_at as "createdAt", v.refreshed_at as "refreshedAt"`;
const viewRelation = sql`view v join application a on a.number = v.app_number and a.deleted_at is null`;

/** A view of an app, undefined when there is none of this name. */
export function findView(db: Queryable, app: { number: bigint }, name: string): Promise<ViewRef | undefined> {
  return row<ViewRef>(
    db,
    sql`select ${viewColumns} from ${viewRelation} where v.app_number = ${app.number} and v.name = ${name}`,
  );
}

async function requireView(db: Queryable, appId: string, name: string): Promise<ViewRef> {
  const view = await findView(db, await findApp(db, appId), name);
  if (!view) throw viewNotFound(name);
  return view;
}

const viewNotFound = (name: string): ServiceError => notFound(VIEW_NOT_FOUND, `There is no view ${name}`);

/**
 * Makes a view, and a job that fills it. Throws ALREADY_EXISTS when a view or collection has the name,
 * COLLECTION_NOT_FOUND, LIMIT_EXCEEDED, INVALID_QUERY; FORBIDDEN when it would show a private source in public and the
 * caller may not publish; NOT_IMPLEMENTED for live views and joins.
 */
export async function createView(
  { pool }: Context,
  request: CreateViewRequest,
  defaultRead: ReadAccess,
): Promise<JobResponse> {
  const { name, sourceCollections, ticketId } = request;
  if (!isName(name)) throw invalid('The name is not valid', { name: [nameRule] });
  const refreshMode = request.refreshMode || 'lazy';
  if (refreshMode === 'live') throw notImplemented('refresh_mode live');
  if (refreshMode !== 'lazy') throw invalidQuery('refresh_mode', 'must be lazy or live');
  if (!['', 'public', 'private'].includes(request.readAccess))
    throw invalidQuery('access_policy.read', 'must be public or private');
  const queryText = textOf(request.queryJson, 'query');
  const variablesText = textOf(request.variablesJson, 'variables');
  parseViewQuery(readJsonText(Buffer.from(queryText), 'query'), sourceCollections);
  checkVariableLengths(parseVariables(variablesText));

  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    const taken = (await row<{ ofThisCall: boolean; ofOthers: boolean; views: bigint }>(
      tx,
      sql`select exists (select from job j join view v on v.number::text = j.payload::json ->> 'view_number'
                         where j.ticket_id = ${ticketId} and j.app_number = ${app.number} and v.name = ${name}) as "ofThisCall",
            exists (select from view v where v.app_number = ${app.number} and v.name = ${name})
            or exists (select from collection c where c.app_number = ${app.number} and c.name = ${name}
                       and c.deleted_at is null) as "ofOthers",
            (select count(*) from view v where v.app_number = ${app.number}) as views`,
    ))!;
    // The caller repeats a call whose answer was lost.
    if (taken.ofThisCall) return { name, ticketId };
    if (taken.ofOthers) throw conflict(ALREADY_EXISTS, `A collection or view with the name ${name} already exists`);
    if (taken.views >= viewsMax) throw invalid(`An app may have at most ${viewsMax} views`, {}, LIMIT_EXCEEDED);
    const sources: CollectionRef[] = [];
    for (const source of sourceCollections) sources.push(await requireSource(tx, app, source));
    const showsPrivate = sources.some((source) => source.readAccess === 'private');
    if (showsPrivate && request.readAccess === 'public' && !request.mayPublish) {
      throw forbidden('A public view of a private collection needs the permission Admin');
    }
    const { number } = (await row<{ number: bigint }>(
      tx,
      sql`insert into view (app_number, name, query_text, source_collections, refresh_mode, variables_text, read_access,
            status, created_at)
          values (${app.number}, ${name}, ${queryText}, ${sourceCollections}, ${refreshMode}, ${variablesText},
            ${request.readAccess || (showsPrivate ? 'private' : defaultRead)}, 'building', clock_timestamp()) returning number`,
    ))!;
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return { name, ticketId: await enqueueRefresh(tx, app, number, name, ticketId) };
  });
}

async function requireSource(tx: Connection, app: App, name: string): Promise<CollectionRef> {
  const handle = await findCollection(tx, app, name);
  if (!handle) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  return handle;
}

function enqueueRefresh(tx: Connection, app: App, number: bigint, name: string, ticketId: string): Promise<string> {
  const payload = { view_number: number.toString(), view_name: name };
  // A refresh that waits has yet to read: it shows all that was committed before this call.
  return enqueueJob(tx, app, 'view.refresh', payload, { ticketId, subject: number.toString() });
}

/** JSON text of an object, without the white space that it came with; `{}` for none. */
function textOf(bytes: Uint8Array, at: string): string {
  if (bytes.length === 0) return '{}';
  const value = readJsonText(Buffer.from(bytes), at);
  if (value === null) return '{}';
  if (!(value instanceof Map)) throw invalidQuery(at, 'must be an object');
  return toText(value);
}

/** Longer ones may be there from before the limit, so they are only refused when a view is made. */
function checkVariableLengths(variables: ReturnType<typeof parseVariables>): void {
  for (const [name, { path }] of variables) {
    if (name.length > variableNameMax) {
      throw overLimit('variables', `may have names of at most ${variableNameMax} characters`);
    }
    if (path.join('.').length > variablePathMax) {
      throw overLimit(`variables.${name}`, `may be a path of at most ${variablePathMax} characters`);
    }
  }
}

/** The variables of a view: name of the URL parameter → path with perhaps an operator. */
function parseVariables(text: string): Map<string, ReturnType<typeof parseName>> {
  const variables = readJsonText(Buffer.from(text), 'variables');
  if (!(variables instanceof Map)) throw invalidQuery('variables', 'must be an object');
  if (variables.size > variablesMax) throw overLimit('variables', `may hold at most ${variablesMax} variables`);
  return new Map(
    [...variables].map(([name, path]) => {
      const at = `variables.${name}`;
      if (name === '' || reservedParameters.has(name)) throw invalidQuery(at, 'has a name that is reserved');
      if (typeof path !== 'string') throw invalidQuery(at, 'must be the path of a field');
      return [name, parseName(path, at)];
    }),
  );
}

/** A page of the views of an app, by name. Throws INVALID_CURSOR. */
export async function listViews({ pool }: Context, request: ListRequest): Promise<ListViewsResponse> {
  const app = await findApp(pool, request.appId);
  const source = {
    columns: viewColumns,
    from: sql`${viewRelation} where v.app_number = ${app.number}`,
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
    createdAt: view.createdAt.toISOString(),
    refreshedAt: view.refreshedAt?.toISOString(),
  });
}

/** Takes a view away, and its rows. Throws VIEW_NOT_FOUND. */
export async function deleteView({ pool, log }: Context, request: ViewRequest): Promise<DeleteViewResponse> {
  const { appId, name } = request;
  const answer = await withAppLockOnce<DeleteViewResponse>(pool, request, async (tx, app) => {
    const deleted = await execute(tx, sql`delete from view where app_number = ${app.number} and name = ${name}`);
    if (deleted === 0) throw viewNotFound(name);
    await bumpCatalogRevision(tx, app.number);
    return {};
  });
  await dropAbandoned({ pool, log }, (await findApp(pool, appId)).number);
  return answer;
}

/** Asks for a refresh. Returns its ticket, or that of a refresh which waits already. Throws VIEW_NOT_FOUND, TOO_MANY_JOBS. */
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
    return { name, ticketId: await enqueueRefresh(tx, app, view.number, name, ticketId) };
  };
  const key = toIdempotencyKey(request.idempotency);
  return retriedTransaction(pool, (tx) => once(tx, key, () => refresh(tx)));
}

/**
 * The job behind a refresh: fills a fresh table from one snapshot and puts it in the place of the old one. Readers go
 * on with the old rows until then.
 */
export async function refreshViewJob(
  context: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const { pool } = context;
  const number = BigInt(String(payload['view_number']));
  const beat = setInterval(() => void report(0.5, 'still filling').catch(() => undefined), reportEveryMs);
  try {
    const { appNumber, rowCount } = await retriedTransaction(pool, (tx) => rebuild(tx, number), {
      isolation: 'repeatable read',
      statementTimeoutMs: rebuildTimeoutMs,
    });
    await dropAbandoned(context, appNumber);
    return { view_name: payload['view_name'], row_count: Number(rowCount) };
  } catch (error) {
    const text = error instanceof ServiceError ? error.message : 'The view could not be filled';
    await execute(pool, sql`update view set status = 'failed', error = ${text} where number = ${number}`);
    throw error;
  } finally {
    clearInterval(beat);
  }
}

async function rebuild(tx: Connection, number: bigint): Promise<{ appNumber: bigint; rowCount: bigint }> {
  const view = await row<ViewRef>(tx, sql`select ${viewColumns} from ${viewRelation} where v.number = ${number}`);
  if (!view) throw notFound(VIEW_NOT_FOUND, 'The view was deleted');
  const { appNumber, appId } = view;
  const query = parseViewQuery(readJsonText(Buffer.from(view.queryText), 'query'), view.sourceCollections);
  const handle = await findCollection(tx, { number: appNumber, appId }, query.base);
  if (!handle) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${query.base}`);
  const tableNumber = await nextTableNumber(tx);
  const rowCount = await fillView(tx, viewTable(appNumber, tableNumber), handle, query);
  await execute(
    tx,
    sql`update view set table_number = ${tableNumber}, row_count = ${rowCount}, status = 'ready', error = null,
          refreshed_at = clock_timestamp() where number = ${number}`,
  );
  return { appNumber, rowCount };
}

/** Drops the tables that no view has any more. What stays because someone reads it is dropped the next time. */
async function dropAbandoned({ pool, log }: Context, appNumber: bigint): Promise<void> {
  try {
    await retriedTransaction(pool, async (tx) => {
      for (const number of await abandonedTables(tx, appNumber)) {
        await execute(tx, sql`drop table if exists ${viewTable(appNumber, number)}`);
      }
    });
  } catch (error) {
    log.warn({ err: error, app: appNumber.toString() }, 'tables of views were left');
  }
}

/**
 * Answers endpoint 8: `filter`, `select`, `sort`, `limit`, `offset` and the variables of the view. Throws
 * VIEW_NOT_FOUND, UNAUTHENTICATED for a private view, and for a parameter that the view does not know.
 */
export async function readView(db: SharedDatabases, request: ReadRequest, call: Pick<Call, 'signal'>): Promise<Buffer> {
  return withFreshSource(async () => {
    const view = await requireView(db.pool, request.appId, request.name);
    if (view.readAccess === 'private' && !request.mayReadPrivate) throw needsKey('view');
    const parameters = parametersByName(request.parameters);
    const offset = parseOffset(numberOfText(take(parameters, 'offset')));
    const cursor = parseCursor(take(parameters, 'cursor'), offset);
    const filter = take(parameters, 'filter');
    const conditions: Condition[] = [];
    if (filter !== undefined && filter !== '') {
      conditions.push(parseFind(readJsonText(Buffer.from(filter), 'filter'), 'filter'));
    }
    const options = {
      projection: parseSelect(take(parameters, 'select')),
      sort: parseSortList(take(parameters, 'sort')),
      limit: parseLimit(numberOfText(take(parameters, 'limit'))),
      offset,
      cursor,
      count: parseCount(take(parameters, 'count')),
    };
    const variables = parseVariables(view.variablesText);
    for (const [name, value] of parameters) {
      const variable = variables.get(name);
      if (!variable) throw refused(name, `is no variable of the view ${view.name}`);
      conditions.push(conditionOfText(variable.path, variable.operator ?? 'is', value, 'any', name));
    }
    const refreshed = JSON.stringify(view.refreshedAt?.toISOString() ?? null);
    const more = `,"refreshed_at":${refreshed},"refresh_mode":${JSON.stringify(view.refreshMode)}`;
    const databases = new AppDatabases(db, request, call.signal);
    return readDocuments(databases, rowsOfView(view), { ...options, find: and(...conditions) }, more);
  });
}
