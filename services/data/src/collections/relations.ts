import { invalid, type FieldMessages } from '@granary/shared/errors';
import type { CreateRelationRequest } from '@granary/shared/gen/granary/data/v1/CreateRelationRequest';
import type { CreateRelationResponse } from '@granary/shared/gen/granary/data/v1/CreateRelationResponse';
import type { RelationField } from '@granary/shared/gen/granary/data/v1/RelationField';
import type { RelationIndex } from '@granary/shared/gen/granary/data/v1/RelationIndex';
import { nameRule } from '@granary/shared/names';
import { databaseTime } from '@granary/shared/postgres/clock';
import type { Connection } from '@granary/shared/postgres/pool';
import { message } from '@granary/shared/rpc/types';
import type { App } from '../catalog/app';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { findCollection, type CollectionRef } from '../catalog/collection';
import { checkDefinitionBytes } from '../catalog/definition-limit';
import { isSearchIndex } from '../catalog/index-definition';
import { isFieldPath, isName } from '../catalog/names';
import { noSuchCollection } from '../catalog/near-collection';
import { assertNotEncrypted } from '../tables/encrypted-field';
import { addIndex, noPrices } from '../tables/define-index';
import type { PoolContext } from '../postgres/databases';

/**
 * Has both fields of a relation indexed, so that a join looks its records up. A relation is not kept by itself: the
 * same one again finds its indexes and makes none. Throws VALIDATION_FAILED, COLLECTION_NOT_FOUND with the name that is
 * near.
 */
export async function createRelation(
  { pool }: PoolContext,
  request: CreateRelationRequest,
): Promise<CreateRelationResponse> {
  const problems = { ...problemsOf('parent', request.parent!), ...problemsOf('child', request.child!) };
  if (Object.keys(problems).length > 0) throw invalid('The relation is not valid', problems);
  return withAppLockOnce<CreateRelationResponse>(pool, request, async (tx, app) => {
    const time = await databaseTime(tx);
    // One after the other: both may be in one collection.
    const parent = await indexField(tx, app, request.parent!, time);
    const child = await indexField(tx, app, request.child!, time);
    if (parent.created || child.created) {
      await checkDefinitionBytes(tx, app.number);
      await bumpCatalogRevision(tx, app.number);
    }
    return { createdAt: time.toISOString(), parent, child };
  });
}

function problemsOf(side: 'parent' | 'child', { collection, fieldName }: RelationField): FieldMessages {
  return {
    ...(!isName(collection) && { [`${side}_collection`]: [nameRule] }),
    ...(!isFieldPath(fieldName) && {
      [`${side}_field`]: ['must be a field path of 1 to 16 steps with dots between them'],
    }),
  };
}

async function indexField(
  tx: Connection,
  app: App,
  { collection: name, fieldName }: RelationField,
  time: Date,
): Promise<RelationIndex> {
  const collection = await findCollection(tx, app, name);
  if (!collection) throw await noSuchCollection(tx, app, name);
  assertNotEncrypted(collection, [fieldName]);
  const isNew = fieldName !== 'id' && !hasIndex(collection, fieldName);
  const definition = { name: freeName(collection, fieldName), fieldName, fields: [fieldName], type: 'hash' };
  const more = { unique: false, language: null, prices: noPrices };
  return message<RelationIndex>({
    created: isNew,
    ticketId: isNew ? await addIndex(tx, collection, collection.schema, { ...definition, ...more }, time, '') : '',
  });
}

/** Whether an index begins with a field, so that it finds the documents with a value. */
const hasIndex = ({ indexes }: CollectionRef, fieldName: string): boolean =>
  indexes.some((index) => !isSearchIndex(index) && index.status !== 'failed' && index.fields[0] === fieldName);

/** `<collection>_<field>_idx`, as an index of a schema is named, with a number where another index has that name. */
function freeName({ name, indexes }: CollectionRef, fieldName: string): string {
  const taken = new Set(indexes.map((index) => index.name));
  // The longest name of a collection leaves so much of the 200 characters that an index may have.
  const baseName = `${name}_${[...fieldName.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '_')].slice(0, 120).join('')}_idx`;
  let free = baseName;
  for (let number = 2; taken.has(free); number += 1) free = `${baseName}_${number}`;
  return free;
}
