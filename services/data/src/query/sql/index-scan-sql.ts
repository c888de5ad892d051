import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { JsonValue } from '@granary/shared/json/value';
import type { Condition, Path } from '../language/condition';
import { effectiveSort, type PageRequest } from '../plan/order';
import type { Relation } from '../plan/relation';
import { Compiler } from './filter-sql';
import { indexScan } from './index-order-sql';
import { keyText } from './key-sql';
import { directionOf, isTruncatedKey, placesOf } from './keyset-sql';

/** Rows before a page that may be passed over, rows of a page, and bytes of each: so a page has at most 16 MiB. */
const offsetMax = 1_000;
const limitMax = 1_001;
const bodyBytesMax = 16 * 1024;
/** Plans of one source, at most. */
const plansMax = 64;

/**
 * What the connections of index reads are set to. Their statements are planned once, whatever their values, and always
 * by that index, which alone gives their order without a sort: no other plan is worth a look, and what Postgres knows
 * of frequent values must not lead it to another.
 */
export const indexReadSettings: Readonly<Record<string, string>> = {
  plan_cache_mode: 'force_generic_plan',
  jit: 'off',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  enable_sort: 'off',
  enable_incremental_sort: 'off',
};

/** The statement for all requests of one shape. Its rows have the body, null where the index alone does not do. */
export interface IndexPlan {
  text: string;
  /** The places of the index's first fields among the conditions of the request. */
  fixed: readonly number[];
  /** The places of the fields that follow among the terms of its order. */
  free: readonly number[];
  descending: boolean;
  /** The relation and the shape of the request: responses of one kind have similar sizes. */
  kind: string;
}

/** A statement of a plan, with the values of one request. */
export interface IndexRead {
  plan: IndexPlan;
  values: Array<string | number>;
}

/** A condition that a field has one value; null stands for missing and null. */
interface Equality {
  path: Path;
  value: JsonValue;
}

/** A source lives as long as what is known of its collection holds, and its plans with it. */
const plans = new WeakMap<Relation, Map<string, IndexPlan | null>>();

/**
 * A page that one index gives alone: the matches of equalities on its first fields, in the order of those that follow,
 * or of the ids where none do. What Postgres does for it grows with the page only. The statement depends on what the
 * request names, not on its values, so it is made once. Undefined where the general way has to be gone.
 */
export function indexRead(source: Relation, page: PageRequest): IndexRead | undefined {
  if (page.offset > offsetMax || page.limit > limitMax) return undefined;
  const equalities = equalitiesOf(page.find);
  if (!equalities) return undefined;
  const plan = planFor(source, page, equalities);
  const values = plan ? valuesOf(source, plan, page, equalities) : undefined;
  return plan && values ? { plan, values } : undefined;
}

/** The conditions where all of them are equalities; none where there are none. */
function equalitiesOf(find: Condition): readonly Equality[] | undefined {
  const equalities: Equality[] = [];
  for (const condition of find.kind === 'and' ? find.conditions : [find]) {
    if (condition.kind === 'is') equalities.push(condition);
    else if (condition.kind === 'empty') equalities.push({ path: condition.path, value: null });
    else return undefined;
  }
  return equalities;
}

function planFor(source: Relation, page: PageRequest, equalities: readonly Equality[]): IndexPlan | null {
  let known = plans.get(source);
  if (!known) plans.set(source, (known = new Map<string, IndexPlan | null>()));
  const shape = shapeOf(page, equalities);
  let plan = known.get(shape);
  if (plan === undefined) {
    plan = makePlan(source, page, equalities, `${source.identity}\0${shape}`) ?? null;
    if (known.size >= plansMax) known.clear();
    known.set(shape, plan);
  }
  return plan;
}

/** Requests of one shape differ in values only. No path holds a NUL or is empty, so no two shapes run together. */
function shapeOf({ sort, after }: PageRequest, equalities: readonly Equality[]): string {
  let shape = after ? 'after' : 'first';
  for (const { path } of equalities) shape += `\0${path.join('.')}`;
  shape += '\0';
  for (const { path, descending } of sort) shape += `\0${descending ? '-' : '+'}${path.join('.')}`;
  return shape;
}

function makePlan(
  source: Relation,
  page: PageRequest,
  equalities: readonly Equality[],
  kind: string,
): IndexPlan | undefined {
  const names = equalities.map(({ path }) => path.join('.'));
  if (new Set(names).size < names.length) return undefined;
  const isAfter = page.after !== undefined;
  if (names.length === 1 && new Compiler(source).isId(equalities[0]!.path))
    return isAfter ? undefined : byId(source, kind);
  // Ids are compared with their column, not with the key that a composite index has of them.
  if (source.hasIdColumn && names.includes('id')) return undefined;

  const { terms, descending } = effectiveSort(source, page.sort);
  // What is fixed to one value decides nothing.
  const free = [...terms.keys()].filter((at) => !names.includes(terms[at]!.path.join('.')));
  if (free.some((at) => terms[at]!.descending !== descending)) return undefined;
  const wanted = free.map((at) => terms[at]!.path.join('.'));
  const index = source.indexes.find(
    ({ fields }) =>
      fields.length === names.length + wanted.length &&
      fields.slice(0, names.length).every((field) => names.includes(field)) &&
      wanted.every((field, at) => fields[names.length + at] === field),
  );
  if (!index) return undefined;
  const fixed = index.fields.slice(0, names.length).map((field) => names.indexOf(field));
  const columns = { fixed: index.columns.slice(0, names.length), free: index.columns.slice(names.length) };
  const order = { descending, isAfter };
  const statement = free.length === 0 ? inOrderOfIds(source, columns.fixed, order) : inOrder(source, columns, order);
  return { text: statement.compile().text, fixed, free, descending, kind };
}

interface Direction {
  descending: boolean;
  /** The page begins behind a place, whose values and id are parameters that follow those of the fixed fields. */
  isAfter: boolean;
}

/** The parameter of that number, from 1. */
const parameter = (number: number): Sql => trusted(`$${number}`);
const key = (number: number): Sql => sql`${parameter(number)}::bytea`;

function whereOf(source: Relation, ...conditions: Sql[]): Sql {
  const parts = [source.visible, ...conditions].filter((condition) => condition !== empty);
  return parts.length === 0 ? empty : sql`where ${join(parts, ' and ')}`;
}

/** The body where the keys decide its place; null else, and where it is large. */
function bodyOf(keys: readonly Sql[]): Sql {
  const isWanted = [
    sql`octet_length(t.body) <= ${trusted(String(bodyBytesMax))}`,
    ...keys.map((k) => sql`not (${isTruncatedKey(k)})`),
  ];
  return sql`case when ${join(isWanted, ' and ')} then t.body end`;
}

/** A limit and an offset, the parameters from that number on. */
const cutOf = (number: number): Sql => sql`limit ${parameter(number)}::int8 offset ${parameter(number + 1)}::int8`;

function byId(source: Relation, kind: string): IndexPlan | undefined {
  if (source.tieColumn) return undefined;
  const where = whereOf(source, sql`t.id = ${parameter(1)}`);
  const statement = sql`select ${bodyOf([])} from ${source.table} ${where} ${cutOf(2)}`;
  return { text: statement.compile().text, fixed: [0], free: [], descending: false, kind };
}

function inOrderOfIds(source: Relation, keys: readonly Sql[], { descending, isAfter }: Direction): Sql {
  const direction = directionOf(descending);
  const last = keys.at(-1)!;
  const lastKey = key(keys.length);
  const id = sql`${parameter(keys.length + 1)}::text`;
  const [lower, upper] = [sql`${last} >= ${lastKey}`, sql`${last} <= ${lastKey}`];
  const after = sql`(${last}, t.id) ${trusted(descending ? '<' : '>')} (${lastKey}, ${id})`;
  // Two bounds and the key in the order say what an equality would; but of that Postgres could think so many rows
  // fulfil it that it would rather look for them among all documents, by the index of the ids.
  const bounds = isAfter ? [after, descending ? lower : upper] : [lower, upper];
  const equal = keys.slice(0, -1).map((column, at) => sql`${column} = ${key(at + 1)}`);
  return sql`select ${bodyOf([])} from ${source.table} ${whereOf(source, ...equal, ...bounds)}
    order by ${last} ${direction}, t.id ${direction} ${cutOf(keys.length + (isAfter ? 2 : 1))}`;
}

function inOrder(
  source: Relation,
  { fixed, free }: { fixed: readonly Sql[]; free: readonly Sql[] },
  { descending, isAfter }: Direction,
): Sql {
  const equal = fixed.map((column, at) => sql`${column} = ${key(at + 1)}`);
  const place = {
    keys: free.map((_, at) => key(fixed.length + 1 + at)),
    id: sql`${parameter(fixed.length + free.length + 1)}::text`,
  };
  const next = fixed.length + 1 + (isAfter ? free.length + 1 : 0);
  return indexScan({
    order: { fixed: fixed.map((column, at) => ({ column, key: key(at + 1) })), free, descending },
    rows: (...conditions) => sql`from ${source.table} ${whereOf(source, ...equal, ...conditions)}`,
    select: [{ name: trusted('body'), value: bodyOf(free) }],
    behind: isAfter ? (branch) => branch.compare(descending ? '<' : '>', place) : undefined,
    limit: sql`${parameter(next)}::int8`,
    offset: sql`${parameter(next + 1)}::int8`,
  });
}

/** The values of a request; undefined where a key does not decide whether a field has the value, or where it is placed. */
function valuesOf(
  source: Relation,
  { fixed, free, descending }: IndexPlan,
  page: PageRequest,
  equalities: readonly Equality[],
): IndexRead['values'] | undefined {
  const compiler = new Compiler(source);
  const values: IndexRead['values'] = [];
  for (const at of fixed) {
    const text = compiler.exactKey(equalities[at]!.path, equalities[at]!.value);
    if (text === undefined) return undefined;
    values.push(text);
  }
  const { after } = page;
  if (after) {
    const { terms } = effectiveSort(source, page.sort);
    const placed = free.map((at) => ({ path: terms[at]!.path, descending, after: after.values[at] ?? null }));
    for (const { key, text } of placesOf(source, { terms: placed })) {
      if (text !== undefined) return undefined;
      values.push(keyText(key));
    }
    values.push(after.id);
  }
  values.push(page.limit, page.offset);
  return values;
}
