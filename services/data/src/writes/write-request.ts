import type { Committed } from '../commit/write';
import type { App } from '../catalog/app';

/** The app of a request; its number came with the caller's verified key. */
export const appOf = (request: { appId: string; appNumber: string }): App => ({
  number: BigInt(request.appNumber),
  appId: request.appId,
});

/** The collection that a write created, as its response names it. */
export const createdCollection = ({ collection: name, createdWithAccess: readAccess }: Committed) =>
  readAccess === undefined ? {} : { createdCollection: { name, readAccess } };

/**
 * The results of a commit as JSON text: for each document, of which there is one at least, its id, and the height and
 * hash of the commit.
 */
export function resultsJson({ ids, height, hash, namespace }: Committed): Buffer {
  const tail = `,"celestia_height":${height},"blob_id":"${hash.toString('hex')}","namespace":${JSON.stringify(namespace)}}`;
  return Buffer.from(`[{"id":${ids.map((id) => JSON.stringify(id)).join(`${tail},{"id":`)}${tail}]`);
}
