import type { SharedRow } from '../../postgres/shared-row';
import type { Sql } from '@granary/shared/postgres/sql';
import type { SortTerm } from '../language/sort';
import type { Position } from './cursor';
import type { Equality } from './equalities';
import { orderOf, type Order } from './order';
import { isIdPath, type Relation, type ServingIndex } from './relation';

/**
 * How the rows of a page are found and put in order:
 *
 * - `id`: the document of an id, by the primary key.
 * - `index`: one index gives the page alone. Equalities fix its first fields, and those that follow are the order, or
 *   the ids are. What Postgres does for it grows with the page only. One prepared statement serves all requests of a
 *   shape.
 * - `index_order`: an index gives the order. Its rows are read in that order, and those that do not match are skipped.
 * - `index_order_by_text`: the same for a page with truncated keys, whose order their whole strings decide.
 * - `sort`: Postgres finds the matches as it estimates to be cheapest, and sorts them.
 */
export type AccessMethod = 'id' | 'index' | 'index_order' | 'index_order_by_text' | 'sort';

/** An index as a query uses it: the columns that the query fixes to a key, and those of the order. */
export interface IndexUse {
  index: ServingIndex;
  fixed: ReadonlyArray<{ field: string; column: Sql }>;
  free: readonly Sql[];
}

/** The access path for all requests of one shape, which name the same fields and differ in values only. */
export interface AccessPath {
  method: AccessMethod;
  /** The index that is read; undefined for `id` and `sort`. */
  index: IndexUse | undefined;
  order: Order;
  /** The place of the equality in the request that fixes each column; for `id` and `index` only. */
  equalities: readonly number[];
  /** Whether the page begins behind a place. */
  isAfter: boolean;
  /** The relation and the shape of the request: responses of one shape have similar sizes. */
  shape: string;
  /**
   * The text of the statement, once query/sql has made it; for `id` and `index` only. It depends on the shape alone.
   */
  text: string | undefined;
  /** The row with the state of the relation, where it has one; it is made together with `text`. */
  state?: SharedRow;
  /**
   * The path that is read instead where this one cannot give the page, which depends on the values of a request, or on
   * the rows that are read.
   */
  alternative: AccessPath | undefined;
}

/** The parts of a request, besides its filter, that decide how it is read. */
export interface RequestShape {
  sort: readonly SortTerm[];
  after?: Position | undefined;
}

/** Access paths of one relation, at most. */
const pathsMax = 64;

/** A relation lives as long as what is known of its collection holds, and its access paths with it. */
const paths = new WeakMap<Relation, Map<string, AccessPath>>();

/** The path for a filter of equalities only, chosen once for each shape. */
export function pathOfEqualities(
  relation: Relation,
  equalities: readonly Equality[],
  request: RequestShape,
): AccessPath {
  let pathsByShape = paths.get(relation);
  if (!pathsByShape) paths.set(relation, (pathsByShape = new Map<string, AccessPath>()));
  const shape = shapeOf(equalities, request);
  let path = pathsByShape.get(shape);
  if (path === undefined) {
    const names = equalities.map(({ path: steps }) => steps.join('.'));
    const isFixed = (field: string) => names.includes(field) && !(relation.hasIdColumn && field === 'id');
    const general = pathOfOrder(relation, isFixed, request);
    const alone = pathByIndexAlone(relation, equalities, request, general, `${relation.identity}\0${shape}`);
    path = alone ?? general;
    if (pathsByShape.size >= pathsMax) pathsByShape.clear();
    pathsByShape.set(shape, path);
  }
  return path;
}

/** Requests of one shape differ in values only. No path holds a NUL or is empty, so no two shapes run together. */
function shapeOf(equalities: readonly Equality[], { sort, after }: RequestShape): string {
  let shape = after ? 'after' : 'first';
  for (const { path } of equalities) shape += `\0${path.join('.')}`;
  shape += '\0';
  for (const { path, descending } of sort) shape += `\0${descending ? '-' : '+'}${path.join('.')}`;
  return shape;
}

/** `id` or `index`, where the equalities and the sort are all that an index is over. */
function pathByIndexAlone(
  relation: Relation,
  equalities: readonly Equality[],
  { sort, after }: RequestShape,
  alternative: AccessPath,
  shape: string,
): AccessPath | undefined {
  const isAfter = after !== undefined;
  // Such a statement gives texts only, which must tell the places of their rows.
  if (!relation.hasIdColumn) return undefined;
  const names = equalities.map(({ path }) => path.join('.'));
  if (new Set(names).size < names.length) return undefined;
  const order = orderOf(relation, sort, (field) => names.includes(field));
  if (names.length === 1 && isIdPath(relation, equalities[0]!.path)) {
    if (isAfter || relation.tieColumn) return undefined;
    return { method: 'id', index: undefined, order, equalities: [0], isAfter, shape, text: undefined, alternative };
  }
  // Ids are compared with their column, not with the key that a composite index has of them.
  if (relation.hasIdColumn && names.includes('id')) return undefined;
  if (order.terms.some((term) => term.descending !== order.descending)) return undefined;
  const orderFields = order.terms.map(({ path }) => path.join('.'));
  const index = relation.indexes.find(
    ({ fields }) =>
      fields.length === names.length + orderFields.length &&
      fields.slice(0, names.length).every((field) => names.includes(field)) &&
      orderFields.every((field, index) => fields[names.length + index] === field),
  );
  if (!index) return undefined;
  const use = useOf(index, (field) => names.includes(field));
  const fixedBy = use.fixed.map(({ field }) => names.indexOf(field));
  return { method: 'index', index: use, order, equalities: fixedBy, isAfter, shape, text: undefined, alternative };
}

/**
 * `index_order` by the index whose columns, but for those that the filter fixes, are the order; of several that with
 * the most columns. `sort` where there is none.
 */
export function pathOfOrder(
  relation: Relation,
  isFixed: (field: string) => boolean,
  { sort, after }: RequestShape,
): AccessPath {
  const order = orderOf(relation, sort, isFixed);
  const common = { order, equalities: [], isAfter: after !== undefined, shape: '', text: undefined };
  const index = indexOfOrder(relation, isFixed, order);
  if (!index) return { ...common, method: 'sort', index, alternative: undefined };
  const byText = { ...common, method: 'index_order_by_text', index, alternative: undefined } as const;
  return { ...common, method: 'index_order', index, alternative: byText };
}

function indexOfOrder(
  relation: Relation,
  isFixed: (field: string) => boolean,
  { terms, descending }: Order,
): IndexUse | undefined {
  if (terms.length === 0 || terms.some((term) => term.descending !== descending)) return undefined;
  const orderFields = terms.map(({ path }) => path.join('.'));
  let best: ServingIndex | undefined;
  for (const index of relation.indexes) {
    const free = index.fields.filter((field) => !isFixed(field));
    const serves = free.length === orderFields.length && free.every((field, index) => field === orderFields[index]);
    if (serves && (!best || index.fields.length > best.fields.length)) best = index;
  }
  return best && useOf(best, isFixed);
}

function useOf(index: ServingIndex, isFixed: (field: string) => boolean): IndexUse {
  const columns = index.fields.map((field, at) => ({ field, column: index.columns[at]! }));
  return {
    index,
    fixed: columns.filter(({ field }) => isFixed(field)),
    free: columns.filter(({ field }) => !isFixed(field)).map(({ column }) => column),
  };
}
