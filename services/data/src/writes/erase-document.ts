import { notFound } from '@granary/shared/errors';
import type { EraseDocumentRequest } from '@granary/shared/gen/granary/data/v1/EraseDocumentRequest';
import type { EraseDocumentResponse } from '@granary/shared/gen/granary/data/v1/EraseDocumentResponse';
import type { Versions } from '@granary/shared/gen/granary/data/v1/Versions';
import type { Logger } from '@granary/shared/logger';
import { databaseTime } from '@granary/shared/postgres/clock';
import { row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, trusted } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { withAppLockOnce } from '../catalog/app-lock';
import { COLLECTION_NOT_FOUND, findCollection, type CollectionRef } from '../catalog/collection';
import { documentsTable } from '../catalog/table-names';
import { noSuchDocument, preconditionFailed } from '../documents/document-error';
import {
  nothingRemoved,
  removeDocuments,
  withoutDerivedOnFailure,
  type DerivedRemovals,
} from '../usage/document-removal';
import { dropAbandonedViews } from '../views/tables';
import { forgetViewRows } from '../views/forget-rows';
import { appOf } from './write-request';

interface Context {
  pool: Pool;
  log: Logger;
  derived: DerivedRemovals;
}

/**
 * Erases the text of all versions of a document, deleted or not; the hashes in the commits stay, so the chain and its
 * proofs hold. Lazy views of the collection have no rows until they are refreshed; live ones change with it. Not a
 * commit, but under the same lock: it is one transaction, before or after each commit. Throws COLLECTION_NOT_FOUND,
 * DOCUMENT_NOT_FOUND, PRECONDITION_FAILED.
 */
export async function eraseDocument(
  { pool, log, derived }: Context,
  request: EraseDocumentRequest,
): Promise<EraseDocumentResponse> {
  const { collection: name, id, ifMatch } = request;
  const erase = async (tx: Connection, app: App, isWithout: boolean) => {
    const collection = await findCollection(tx, app, name);
    if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
    await checkVersion(tx, collection, id, ifMatch);
    const time = await databaseTime(tx);
    const only = trusted('true');
    if (isWithout) await derived.abandon(tx, collection);
    const removal = isWithout ? nothingRemoved : derived.removalFrom(collection);
    const options = { only, historyMax: Number.MAX_SAFE_INTEGER, at: time, derived: removal };
    const { versions } = await removeDocuments(tx, collection, [id], options);
    await forgetViewRows(tx, app, name);
    return { versions: versions.toString() };
  };
  const answer = await withoutDerivedOnFailure((isWithout) =>
    withAppLockOnce<EraseDocumentResponse>(pool, request, (tx, app) => erase(tx, app, isWithout)),
  );
  await dropAbandonedViews({ pool, log }, appOf(request).number);
  return answer;
}

/** Throws DOCUMENT_NOT_FOUND, PRECONDITION_FAILED. */
async function checkVersion(
  tx: Connection,
  collection: CollectionRef,
  id: string,
  ifMatch: Versions | null | undefined,
): Promise<void> {
  const present = await row<{ version: bigint; deleted: boolean }>(
    tx,
    sql`select version, deleted from ${documentsTable(collection)} where id = ${id}`,
  );
  if (!present) throw noSuchDocument(id);
  const { version, deleted } = present;
  const isNamed = ifMatch?.any === true ? !deleted : ifMatch?.numbers.some((number) => BigInt(number) === version);
  if (!ifMatch || isNamed) return;
  throw preconditionFailed(`The document ${id} is not in a version that If-Match names`, { version: Number(version) });
}
