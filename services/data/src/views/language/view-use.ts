import type { Projection } from '../../json/project';
import { pathsOf, type Path } from '../../query/language/condition';
import { isShown, isTouched } from '../../query/language/field-use';
import type { ViewQuery } from './view-query';

/** Whether a view finds, joins, groups, aggregates, sorts or shows its rows by a field of one of its sources. */
export function viewUses(query: ViewQuery, collection: string, path: Path): boolean {
  const paths = pathsInRows(query);
  const shown: Projection[] = query.groups ? ['none'] : [query.projection];
  return placesOf(query, collection).some((place) => {
    const inRow = [...place, ...path];
    return path.length === 0 || isTouched(inRow, paths) || isShown(inRow, shown);
  });
}

/**
 * The paths at which the rows hold the documents of a collection: those of the base are the row itself, those that are
 * joined are a member.
 */
function placesOf({ base, joins }: ViewQuery, collection: string): Path[] {
  const places: Path[] = collection === base ? [[]] : [];
  for (const join of joins) if (join.collection === collection) places.push([join.alias]);
  return places;
}

function pathsInRows({ find, joins, groups, sort }: ViewQuery): Path[] {
  const paths = pathsOf(find);
  for (const { alias, on } of joins) {
    for (const { path, from, to } of on) paths.push([alias, ...path], from === undefined ? to : [from, ...to]);
  }
  // In a grouped view the order is of its columns.
  if (!groups) return [...paths, ...sort.map(({ path }) => path)];
  for (const { path } of groups.aggregates) if (path) paths.push(path);
  return [...paths, ...groups.by];
}
