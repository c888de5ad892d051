import type { Sql } from '@granary/shared/postgres/sql';
import type { Condition } from '../language/condition';
import type { Order } from './order';
import type { ServingIndex, Relation } from './relation';
import { equalityKeys } from './equalities';

/** An index that gives an order: the columns that the query fixes, each with its key, and those of the order. */
export interface OrderingIndex {
  fixed: ReadonlyArray<{ column: Sql; key: Buffer }>;
  free: readonly Sql[];
}

/** An index whose columns, but for those that the query fixes, are the order; the one with the most columns. */
export function orderingIndex(
  source: Relation,
  find: Condition,
  { terms, descending }: Order,
): OrderingIndex | undefined {
  if (terms.length === 0 || terms.some((term) => term.descending !== descending)) return undefined;
  const wanted = terms.map(({ path }) => path.join('.'));
  const fixed = equalityKeys(source, find);
  let best: ServingIndex | undefined;
  for (const index of source.indexes) {
    const free = index.fields.filter((field) => !fixed.has(field));
    const serves = free.length === wanted.length && free.every((field, at) => field === wanted[at]);
    if (serves && (!best || index.fields.length > best.fields.length)) best = index;
  }
  if (!best) return undefined;
  const columns = best.fields.map((field, at) => ({ column: best.columns[at]!, key: fixed.get(field) }));
  return {
    fixed: columns.flatMap(({ column, key }) => (key ? [{ column, key }] : [])),
    free: columns.flatMap(({ column, key }) => (key ? [] : [column])),
  };
}
