import { row } from '@granary/shared/postgres/pool';
import { notFound } from '@granary/shared/errors';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { ownReadPrice, type ReadPrice } from '../catalog/read-price';
import { viewRelation } from '../query/plan/relation';
import { countComputed, liveRelation, sourceNames, type ReadableView } from '../views/live/live-relation';
import { storedView, type ViewRef } from '../views/view';
import { lookUpCollection, type ReadContext } from './read-context';
import { viewPrices } from './touched-prices';

/** The rows of a view as they are read now. A live view that is not whole is computed. Throws COLLECTION_NOT_FOUND. */
export async function readableView(db: ReadContext, view: ViewRef): Promise<ReadableView> {
  if (view.refreshMode === 'lazy') return { relation: viewRelation(storedView(view)), sort: [] };
  if (view.tableNumber !== null) return liveRelation(view);
  const { base, partner } = sourceNames(view);
  const sources = {
    base: await sourceOf(db, view, base),
    partner: partner === undefined ? undefined : await sourceOf(db, view, partner),
  };
  const counted = await row<{ count: bigint }>(db.pool, countComputed(view, sources));
  return liveRelation(view, { sources, rowCount: counted!.count });
}

async function sourceOf(db: ReadContext, { appId }: ViewRef, name: string): Promise<CollectionRef> {
  const source = await lookUpCollection(db, appId, name, true);
  if (!source) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  return source;
}

/** A view has its own price, or those of what it reads of its sources. */
export async function pricesOfView(db: ReadContext, view: ViewRef): Promise<readonly ReadPrice[]> {
  const { appId, sourceCollections } = view;
  const ownPrices = ownReadPrice(view.readPriceText);
  if (ownPrices) return ownPrices;
  const collections = await Promise.all(sourceCollections.map((name) => lookUpCollection(db, appId, name, false)));
  return viewPrices(
    view,
    collections.filter((collection) => collection !== undefined),
  );
}
