import type { CollectionRef } from '../catalog/collection';
import type { JoinedRead } from '../query/execute/read-page';
import { assertPlainReferences, storedFilter } from '../query/execute/encrypted-read';
import { resolveReferences } from '../query/execute/references';
import type { FindAndSelect } from '../query/language/joined-query';
import { modelName, allJoins, unknownModel, type Join } from '../query/language/joins';
import { needsKey } from '../query/language/paging';
import type { JoinTarget } from '../query/plan/join-plan';
import { documentsRelation, type Relation } from '../query/plan/relation';
import { lookUpCollection, type ReadContext } from './read-context';

/** How joins are resolved: which documents are joined, and from which collections. */
interface JoinOptions {
  /** Whether soft-deleted documents are joined, as the entrance has them. */
  includeDeleted: boolean;
  /** Whether the collections are looked up afresh. */
  isFresh: boolean;
  /** Collections that are shown although they are private. */
  shown?: ReadonlySet<string>;
  /** The collections, where they have been looked up. */
  collections?: ReadonlyMap<string, CollectionRef>;
  /** The records that they are joined to. */
  parent: Pick<Relation, 'cipher'>;
}

/**
 * The collections that a query joins, by their names. Throws INVALID_QUERY for one that the app does not have,
 * UNAUTHENTICATED for one that is private and not for the caller.
 */
export async function lookUpJoined(
  db: ReadContext,
  { appId, mayReadPrivate }: { appId: string; mayReadPrivate: boolean },
  joins: readonly Join[],
  { isFresh, shown }: Pick<JoinOptions, 'isFresh' | 'shown'>,
): Promise<ReadonlyMap<string, CollectionRef>> {
  const collections = new Map<string, CollectionRef>();
  const places = new Map(allJoins(joins).map((join) => [modelName(appId, join), join.at]));
  const refs = await Promise.all([...places.keys()].map((name) => lookUpCollection(db, appId, name, isFresh)));
  [...places].forEach(([name, place], which) => {
    const collection = refs[which];
    if (!collection) throw unknownModel(place, name);
    const isHidden = collection.readAccess === 'private' && !shown?.has(name);
    if (isHidden && !mayReadPrivate) throw needsKey(`collection ${name}`);
    collections.set(name, collection);
  });
  return collections;
}

/**
 * The joins of a query with their collections, undefined where it has none. Throws INVALID_QUERY for a collection that
 * the app does not have, UNAUTHENTICATED for one that is private and not for the caller.
 */
export async function resolveJoins(
  db: ReadContext,
  reader: { appId: string; mayReadPrivate: boolean },
  { joins, joinedSelect }: Pick<FindAndSelect, 'joins' | 'joinedSelect'>,
  options: JoinOptions,
): Promise<JoinedRead | undefined> {
  if (!joinedSelect) return undefined;
  const { appId } = reader;
  const collections = options.collections ?? (await lookUpJoined(db, reader, joins, options));
  let number = 0;
  const target = async (join: Join, parent: Pick<Relation, 'cipher'>): Promise<JoinTarget> => {
    const collection = collections.get(modelName(appId, join))!;
    number += 1;
    const joinNumber = number;
    const relation = documentsRelation(
      collection,
      { includeHistory: false, includeDeleted: options.includeDeleted },
      joinNumber,
    );
    const resolved = await resolveReferences(db.fast, appId, join.find);
    assertPlainReferences(parent, resolved, join.at);
    const find = storedFilter(relation, resolved, reader.mayReadPrivate);
    const inner = await eachInTurn(join.joins, (one) => target(one, relation));
    return { join: { ...join, find }, number: joinNumber, relation, joins: inner };
  };
  return { joins: await eachInTurn(joins, (join) => target(join, options.parent)), select: joinedSelect };
}

async function eachInTurn<T, R>(values: readonly T[], map: (value: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const value of values) results.push(await map(value));
  return results;
}
