import type { ChangeViewRequest } from '@granary/shared/gen/granary/data/v1/ChangeViewRequest';
import type { CreateViewRequest } from '@granary/shared/gen/granary/data/v1/CreateViewRequest';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import { execute, row } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { message } from '@granary/shared/rpc/types';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import type { ReadAccess } from '../catalog/collection';
import { checkDefinitionBytes } from '../catalog/definition-limit';
import { storedPrice } from '../catalog/read-price';
import { checkDefinition, definitionOf, insertView, type ViewDefinition } from './definition';
import { beginRowLog, loggedAtOnceMax, logRows, logStart } from './row-log';
import { requireView, type ViewRef } from './view';
import { enqueueRefresh } from './views';
import type { PoolContext } from '../postgres/databases';

/**
 * Changes the members of a view that the request has. Where its rows follow from them, it is built anew beside the
 * present rows, by a job, and takes their place once it is filled; a change before that takes the place of this one.
 * Where only its access or its price changes, or whether the changes of its rows are kept, that is done at once, and
 * the ticket is empty. Throws as `createView` does, VIEW_NOT_FOUND.
 */
export async function changeView(
  { pool, defaultRead }: PoolContext & { defaultRead: ReadAccess },
  request: ChangeViewRequest,
): Promise<JobResponse> {
  const { appId, name, ticketId, mayPublish } = request;
  return withAppLockOnce<JobResponse>(pool, request, async (tx, app) => {
    const isRepeated = await row(tx, sql`select from job where ticket_id = ${ticketId} and app_number = ${app.number}`);
    if (isRepeated) return { name, ticketId };
    const view = await requireView(tx, appId, name);
    const changed = requestOf(view, request);
    const definition = definitionOf(changed);
    const options = { readAccess: changed.readAccess, mayPublish, defaultRead, replaces: view.number };
    await execute(tx, sql`delete from view where replaces = ${view.number}`);
    const checked = await checkDefinition(tx, app, definition, options);
    const beginsLog = definition.keepsChanges && !view.keepsChanges;
    // Writers would wait for long while many rows are logged.
    const isTooLarge = beginsLog && view.rowCount > loggedAtOnceMax;
    if (hasSameRows(view, definition) && !isTooLarge) {
      await execute(
        tx,
        sql`update view set read_access = ${checked.readAccess}, read_price_config_text = ${definition.readPriceText},
              keeps_changes = ${definition.keepsChanges} where number = ${view.number}`,
      );
      if (beginsLog) await beginRowLog(tx, view);
      if (beginsLog && view.tableNumber !== null) await logRows(tx, view.appNumber, view.tableNumber, logStart);
      await bumpCatalogRevision(tx, app.number);
      return { name, ticketId: '' };
    }
    const number = await insertView(tx, app, definition, checked, view.number);
    await checkDefinitionBytes(tx, app.number);
    await bumpCatalogRevision(tx, app.number);
    return { name, ticketId: await enqueueRefresh(tx, app, number, name, { ticketId, kind: 'view.change' }) };
  });
}

/** The request that would create the view as it is to be. */
function requestOf(view: ViewRef, change: ChangeViewRequest): CreateViewRequest {
  const orStored = (bytes: Buffer, text: string): Buffer => (bytes.length > 0 ? bytes : Buffer.from(text));
  const { queryJson, variablesJson, sourceCollections, refreshMode, readAccess, readPriceConfig } = change;
  return message<CreateViewRequest>({
    appId: view.appId,
    appNumber: view.appNumber.toString(),
    name: view.name,
    queryJson: orStored(Buffer.from(queryJson), view.queryText),
    sourceCollections: sourceCollections.length > 0 ? sourceCollections : view.sourceCollections,
    refreshMode: refreshMode || view.refreshMode,
    variablesJson: orStored(Buffer.from(variablesJson), view.variablesText),
    readAccess: readAccess || view.readAccess,
    readPriceConfig: readPriceConfig ?? storedPrice(view.readPriceText),
    ticketId: change.ticketId,
    mayPublish: change.mayPublish,
    keepsChanges: change.keepsChanges ?? view.keepsChanges,
  });
}

/** Whether the rows of a view, and how they are kept and read, are what a definition says. */
const hasSameRows = (
  view: ViewRef,
  { queryText, variablesText, sourceCollections, refreshMode }: ViewDefinition,
): boolean =>
  view.queryText === queryText &&
  view.variablesText === variablesText &&
  view.refreshMode === refreshMode &&
  view.sourceCollections.join(' ') === sourceCollections.join(' ');
