import { ServiceError } from '@granary/shared/errors';
import type { Connection } from '@granary/shared/postgres/pool';
import type { CatalogCache } from '../catalog/cache';
import { findCollections, type CollectionRef, type ReadAccess } from '../catalog/collection';
import type { BatchCollections } from './plan';
import type { PendingWrite } from './write';
import type { App } from '../catalog/app';
import { addCollection } from '../tables/create-collection';

const noNames: ReadonlySet<string> = new Set();
const noRefusals: ReadonlyMap<string, ServiceError> = new Map();

const unchanged = (collectionsByName: ReadonlyMap<string, CollectionRef>): BatchCollections => ({
  known: collectionsByName,
  created: noNames,
  refused: noRefusals,
});

/** The cached collections of a batch at that revision of the catalog; undefined if one of them is not cached. */
export function cachedCollections(
  cache: CatalogCache,
  app: App,
  revision: bigint,
  batch: readonly PendingWrite[],
): BatchCollections | undefined {
  const { known: collectionsByName, unknown } = lookUpCached(cache, app, revision, batch);
  return unknown.length === 0 ? unchanged(collectionsByName) : undefined;
}

/** The collections of a batch at the locked revision; one statement for all that are not cached. */
export async function lockedCollections(
  tx: Connection,
  cache: CatalogCache,
  app: App,
  revision: bigint,
  batch: readonly PendingWrite[],
): Promise<BatchCollections> {
  const { known: collectionsByName, unknown } = lookUpCached(cache, app, revision, batch);
  if (unknown.length === 0) return unchanged(collectionsByName);
  for (const name of unknown) cache.forget(app.number, name);
  for (const collection of await findCollections(tx, app, unknown)) {
    collectionsByName.set(collection.name, collection);
    cache.keep(collection);
  }
  return unchanged(collectionsByName);
}

function lookUpCached(
  cache: CatalogCache,
  app: App,
  revision: bigint,
  batch: readonly PendingWrite[],
): { known: Map<string, CollectionRef>; unknown: string[] } {
  const collectionsByName = new Map<string, CollectionRef>();
  const unknown: string[] = [];
  for (const name of new Set(batch.flatMap(({ write }) => write.collections))) {
    const collection = cache.peek(app.number, name);
    if (collection?.revision === revision) collectionsByName.set(name, collection);
    else unknown.push(name);
  }
  return { known: collectionsByName, unknown };
}

/** Creates collections that accepted writes are the first to name. The head must be locked. */
export async function createMissing(
  tx: Connection,
  app: App,
  { known: collectionsByName }: BatchCollections,
  missing: Iterable<string>,
  { readAccess, at: time }: { readAccess: ReadAccess; at: Date },
): Promise<BatchCollections> {
  const all = new Map(collectionsByName);
  const created = new Set<string>();
  const refused = new Map<string, ServiceError>();
  for (const name of missing) {
    try {
      all.set(name, await addCollection(tx, app, { name, readAccess }, time));
      created.add(name);
    } catch (error) {
      // An error of Postgres has ended the transaction; a refusal came before any statement that changes something.
      if (!(error instanceof ServiceError)) throw error;
      refused.set(name, error);
    }
  }
  return { known: all, created, refused };
}
