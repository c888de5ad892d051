import { notFound, type ServiceError } from '@granary/shared/errors';
import { nearestName } from '@granary/shared/near-names';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from './app';
import { COLLECTION_NOT_FOUND } from './collection';

/** The collection of an app whose name another one may be meant to be, see nearestName(). One statement. */
export async function nearCollection(db: Queryable, app: App, name: string): Promise<string | undefined> {
  const collections = await rows<{ name: string }>(
    db,
    sql`select name from collection where app_number = ${app.number} and deleted_at is null order by name`,
  );
  return nearestName(
    name,
    collections.map((collection) => collection.name),
  );
}

/** The end of a sentence about a name that does not exist; empty where no other is near. */
export const didYouMean = (near: string | undefined): string => (near === undefined ? '' : `. Did you mean ${near}?`);

/**
 * The error for a collection that does not exist, with the name that is near. Only for callers who may read what is
 * private, for the name may be that of a private collection.
 */
export async function noSuchCollection(db: Queryable, app: App, name: string): Promise<ServiceError> {
  const near = await nearCollection(db, app, name);
  return notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}${didYouMean(near)}`);
}
