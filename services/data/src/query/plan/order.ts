import type { SortTerm } from '../language/sort';
import { isIdPath, type Relation } from './relation';

/** A term that can decide, with its place among the terms of effectiveSort(), for which a cursor holds values. */
export interface OrderTerm extends SortTerm {
  at: number;
}

/** The order of the rows: by values, then by ids in one direction. */
export interface Order {
  terms: readonly OrderTerm[];
  descending: boolean;
}

/** The sort terms that can decide anything: an id is unique, so those that follow it cannot. */
export function effectiveSort(source: Relation, sort: readonly SortTerm[]): { terms: SortTerm[]; descending: boolean } {
  const idIndex = sort.findIndex(({ path }) => isIdPath(source, path));
  const terms = idIndex < 0 ? [...sort] : sort.slice(0, idIndex);
  return { terms, descending: (idIndex < 0 ? sort.at(-1) : sort[idIndex])?.descending ?? false };
}

/** The order of a sort over rows in which some fields have one value: such a field decides nothing. */
export function orderOf(source: Relation, sort: readonly SortTerm[], isFixed: (field: string) => boolean): Order {
  const { terms, descending } = effectiveSort(source, sort);
  const deciding = terms.map((term, index) => ({ ...term, at: index })).filter(({ path }) => !isFixed(path.join('.')));
  return { terms: deciding, descending };
}
