import type { Projection } from '@granary/shared/json/project';
import type { CollectionRef } from '../catalog/collection';
import type { ReadPrice } from '../catalog/read-price';
import { pathsOf, type Condition, type Path } from '../query/language/condition';
import type { JoinedSelect } from '../query/language/joined-select';
import { modelName, type Join } from '../query/language/joins';
import type { SortTerm } from '../query/language/sort';
import { parseViewQuery, type ViewQuery } from '../views/language/view-query';
import type { ViewRef } from '../views/view';
import { readJsonText } from '../query/language/paging';

/** What a query does with the fields of records. */
export interface FieldUse {
  find: Condition;
  sort: readonly SortTerm[];
  projection: Projection;
  joins?: readonly Join[];
  joinedSelect?: JoinedSelect | undefined;
}

const noJoined: ReadonlyMap<string, CollectionRef> = new Map();

/**
 * Those of the prices of a collection that a query touches, with those of the collections that it joins: the price of a
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
    const of = joined.get(modelName(appId, join));
    const inner: FieldUse = { find, sort: [], projection: 'all', joins: nested, joinedSelect: joinedSelectOf };
    touched.push(...touchedPrices(appId, of?.readPrices, inner, joined));
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
  const paths = viewPaths(query);
  const shown: Projection[] = query.groups ? ['none'] : [query.projection];
  return sources.flatMap(({ name, readPrices = [] }) => {
    // Documents that are joined are a member of the rows.
    const places: Path[] = name === query.base ? [[]] : [];
    for (const join of query.joins) if (join.collection === name) places.push([join.alias]);
    return readPrices.filter(({ path }) =>
      places.some((place) => {
        const inRow = [...place, ...path];
        return path.length === 0 || isTouched(inRow, paths) || isShown(inRow, shown);
      }),
    );
  });
}

/** The paths in rows that a view finds, joins, groups, aggregates or sorts by. */
function viewPaths({ find, joins, groups, sort }: ViewQuery): Path[] {
  const paths = pathsOf(find);
  for (const { alias, on } of joins) {
    for (const { path, from, to } of on) paths.push([alias, ...path], from === undefined ? to : [from, ...to]);
  }
  // In a grouped view the order is of its columns.
  if (!groups) return [...paths, ...sort.map(({ path }) => path)];
  for (const { path } of groups.aggregates) if (path) paths.push(path);
  return [...paths, ...groups.by];
}

/** The fields of the record one level up that the conditions of a join refer to. */
function parentPathsOf(condition: Condition): Path[] {
  if ('conditions' in condition) return condition.conditions.flatMap(parentPathsOf);
  return condition.kind === 'reference' ? [condition.to] : [];
}

/** Whether one of the paths is that of the price, leads to it or into it. The whole is touched by any query. */
const isTouched = (priced: Path, paths: readonly Path[]): boolean =>
  priced.length === 0 ||
  paths.some((path) => {
    const shared = Math.min(path.length, priced.length);
    return path.slice(0, shared).every((step, at) => isSameStep(step, priced[at]!));
  });

/** `07` is the same element of an array as `7`. */
const isSameStep = (one: string, other: string): boolean =>
  one === other || (/^\d+$/.test(one) && /^\d+$/.test(other) && BigInt(one) === BigInt(other));

const isShown = (priced: Path, shown: readonly Projection[]): boolean =>
  shown.every((projection) => keeps(projection, priced, 0));

/** Whether a projection keeps the field at a path, or a part of it. */
function keeps(projection: Projection, path: Path, at: number): boolean {
  if (projection === 'all') return true;
  if (projection === 'none') return false;
  if (at === path.length) return true;
  let isNamed = false;
  for (const [step, part] of projection.members.entries()) {
    if (!isSameStep(step, path[at]!)) continue;
    if (keeps(part, path, at + 1)) return true;
    isNamed = true;
  }
  return !isNamed && projection.keeps === 'others';
}
