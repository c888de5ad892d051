import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import { findCollections } from '../catalog/collection';
import { nearCollection } from '../catalog/near-collection';
import { modelName, allJoins, unknownModel, type Join } from '../query/language/joins';

/** The collections that a predefined query joins, and those of them that are private now. */
export interface JoinedCollections {
  names: string[];
  privateNames: string[];
}

/** Throws INVALID_QUERY for a collection that the app does not have, with the name that is near. */
export async function joinedCollections(db: Queryable, app: App, joins: readonly Join[]): Promise<JoinedCollections> {
  const models = allJoins(joins).map(({ at, model }) => ({ at, name: modelName(app.appId, { at, model }) }));
  const names = [...new Set(models.map(({ name }) => name))];
  if (names.length === 0) return { names, privateNames: [] };
  const collectionsByName = new Map(
    (await findCollections(db, app, names)).map((collection) => [collection.name, collection]),
  );
  const missing = models.find(({ name }) => !collectionsByName.has(name));
  if (missing) throw unknownModel(missing.at, missing.name, await nearCollection(db, app, missing.name));
  return { names, privateNames: names.filter((name) => collectionsByName.get(name)!.readAccess === 'private') };
}
