import type { Projection } from '../json/project';
import type { CollectionRef } from '../catalog/collection';
import type { ReadPrice } from '../catalog/read-price';
import { pathsOf, type Condition, type Path } from '../query/language/condition';
import { isShown, isTouched } from '../query/language/field-use';
import type { JoinedSelect } from '../query/language/joined-select';
import { modelName, type Join } from '../query/language/joins';
import type { SortTerm } from '../query/language/sort';
import { parseViewQuery } from '../views/language/view-query';
import { viewUses } from '../views/language/view-use';
import type { ViewRef } from '../views/view';
import { readJsonText } from '../query/language/paging';

/** The fields of records that a query uses, and how it uses them. */
export interface FieldUse {
  find: Condition;
  sort: readonly SortTerm[];
  projection: Projection;
  joins?: readonly Join[];
  joinedSelect?: JoinedSelect | undefined;
}

const noJoined: ReadonlyMap<string, CollectionRef> = new Map();

/**
 * Returns the prices of a collection that a query touches, with those of the collections that it joins: the price of a
 * whole collection, and of each field that records are found by, sorted by, or shown with.
 */
export function touchedPrices(
  appId: string,
  prices: readonly ReadPrice[] | undefined,
  use: FieldUse,
  joined: ReadonlyMap<string, CollectionRef> = noJoined,
): readonly ReadPrice[] {
  const { joins = [], joinedSelect } = use;
  const touched: ReadPrice[] = [];
  if (prices) {
    const paths = [...pathsOf(use.find), ...use.sort.map(({ path }) => path)];
    for (const { find } of joins) paths.push(...parentPathsOf(find));
    const shown = joinedSelect ? [joinedSelect.stored, joinedSelect.whole] : [use.projection];
    touched.push(...prices.filter(({ path }) => isTouched(path, paths) || isShown(path, shown)));
  }
  for (const join of joins) {
    const { find, select: joinedSelectOf, joins: nested } = join;
    const collection = joined.get(modelName(appId, join));
    const inner: FieldUse = { find, sort: [], projection: 'all', joins: nested, joinedSelect: joinedSelectOf };
    touched.push(...touchedPrices(appId, collection?.readPrices, inner, joined));
  }
  return touched;
}

/** The prices of a view that has none of its own: of what its query reads of its sources. */
export function viewPrices(
  { queryText, sourceCollections }: Pick<ViewRef, 'queryText' | 'sourceCollections'>,
  sources: readonly CollectionRef[],
): readonly ReadPrice[] {
  if (sources.every(({ readPrices }) => readPrices === undefined)) return [];
  const query = parseViewQuery(readJsonText(Buffer.from(queryText), 'query'), sourceCollections);
  return sources.flatMap(({ name, readPrices = [] }) => readPrices.filter(({ path }) => viewUses(query, name, path)));
}

/** The fields of the record one level up that the conditions of a join refer to. */
function parentPathsOf(condition: Condition): Path[] {
  if ('conditions' in condition) return condition.conditions.flatMap(parentPathsOf);
  return condition.kind === 'reference' ? [condition.to] : [];
}
