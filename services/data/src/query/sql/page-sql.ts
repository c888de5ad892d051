import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { descendingKey } from '../../catalog/table-names';
import type { Condition } from '../language/condition';
import type { IndexUse } from '../plan/access-path';
import type { Position } from '../plan/cursor';
import type { Order } from '../plan/order';
import type { PagePlan } from '../plan/page-plan';
import { isScanned, type ScanStep } from '../plan/scan';
import type { Relation } from '../plan/relation';
import { Compiler } from './filter-sql';
import { indexScan, type IndexOrder, type IndexPosition, type IndexScan } from './index-order-sql';
import { isTruncatedKey } from './key-sql';
import { directionOf, keyParameter, sortedOrder } from './keyset-sql';
import { RowFields } from './row-fields';
import { ScanCompiler } from './scan-sql';

/**
 * The statement of a plan for a page of texts, but for those by one index alone (indexRead). Its rows have `body`, and
 * for `index_order` also `truncated`: where a row has it, keys do not decide its position, and the alternative of the
 * plan does.
 */
export function pageStatement(plan: PagePlan): Sql {
  const { index, method } = plan.access;
  switch (method) {
    case 'index_order':
      return indexPage(plan, index!);
    case 'index_order_by_text':
      return sortedIndexPage(plan, index!);
    case 'sort':
      return plan.scan ? scannedPage(plan, plan.scan) : sortedPage(plan);
    case 'id':
    case 'index':
      throw new Error(`The method ${method} has a prepared statement`);
  }
}

/** Any order of any paths: the matches are sorted, the best `limit + offset` of them kept at a time. */
function sortedPage({ relation, filter, access, after, limit, offset }: PagePlan): Sql {
  const { from, where, order } = ordered(relation, filter, access.order, after);
  // The row tells its position where the text of the record does not.
  const position = relation.tieColumn
    ? sql`, t.id, ${relation.tieColumn}::text as version`
    : relation.hasIdColumn
      ? empty
      : sql`, t.id`;
  return sql`select t.body${position} from ${from} ${where} order by ${order} limit ${limit} offset ${offset}`;
}

/** The page of a filter that no index narrows, as one step of a scan. */
function scannedPage({ relation, filter, access, after, limit, offset }: PagePlan, step: ScanStep): Sql {
  const { order } = access;
  // A position among the ids needs no document.
  const isById = order.terms.length === 0;
  const ids = new RowFields(relation);
  const direction = directionOf(order.descending);
  const scan = new ScanCompiler(relation, filter, {
    conditions: isById ? sortedOrder(relation, ids, order, after).after : [],
    order: step.kind === 'whole' ? undefined : sql`${ids.id} ${direction}`,
    limit: step.kind === 'head' ? step.rows : undefined,
  });
  const { lateral, orderBy, after: behind } = sortedOrder(relation, scan, order, after);
  const where = scan.where(filter, ...(isById ? [] : behind));
  return sql`select t.body from ${scan.records()}${lateral} ${where} order by ${orderBy} limit ${limit} offset ${offset}`;
}

/** How many rows match a filter. */
export function countStatement({ relation, filter }: PagePlan): Sql {
  const compiler = isScanned(relation, filter) ? new ScanCompiler(relation, filter) : new Compiler(relation);
  const where = compiler.where(filter);
  return sql`select count(*) as total from ${compiler.records()} ${where}`;
}

/** The matching rows in an order, behind a position in it. */
function ordered(source: Relation, find: Condition, order: Order, position: Position | undefined) {
  const compiler = new Compiler(source);
  const { lateral, orderBy, after } = sortedOrder(source, compiler, order, position);
  const where = compiler.where(find, ...after);
  return { from: sql`${compiler.records()}${lateral}`, where, order: orderBy };
}

const indexOrderOf = ({ access, fixed }: PagePlan, index: IndexUse): IndexOrder => ({
  fixed: index.fixed.map(({ column }, index) => ({ column, key: sql`${fixed[index]!}::bytea` })),
  free: index.free,
  descending: access.order.descending,
});

/** The page as an index gives it, each row with whether a key of it is truncated. */
function indexPage(plan: PagePlan, index: IndexUse): Sql {
  const { relation, filter, after, positions, limit, offset } = plan;
  const keys = positions.map(keyParameter);
  const operator = plan.access.order.descending ? '<' : '>';
  return indexScan({
    order: indexOrderOf(plan, index),
    rows: matching(relation, filter),
    select: [
      { name: trusted('body'), value: sql`t.body` },
      ...(relation.hasIdColumn ? [] : [{ name: trusted('id'), value: sql`t.id` }]),
      { name: trusted('truncated'), value: join(index.free.map(isTruncatedKey), ' or ') },
    ],
    behind: after && ((branch) => branch.compare(operator, { keys, id: sql`${after.id}::text` })),
    limit: sql`${limit}::int8`,
    offset: sql`${offset}::int8`,
  });
}

const matching =
  (relation: Relation, filter: Condition): IndexScan['rows'] =>
  (...conditions) => {
    const compiler = new Compiler(relation);
    const where = compiler.where(filter, ...conditions);
    return sql`from ${compiler.records()} ${where}`;
  };

/**
 * The page by an index with truncated keys. It reads as many rows as the page needs in the order of the keys, then all
 * others that have the same keys as the last of them up to its first truncated one, because they may come before it.
 * Only those rows are sorted.
 */
function sortedIndexPage(plan: PagePlan, index: IndexUse): Sql {
  const { relation, access, after, limit, offset } = plan;
  const { order } = access;
  const needed = limit + offset;
  const rows = rowsBehind(plan, index);
  const select = [
    ...[trusted('id'), trusted('body')].map((name) => ({ name, value: sql`t.${name}` })),
    ...index.free.map((column, index) => ({ name: keyName(index), value: column })),
  ];
  const begin = after && startOf(plan, after);
  const operator = `${order.descending ? '<' : '>'}${begin?.id ? '' : '='}` as const;
  const inKeyOrder = indexScan({
    order: indexOrderOf(plan, index),
    rows,
    select,
    behind: begin && ((branch) => branch.compare(operator, begin)),
    limit: sql`${needed}::int8`,
    offset: sql`0::int8`,
  });
  const direction = directionOf(order.descending);
  const keyOrder = index.free.map((_, keyIndex) => {
    const name = keyName(keyIndex);
    return sql`${order.descending ? descendingKey(name) : name} ${direction}`;
  });
  const columns = join(
    select.map(({ name, value }) => sql`${value} as ${name}`),
    ', ',
  );
  const others = index.free.map((_, at) => sql`select ${columns} ${rows(...sameAsLast(index, at))}`);
  const source = keyedSource(relation, order);
  const sorted = sortedOrder(source, new Compiler(source), order, undefined);
  return sql`
    with key_order as materialized (${inKeyOrder}),
    last as materialized (
      select * from key_order order by ${join([...keyOrder, sql`id ${direction}`], ', ')} limit 1 offset ${needed - 1}),
    found as (select * from key_order union all ${join(others, ' union all ')})
    select t.body${relation.hasIdColumn ? empty : sql`, t.id`} from found t order by ${sorted.orderBy} limit ${limit} offset ${offset}`;
}

/**
 * FROM and WHERE of the matches that fulfil some conditions too, and are not before the position where the page begins.
 */
function rowsBehind({ relation, filter, access, after, positions }: PagePlan, index: IndexUse): IndexScan['rows'] {
  const truncated = positions.findIndex(({ text }) => text !== undefined);
  return (...conditions) => {
    const compiler = new Compiler(relation);
    if (truncated >= 0) {
      const behind = sortedOrder(relation, compiler, access.order, after).after[0]!;
      const isSame = sql`${index.free[truncated]!} = ${keyParameter(positions[truncated]!)}`;
      // Postgres is not to look for the rows by this: it is for those with the truncated key of the position.
      conditions.push(sql`case when ${isSame} then ${behind} else true end`);
    }
    const where = compiler.where(filter, ...conditions);
    return sql`from ${compiler.records()} ${where}`;
  };
}

/** Other rows with the keys of the last one up to that column, if that is the first that is truncated. */
function sameAsLast(index: IndexUse, truncatedAt: number): Sql[] {
  const upTo = index.free.slice(0, truncatedAt + 1);
  const isFirst = upTo.map((_, index) =>
    index < truncatedAt ? sql`not ${isTruncatedKey(keyName(index))}` : isTruncatedKey(keyName(index)),
  );
  return [
    ...upTo.map((column, index) => sql`${column} = (select ${keyName(index)} from last)`),
    sql`(select ${join(isFirst, ' and ')} from last)`,
    sql`not exists (select from key_order k where k.id = t.id)`,
  ];
}

const keyName = (at: number): Sql => named('f', BigInt(at));

/** Rows that have nothing but ids, texts, and the keys of an order. */
const keyedSource = (source: Relation, { terms }: Order): Relation => ({
  ...source,
  keys: new Map(terms.map(({ path }, index) => [path.join('.'), sql`t.${keyName(index)}`])),
});

/** The position where the page begins in the order of the keys: its keys up to the first that is truncated. */
function startOf({ positions }: PagePlan, after: Position): IndexPosition {
  const truncated = positions.findIndex(({ text }) => text !== undefined);
  return truncated < 0
    ? { keys: positions.map(keyParameter), id: sql`${after.id}::text` }
    : { keys: positions.slice(0, truncated + 1).map(keyParameter), id: undefined };
}
