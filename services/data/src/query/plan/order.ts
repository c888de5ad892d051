import type { Condition } from '../language/condition';
import type { Position } from './cursor';
import type { Relation } from './relation';
import type { SortTerm } from '../language/sort';
import { equalityKeys } from './equalities';

export interface PageRequest {
  find: Condition;
  sort: readonly SortTerm[];
  limit: number;
  offset: number;
  /** The page begins behind this place in its order; `offset` is 0 then. */
  after?: Position | undefined;
}

/** What decides the order of the rows: values, then ids in one direction. */
export interface Order {
  /** Each with the JSON text of its value at the place that the page begins behind, null for missing and null. */
  terms: ReadonlyArray<SortTerm & { after: string | null }>;
  descending: boolean;
  after: Position | undefined;
}

/** The sort terms that can decide anything: an id is unique, so those that follow it cannot. */
export function effectiveSort(source: Relation, sort: readonly SortTerm[]): { terms: SortTerm[]; descending: boolean } {
  const at = sort.findIndex(({ path }) => source.hasIdColumn && path.length === 1 && path[0] === 'id');
  const terms = at < 0 ? [...sort] : sort.slice(0, at);
  return { terms, descending: (at < 0 ? sort.at(-1) : sort[at])?.descending ?? false };
}

export function orderOfPage(source: Relation, page: Pick<PageRequest, 'find' | 'sort' | 'after'>): Order {
  const { terms, descending } = effectiveSort(source, page.sort);
  // A field that the query fixes to one value decides nothing either.
  const fixed = terms.length === 0 ? new Map() : equalityKeys(source, page.find);
  const placed = terms.map((term, at) => ({ ...term, after: page.after?.values[at] ?? null }));
  return { terms: placed.filter(({ path }) => !fixed.has(path.join('.'))), descending, after: page.after };
}
