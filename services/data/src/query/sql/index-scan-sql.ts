import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { SharedRow } from '../../postgres/shared-row';
import type { StatementValue } from '@granary/shared/postgres/wire/values';
import { keyText } from '../../values/ordered-key';
import type { AccessPath, IndexUse } from '../plan/access-path';
import { isByIndexAlone, type PagePlan } from '../plan/page-plan';
import type { Relation } from '../plan/relation';
import { indexScan } from './index-order-sql';
import { isTruncatedKey } from './key-sql';
import { indexReadBodyMax, lookedUpPage } from './joined-look-up-sql';
import { directionOf } from './keyset-sql';

/**
 * The settings of the connections for index reads. Their statements are planned once, whatever their values, and always
 * by the chosen index, which alone gives their order without a sort. No other plan is worth a look, and the statistics
 * of Postgres about frequent values must not lead to one.
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
 * A statement, with the values of one request. Its rows have the body, null where the index alone does not do, and
 * `joined` where there are joins. Before them comes one with the state of the relation, where that has one.
 */
export interface IndexRead {
  text: string;
  values: StatementValue[];
  /** Other pages of the relation have the same row with the state. */
  state?: SharedRow;
}

/** The statement of a plan by which one index gives the page alone; undefined for other plans. */
export function indexRead(plan: PagePlan): IndexRead | undefined {
  const { relation, access, joins } = plan;
  if (!isByIndexAlone(access)) return undefined;
  const text = (access.text ??= prepareText(relation, access));
  const values = valuesOf(plan);
  if (!joins) return access.state ? { text, values, state: access.state } : { text, values };
  const joined = lookedUpPage(trusted(text), joins).compile(values);
  return { text: joined.text, values: joined.values as StatementValue[] };
}

function valuesOf({ fixed, after, positions, limit, offset }: PagePlan): Array<string | number> {
  if (!after) return [...fixed, limit, offset];
  return [...fixed, ...positions.map(({ key }) => keyText(key)), after.id, limit, offset];
}

/** The text of the statement; with the state of its relation where it has one, which other pages may have read. */
function prepareText(relation: Relation, access: AccessPath): string {
  const page = pageOf(relation, access);
  if (!relation.state) return page.compile().text;
  access.state = { key: relation.collection ?? relation.identity, rest: page.compile().text };
  // One statement reads the state and the page from one snapshot, and costs less than two. The state comes first,
  // because the rows of an append come in the order of its parts.
  return sql`${relation.state} union all (${page})`.compile().text;
}

function pageOf(relation: Relation, access: AccessPath): Sql {
  if (!access.index) return byId(relation);
  return access.index.free.length === 0
    ? inOrderOfIds(relation, access.index, access)
    : inOrder(relation, access.index, access);
}

/** The parameter of that number, from 1. */
const parameter = (number: number): Sql => trusted(`$${number}`);
const key = (number: number): Sql => sql`${parameter(number)}::bytea`;

function whereOf(relation: Relation, ...conditions: Sql[]): Sql {
  const parts = [relation.visible, ...conditions].filter((condition) => condition !== empty);
  return parts.length === 0 ? empty : sql`where ${join(parts, ' and ')}`;
}

/** The body where the keys decide its position; null else, and where it is large. */
function bodyOf(keys: readonly Sql[]): Sql {
  const isWanted = [
    sql`octet_length(t.body) <= ${indexReadBodyMax}`,
    ...keys.map((k) => sql`not (${isTruncatedKey(k)})`),
  ];
  return sql`case when ${join(isWanted, ' and ')} then t.body end`;
}

/** A limit and an offset, the parameters from that number on. */
const cutOf = (number: number): Sql => sql`limit ${parameter(number)}::int8 offset ${parameter(number + 1)}::int8`;

function byId(relation: Relation): Sql {
  const where = whereOf(relation, sql`t.id = ${parameter(1)}`);
  return sql`select ${bodyOf([])} from ${relation.table} ${where} ${cutOf(2)}`;
}

function inOrderOfIds(relation: Relation, { fixed }: IndexUse, { order: { descending }, isAfter }: AccessPath): Sql {
  const keys = fixed.map(({ column }) => column);
  const direction = directionOf(descending);
  const last = keys.at(-1)!;
  const lastKey = key(keys.length);
  const id = sql`${parameter(keys.length + 1)}::text`;
  const [lower, upper] = [sql`${last} >= ${lastKey}`, sql`${last} <= ${lastKey}`];
  const after = sql`(${last}, t.id) ${trusted(descending ? '<' : '>')} (${lastKey}, ${id})`;
  // Two bounds and the key in the order say what an equality would; but of that Postgres could think so many rows
  // fulfil it that it would rather look for them among all documents, by the index of the ids.
  const bounds = isAfter ? [after, descending ? lower : upper] : [lower, upper];
  const equal = keys.slice(0, -1).map((column, index) => sql`${column} = ${key(index + 1)}`);
  return sql`select ${bodyOf([])} from ${relation.table} ${whereOf(relation, ...equal, ...bounds)}
    order by ${last} ${direction}, t.id ${direction} ${cutOf(keys.length + (isAfter ? 2 : 1))}`;
}

/** The parameters: keys of the fixed columns, the position that the page begins behind and its id, limit, offset. */
function inOrder(relation: Relation, { fixed, free }: IndexUse, { order: { descending }, isAfter }: AccessPath): Sql {
  const equal = fixed.map(({ column }, index) => sql`${column} = ${key(index + 1)}`);
  const position = {
    keys: free.map((_, index) => key(fixed.length + 1 + index)),
    id: sql`${parameter(fixed.length + free.length + 1)}::text`,
  };
  const next = fixed.length + 1 + (isAfter ? free.length + 1 : 0);
  return indexScan({
    order: { fixed: fixed.map(({ column }, index) => ({ column, key: key(index + 1) })), free, descending },
    rows: (...conditions) => sql`from ${relation.table} ${whereOf(relation, ...equal, ...conditions)}`,
    select: [{ name: trusted('body'), value: bodyOf(free) }],
    behind: isAfter ? (branch) => branch.compare(descending ? '<' : '>', position) : undefined,
    limit: sql`${parameter(next)}::int8`,
    offset: sql`${parameter(next + 1)}::int8`,
  });
}
