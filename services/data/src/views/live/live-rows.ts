import { textArray } from '@granary/shared/postgres/wire/binary';
import { row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Step } from '@granary/shared/postgres/pipeline';
import type { App } from '../../catalog/app';
import { bumpCatalogRevision } from '../../catalog/app-lock';
import type { CollectionRef } from '../../catalog/collection';
import type { LiveView } from '../../catalog/live-view';
import type { DerivedRows, DerivedSource } from '../../commit/after-plan';
import { enqueueRefresh } from '../views';
import { addedChanges, changeCte, givenChanges, removedChanges, writtenChanges } from './changes';
import { givenDocuments, membersOf } from './given-documents';
import type { JoinedChange } from './join-pairs';
import { livePlan, type LivePlan } from './live-plan';
import { preloadCtes, countedViewCtes, turnCtes } from './live-sql';
import type { LogPlace } from './row-changes';

/** The rows of live views, which change with the documents of their collections. */
export const liveViewRows: DerivedSource = { rowsOf, abandon };

/** A view as one of its collections changes it. */
interface FollowedView {
  plan: LivePlan;
  joined: JoinedChange | undefined;
}

function rowsOf(collection: CollectionRef): DerivedRows[] {
  if (collection.liveViews.length === 0) return [];
  const views = collection.liveViews.map((view) => followedView(collection, view));
  const applied = (changes: Sql, some: readonly FollowedView[], during: LogPlace = 'commit'): Sql =>
    sql`${changeCte(changes)}, ${join(
      some.map(({ plan, joined }) => countedViewCtes(plan, joined, during)),
      ', ',
    )}`;
  const joining = views.filter(({ joined }) => joined);
  const others = views.filter(({ joined }) => !joined).map(({ plan }) => plan);
  const [grouped, ofDocuments] = [
    others.filter(({ query }) => query.groups),
    others.filter(({ query }) => !query.groups),
  ];
  const members = membersOf(grouped);
  return [
    {
      upsertCte: applied(writtenChanges, views),
      removalCte: applied(removedChanges, views, 'erasure'),
      afterCopy: (added) => {
        const ids = textArray(added.map(({ document }) => document.id));
        return [sql`with ${applied(addedChanges(collection, ids), views)} select`];
      },
      besideCopy: async (pool, added) => {
        if (grouped.length === 0) return [];
        return [await deriveBeforeTurn(pool, givenChanges(await givenDocuments(added, members)), grouped)];
      },
      beforeTurn: async (tx, added) => {
        const changes = addedChanges(collection, textArray(added.map(({ document }) => document.id)));
        return [
          ...(joining.length === 0 ? [] : [sql`with ${applied(changes, joining)} select`]),
          ...(ofDocuments.length === 0 ? [] : [await deriveBeforeTurn(tx, changes, ofDocuments)]),
        ];
      },
    },
  ];
}

function followedView({ appNumber, name }: CollectionRef, view: LiveView): FollowedView {
  const plan = livePlan({ ...view, appNumber }, view.keepsChanges);
  const { base, joins } = plan.query;
  if (!joins[0]) return { plan, joined: undefined };
  const tablesOf = (source: string) => ({ appNumber, number: view.sourceNumbers.get(source)! });
  const side = name === base ? 'base' : 'partner';
  return { plan, joined: { of: side, base: tablesOf(base), partner: tablesOf(joins[0].collection) } };
}

/** Does what can be done before the turn; returns the statement of the turn. */
async function deriveBeforeTurn(db: Queryable, changes: Sql, plans: readonly LivePlan[]): Promise<Step> {
  const derived = plans.map(preloadCtes);
  const ctes = join([changeCte(changes), ...derived.map((each) => each.ctes)], ', ');
  let count = 0;
  const names = derived.map(({ results }) =>
    results.map(({ columns }) => Array.from({ length: columns }, () => `r${count++}`)),
  );
  const sources = derived.flatMap(({ results }, plan) =>
    results.map(({ rows }, index) => {
      const [first, ...others] = names[plan]![index]!;
      return sql`${rows} as ${trusted(`x${first}(${[first, ...others].join(', ')})`)}`;
    }),
  );
  const textsByName = await row<Record<string, string | null>>(
    db,
    sql`with ${ctes} select * from ${join(sources, ', ')}`,
  );
  const turns = plans.map((plan, index) => {
    const texts = names[index]!.flat().map((name) => textsByName![name]!);
    return turnCtes(plan, texts);
  });
  return sql`with ${join(turns, ', ')} select`;
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
