import { textArray } from '@granary/shared/postgres/wire/binary';
import { row, rows, type Connection } from '@granary/shared/postgres/pool';
import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { App } from '../../catalog/app';
import { bumpCatalogRevision } from '../../catalog/app-lock';
import type { CollectionRef } from '../../catalog/collection';
import type { DerivedRows, DerivedSource } from '../../commit/after-plan';
import { enqueueRefresh } from '../views';
import { addedChanges, changeCte, removedChanges, writtenChanges } from './changes';
import { livePlan } from './live-plan';
import { aheadCtes, countedViewCtes, turnCtes } from './live-sql';

/** The rows of live views, which change with the documents of their collections. */
export const liveViewRows: DerivedSource = { rowsOf, abandon };

function rowsOf(collection: CollectionRef): DerivedRows[] {
  if (collection.liveViews.length === 0) return [];
  const { appNumber } = collection;
  const plans = collection.liveViews.map((view) => livePlan({ ...view, appNumber }));
  const views = join(plans.map(countedViewCtes), ', ');
  const applied = (changes: Sql): Sql => sql`${changeCte(changes)}, ${views}`;
  return [
    {
      upsertCte: applied(writtenChanges),
      removalCte: applied(removedChanges),
      afterCopy: (added) => {
        const ids = textArray(added.map(({ document }) => document.id));
        return [sql`with ${applied(addedChanges(collection, ids))} select`];
      },
      beforeTurn: async (tx, added) => {
        const ids = textArray(added.map(({ document }) => document.id));
        const ahead = plans.map(aheadCtes);
        const ctes = [changeCte(addedChanges(collection, ids)), ...ahead.map((each) => each.ctes)];
        const results = join(
          ahead.map(({ result }) => result),
          ', ',
        );
        const found = await row<{ results: string[] }>(
          tx,
          sql`with ${join(ctes, ', ')} select array[${results}] as results`,
        );
        const turns = plans.map((plan, at) => turnCtes(plan, found!.results[at]!));
        return [sql`with ${join(turns, ', ')} select`];
      },
    },
  ];
}

/** Their readers get them computed from now on, until jobs have built them again. */
async function abandon(tx: Connection, app: App, collections: readonly CollectionRef[]): Promise<void> {
  const names = collections.map(({ name }) => name);
  const views = await rows<{ number: bigint; name: string }>(
    tx,
    sql`update view set table_number = null, row_count = 0, status = 'broken', error = ${brokenReason}
        where app_number = ${app.number} and refresh_mode = 'live' and table_number is not null
          and source_collections && ${names}::text[] returning number, name`,
  );
  for (const { number, name } of views) await enqueueRefresh(tx, app, number, name, { isRequired: true });
  await bumpCatalogRevision(tx, app.number);
}

const brokenReason = 'A write could not be applied to the view: it is being built again, and computed meanwhile';
