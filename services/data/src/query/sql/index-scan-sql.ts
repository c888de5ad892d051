import { LRUCache } from 'lru-cache';
import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { AnswerSize } from '../execute/response-size';
import { Compiler } from './filter-sql';
import { isCompound, mayExceedKey } from '../plan/cursor';
import type { Condition } from '../language/filter';
import { decidingTerms, directionOf, mayBeCut, type PageRequest } from '../plan/order';
import type { Source } from '../plan/relation';

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

/**
 * What the rows say of the rest, the matches without a key for the order: there cannot be any; `excluded`: no rows
 * come where there is a rest, for it would belong before or between them; `flagged`: the rest would come after them,
 * and the second column tells whether there is one.
 */
type Rest = 'none' | 'excluded' | 'flagged';

/** The statement for all requests of one shape. Its rows have the body, null where the index alone does not do. */
export interface IndexPlan {
  text: string;
  rest: Rest;
  /** The places of the index's first fields among the conditions of the request. */
  fixed: readonly number[];
  /** The places of the fields that follow among the terms of its order. */
  free: readonly number[];
  answerSize: AnswerSize;
}

/** A statement of a plan, with the values of one request. */
export interface IndexRead {
  plan: IndexPlan;
  values: Array<string | number>;
}

type Equality = Extract<Condition, { kind: 'is' }>;

/** A source lives as long as what is known of its collection holds, and its plans with it. */
const plans = new WeakMap<Source, Map<string, IndexPlan | null>>();

/** By source and shape, for longer than the plans: where its counters matter, a read has a source of its own. */
const answerSizes = new LRUCache<string, AnswerSize>({ max: 4_096 });

/**
 * A page that one index gives alone: the matches of equalities on its first fields, in the order of those that follow,
 * or of the ids where none do; or all documents in the order of its only field. What Postgres does for it grows with the page only. The statement depends on what the
 * request names, not on its values, so it is made once. Undefined where the general way has to be gone.
 */
export function indexRead(source: Source, page: PageRequest): IndexRead | undefined {
  if (page.offset > offsetMax || page.limit > limitMax) return undefined;
  const equalities = equalitiesOf(page.find);
  if (!equalities) return undefined;
  const plan = planFor(source, page, equalities);
  const values = plan ? valuesOf(source, plan, page, equalities) : undefined;
  return plan && values ? { plan, values } : undefined;
}

/** The conditions where all of them are equalities; none where there are none. */
function equalitiesOf(find: Condition): readonly Equality[] | undefined {
  if (find.kind === 'is') return [find];
  if (find.kind !== 'and') return undefined;
  return find.conditions.every((condition) => condition.kind === 'is') ? find.conditions : undefined;
}

function planFor(source: Source, page: PageRequest, equalities: readonly Equality[]): IndexPlan | null {
  let known = plans.get(source);
  if (!known) plans.set(source, (known = new Map<string, IndexPlan | null>()));
  const shape = shapeOf(page, equalities);
  let plan = known.get(shape);
  if (plan === undefined) {
    plan = makePlan(source, page, equalities, answerSizeOf(`${source.identity}\0${shape}`)) ?? null;
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

function answerSizeOf(kind: string): AnswerSize {
  let size = answerSizes.get(kind);
  if (!size) answerSizes.set(kind, (size = new AnswerSize()));
  return size;
}

function makePlan(
  source: Source,
  page: PageRequest,
  equalities: readonly Equality[],
  answerSize: AnswerSize,
): IndexPlan | undefined {
  const names = equalities.map(({ path }) => path.join('.'));
  if (new Set(names).size < names.length) return undefined;
  const isAfter = page.after !== undefined;
  if (names.length === 1 && new Compiler(source).isId(equalities[0]!.path))
    return isAfter ? undefined : byId(source, answerSize);
  // Ids are compared with their column, not with the key that a composite index has of them.
  if (source.hasIdColumn && names.includes('id')) return undefined;

  const { terms, descending } = decidingTerms(source, page.sort);
  // What is fixed to one value decides nothing.
  const free = [...terms.keys()].filter((at) => !names.includes(terms[at]!.path.join('.')));
  if (free.some((at) => terms[at]!.descending !== descending)) return undefined;
  const wanted = free.map((at) => terms[at]!.path.join('.'));
  // Of all documents only a single field tells quickly whether there are any without it.
  if (names.length === 0 && wanted.length !== 1) return undefined;
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
  return {
    ...(free.length === 0 ? inOrderOfIds(source, columns.fixed, order) : inOrder(source, columns, order)),
    fixed,
    free,
    answerSize,
  };
}

interface Direction {
  descending: boolean;
  /** The page begins behind a place, whose values and id are parameters that follow those of the fixed fields. */
  isAfter: boolean;
}

/** The parameter of that number, from 1. */
const parameter = (number: number): Sql => trusted(`$${number}`);
const key = (number: number): Sql => sql`${parameter(number)}::jsonb`;

const inRow = (parts: readonly Sql[]): Sql => join(parts, ', ');

function whereOf(source: Source, ...conditions: Sql[]): Sql {
  return join(
    [source.visible, ...conditions].filter((condition) => condition !== empty),
    ' and ',
  );
}

/** The body where the keys decide its place; null else, and where it is large. */
function bodyOf(keys: readonly Sql[]): Sql {
  const isWanted = [
    sql`octet_length(t.body) <= ${trusted(String(bodyBytesMax))}`,
    ...keys.map((k) => sql`not (${mayBeCut(k)})`),
  ];
  return sql`case when ${join(isWanted, ' and ')} then t.body end`;
}

/** A limit and an offset, the parameters from that number on. */
const cutOf = (number: number): Sql => sql`limit ${parameter(number)}::int8 offset ${parameter(number + 1)}::int8`;

function byId(source: Source, answerSize: AnswerSize): IndexPlan | undefined {
  if (source.tieColumn) return undefined;
  const where = whereOf(source, sql`t.id = ${parameter(1)}`);
  return {
    text: sql`select ${bodyOf([])} from ${source.table} where ${where} ${cutOf(2)}`.compile().text,
    ...{ rest: 'none', fixed: [0], free: [], answerSize },
  };
}

type Statement = Pick<IndexPlan, 'text' | 'rest'>;

function inOrderOfIds(source: Source, keys: readonly Sql[], { descending, isAfter }: Direction): Statement {
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
  const statement = sql`select ${bodyOf([])} from ${source.table} where ${whereOf(source, ...equal, ...bounds)}
    order by ${last} ${direction}, t.id ${direction} ${cutOf(keys.length + (isAfter ? 2 : 1))}`;
  return { text: statement.compile().text, rest: 'none' };
}

function inOrder(
  source: Source,
  { fixed, free }: { fixed: readonly Sql[]; free: readonly Sql[] },
  { descending, isAfter }: Direction,
): Statement {
  const direction = directionOf(descending);
  const placed = [...free, sql`t.id`];
  const equal = fixed.map((column, at) => sql`${column} = ${key(at + 1)}`);
  const place = [
    ...free.map((_, at) => key(fixed.length + 1 + at)),
    sql`${parameter(fixed.length + placed.length)}::text`,
  ];
  const after = sql`(${inRow(placed)}) ${trusted(descending ? '<' : '>')} (${inRow(place)})`;
  const hasKeys = free.map((column) => sql`${column} is not null`);
  const lacksKey = join(
    free.map((column) => sql`${column} is null`),
    ' or ',
  );
  const rest = sql`exists (select from ${source.table} where ${whereOf(source, ...equal, sql`(${lacksKey})`)})`;
  // Behind a scalar there are only missing values and null, which come last; in an ascending order all the rest do.
  const isExcluded = free.length > 1 || (descending && !isAfter);
  const where = whereOf(
    source,
    ...equal,
    ...hasKeys,
    ...(isAfter ? [after] : []),
    ...(isExcluded ? [sql`not ${rest}`] : []),
  );
  const statement = sql`select ${bodyOf(free)}${isExcluded ? empty : sql`, ${rest}`} from ${source.table} where ${where}
    order by ${inRow(placed.map((column) => sql`${column} ${direction}`))}
    ${cutOf(fixed.length + 1 + (isAfter ? placed.length : 0))}`;
  return { text: statement.compile().text, rest: isExcluded ? 'excluded' : 'flagged' };
}

/** The values of a request; undefined where a key does not decide whether a field has the value, or where it is placed. */
function valuesOf(
  source: Source,
  { fixed, free }: IndexPlan,
  { after, limit, offset }: PageRequest,
  equalities: readonly Equality[],
): IndexRead['values'] | undefined {
  const compiler = new Compiler(source);
  const values: IndexRead['values'] = [];
  for (const at of fixed) {
    const text = compiler.exactKey(equalities[at]!.path, equalities[at]!.value);
    if (text === undefined) return undefined;
    values.push(text);
  }
  if (after) {
    for (const at of free) {
      const text = after.values[at] ?? null;
      if (text === null || isCompound(text) || mayExceedKey(text)) return undefined;
      values.push(text);
    }
    values.push(after.id);
  }
  values.push(limit, offset);
  return values;
}
