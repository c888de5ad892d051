import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { and, type Condition } from '../language/condition';
import { joinedRecordsMax } from '../language/joins';
import { conjunctsOf, type JoinPlan } from '../plan/join-plan';
import type { Relation } from '../plan/relation';
import { Compiler } from './filter-sql';
import { ParentRow } from './parent-row';
import { boundedReferenceSql, hashedOperand, hashedOperands, hashedValue } from './reference-sql';
import { RowFields } from './row-fields';

/*
 * The joins of a page are part of its one statement. What they find is one text column, `joined`: for each join in turn
 * the number of its records, a colon, and each record as the bytes of its text, a colon, the text, and its own joins in
 * the same way. So no text is parsed on its way.
 *
 * A join that an index serves is a lateral subquery of the rows that it belongs to. One with a scan in it is collected:
 * its records for the whole page are a common table expression, and are grouped by the rows that they belong to.
 *
 * Aliases have the number of the join: t its table, x its records, a their texts.
 */

/** A join as a part of the statement for the rows that it belongs to. */
interface JoinedPart {
  /** The SQL that follows these rows in a FROM clause. */
  join: Sql;
  /** The text of the join. */
  items: Sql;
  /** Common table expressions, each behind those that it reads. */
  expressions: readonly Sql[];
}

/** The records of one row in a collection that is larger can exceed what an answer may hold. */
const surelySmallBytes = 16n * 1024n * 1024n;

/**
 * The statement of a page with its joins: the columns of the page's own statement and `joined`, rows in its order. The
 * rows end after the one with which their texts exceed `bytesMax`; so do the texts of one join.
 */
export function joinedPage(page: Sql, relation: Relation, plans: readonly JoinPlan[], bytesMax: number): Sql {
  const max = trusted(BigInt(bytesMax).toString());
  // The statement of a page need not have a column for the id.
  const rows = new ParentRow(0, { ...relation, hasIdColumn: false }, new Map());
  const parts = plans.map((plan) => joinedPart(rows, pageName, plan, max));
  const expressions = [
    sql`page as materialized (select p.*, row_number() over () as n from (${page}) p)`,
    ...parts.flatMap((part) => part.expressions),
  ];
  const joined = sql`select x0.*, ${join(itemsOf(parts), ' || ')} as joined from ${rows.from(pageName)} ${joinsOf(parts)} offset 0`;
  const size = sql`octet_length(w.body) + octet_length(w.joined)`;
  return sql`with ${join(expressions, ', ')}
    select w.* from (
      select w.*, sum(${size}) over (order by w.n rows unbounded preceding) as bytes from (${joined}) w) w
    where w.bytes - (${size}) <= ${max} order by w.n`;
}

const pageName = trusted('page');
const itemsOf = (parts: readonly JoinedPart[]): Sql[] => parts.map(({ items }) => items);
const joinsOf = (parts: readonly JoinedPart[]): Sql =>
  join(
    parts.map((part) => part.join),
    ' ',
  );

/** `table` has the rows that a collected join belongs to. */
function joinedPart(parent: ParentRow, table: Sql, plan: JoinPlan, max: Sql): JoinedPart {
  const [records, alias] = [named('x', BigInt(plan.number)), named('a', BigInt(plan.number))];
  const rows = new ParentRow(plan.number, plan.relation, plan.relation.keys);
  const inner = plan.joins.map((one) => joinedPart(rows, records, one, max));
  const items = sql`coalesce(${alias}.items, '0:')`;
  if (!plan.isCollected) {
    const matches = lookUp(parent, plan, rows);
    const texts = textsOf(plan, sql`${rows.from(sql`(${matches})`)} ${joinsOf(inner)}`, inner, empty, max);
    return { join: sql`left join lateral (${texts}) ${alias} on true`, items, expressions: [] };
  }
  const collected =
    plan.access.method === 'scan' ? scanned(parent, table, plan, rows) : lookedUp(parent, table, plan, rows);
  const texts = textsOf(plan, sql`${rows.from(records)} ${joinsOf(inner)}`, inner, sql`${records}.up, `, max);
  const expressions = [...collected, ...inner.flatMap((part) => part.expressions), sql`${alias} as (${texts})`];
  return { join: sql`left join ${alias} on ${alias}.up = ${parent.place}`, items, expressions };
}

/** The texts of records, in one for each value of `up`, which is a column and a comma, or for all of them. */
function textsOf(plan: JoinPlan, from: Sql, inner: readonly JoinedPart[], up: Sql, max: Sql): Sql {
  const row = named('x', BigInt(plan.number));
  const item = join([sql`octet_length(${row}.body)::text || ':' || ${row}.body`, ...itemsOf(inner)], ' || ');
  if (!plan.join.many) return sql`select ${up}'1:' || ${item} as items from ${from}`;
  const isGrouped = up !== empty;
  const groupBy = (column: Sql) => (isGrouped ? sql`group by ${column}` : empty);
  const { sizeBytes } = plan.relation;
  if (inner.length === 0 && sizeBytes !== undefined && sizeBytes < surelySmallBytes) {
    return sql`select ${up}count(*)::text || ':' || coalesce(string_agg(${item}, '' order by ${row}.id), '') as items
      from ${from} ${groupBy(sql`${row}.up`)}`;
  }
  const partition = isGrouped ? sql`partition by w.up ` : empty;
  return sql`select ${isGrouped ? sql`w.up, ` : empty}count(*)::text || ':' || coalesce(
      string_agg(w.item, '' order by w.id) filter (where w.bytes - octet_length(w.item) <= ${max}), '') as items
    from (
      select w.*, sum(octet_length(w.item)) over (${partition}order by w.id rows unbounded preceding) as bytes
      from (select ${up}${row}.id, ${item} as item from ${from} offset 0) w) w ${groupBy(sql`w.up`)}`;
}

/** One more than an array may have: if it is found, there are too many. */
const limitOf = ({ join: { many } }: JoinPlan): Sql => trusted(many ? String(joinedRecordsMax + 1) : '1');

const columnsOf = (plan: JoinPlan, rows: ParentRow): Sql => {
  const { row } = plan.relation.alias;
  const carried = [...rows.carried.values()].map(({ column, name }) => sql`${column} as ${name}`);
  return join([sql`${row}.id`, sql`${row}.body`, ...carried], ', ');
};

/** The records of a join for one row, by an index. */
function lookUp(parent: ParentRow, plan: JoinPlan, rows: ParentRow): Sql {
  const { relation, access } = plan;
  const { row } = relation.alias;
  const ordered = access.method === 'index' ? access.ordered : undefined;
  const fields = new RowFields(relation);
  const compiler = new Compiler(relation, parent);
  const others = conjunctsOf(plan.join.find).filter((condition) => condition !== ordered);
  const where = compiler.where(and(...others), ...(ordered ? [boundedReferenceSql(fields, parent, ordered)] : []));
  const orderBy = ordered
    ? sql`${fields.keyOf(ordered.path)!}, ${row}.id`
    : access.method === 'index' && access.isUnordered
      ? // Postgres is not to walk the ids in search of the records.
        sql`${row}.id || ''`
      : sql`${row}.id`;
  return sql`select ${columnsOf(plan, rows)} from ${compiler.records()} ${where} order by ${orderBy} limit ${limitOf(plan)}`;
}

/** The CTE with the records of a join for all rows of a table, found by an index. */
function lookedUp(parent: ParentRow, table: Sql, plan: JoinPlan, rows: ParentRow): Sql[] {
  const outer = parent.again();
  const matches = lookUp(outer, plan, rows);
  return [
    collection(plan, sql`select ${outer.place} as up, r.* from ${outer.from(table)} cross join lateral (${matches}) r`),
  ];
}

const collection = (plan: JoinPlan, found: Sql): Sql =>
  sql`${named('x', BigInt(plan.number))} as materialized (select row_number() over () as n, f.* from (${found}) f)`;

/** The records of a join for all rows of a table, by one scan. */
function scanned(parent: ParentRow, table: Sql, plan: JoinPlan, rows: ParentRow): Sql[] {
  const { relation, access } = plan;
  const { row } = relation.alias;
  const hashed = access.method === 'scan' ? access.hashed : undefined;
  const conjuncts = conjunctsOf(plan.join.find);
  const referring = conjuncts.filter(refers);
  const scan = new Compiler(relation);
  const value = hashed ? hashedValue(scan, hashed) : sql`null`;
  const isHashed = hashed ? [sql`${value} in (${hashedOperands(scan, parent.again(), table, hashed)})`] : [];
  const where = scan.where(and(...conjuncts.filter((condition) => !refers(condition))), ...isHashed);
  // Where nothing refers to the rows above, all of them have the same records.
  const few = referring.length === 0 ? sql`order by ${row}.id limit ${limitOf(plan)}` : empty;
  const name = named('b', BigInt(plan.number));

  const outer = parent.again();
  const scannedRelation: Relation = { ...relation, table: sql`${name} ${row}`, visible: empty };
  const compiler = new Compiler(scannedRelation, outer);
  const isSame = hashed?.comparison === 'is' ? [sql`${row}.v = ${hashedOperand(scan, outer, hashed)}`] : [];
  // Where dates are hashed, a number may be the instant of a text.
  const isDecided = isSame.length > 0 && !scan.isDate(hashed!.path);
  const pairWhere = compiler.where(and(...referring.filter((one) => !isDecided || one !== hashed)), ...isSame);
  const pairs = sql`select ${outer.place} as up, ${columnsOf(plan, rows)},
      row_number() over (partition by ${outer.place} order by ${row}.id) as number
    from ${outer.from(table)} cross join ${compiler.records()} ${pairWhere}`;
  return [
    sql`${name} as materialized (select ${row}.*, ${value} as v from ${scan.records()} ${where} ${few})`,
    collection(plan, sql`select * from (${pairs}) g where g.number <= ${limitOf(plan)}`),
  ];
}

/** Whether a condition compares with another record. */
function refers(condition: Condition): boolean {
  return 'conditions' in condition ? condition.conditions.some(refers) : condition.kind === 'reference';
}
