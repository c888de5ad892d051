import { row } from '@granary/shared/postgres/pool';
import { notFound } from '@granary/shared/errors';
import { COLLECTION_NOT_FOUND } from '../catalog/collection';
import { viewRelation } from '../query/plan/relation';
import { baseOf, countComputed, liveRelation, type ReadableView } from '../views/live/live-relation';
import { storedView, type ViewRef } from '../views/view';
import { lookUpCollection, type ReadContext } from './read-context';

/** The rows of a view as they are read now. A live view that is not whole is computed. Throws COLLECTION_NOT_FOUND. */
export async function readableView(db: ReadContext, view: ViewRef): Promise<ReadableView> {
  if (view.refreshMode === 'lazy') return { relation: viewRelation(storedView(view)), sort: [] };
  if (view.tableNumber !== null) return liveRelation(view);
  const name = baseOf(view);
  const source = await lookUpCollection(db, view.appId, name, true);
  if (!source) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  const counted = await row<{ count: bigint }>(db.pool, countComputed(view, source));
  return liveRelation(view, { source, rowCount: counted!.count });
}
