import { join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { directionOf } from './keyset-sql';
import { descendingKey, emptyKey } from '../../catalog/table-names';

/** The columns of an index: those that are fixed to a key, and those that give the order, with the id after them. */
export interface IndexOrder {
  fixed: ReadonlyArray<{ column: Sql; key: Sql }>;
  free: readonly Sql[];
  descending: boolean;
}

/**
 * A position in the order: keys of its first free columns, in an order that descends as descendingKey() has them, and
 * an id.
 */
export interface IndexPosition {
  keys: readonly Sql[];
  id: Sql | undefined;
}

/** A range of one Postgres index that has some of the rows of an order, as they come there. */
export interface IndexBranch {
  /**
   * The conditions of a scan that begins at the end of the index, and of one that begins behind a position, to which
   * the comparison with the position belongs as well.
   */
  conditions: readonly Sql[];
  conditionsBehind: readonly Sql[];
  /** The columns that its rows are ordered by, before their ids. */
  columns: readonly Sql[];
  /** Compares the rows with a position. */
  compare(operator: '<' | '<=' | '>' | '>=', position: IndexPosition): Sql;
}

const inRow = (parts: readonly Sql[]): Sql => join(parts, ', ');

const compareRow =
  (columns: readonly Sql[]): IndexBranch['compare'] =>
  (operator, { keys, id }) => {
    const row = [...columns.slice(0, keys.length), ...(id ? [sql`t.id`] : [])];
    return sql`(${inRow(row)}) ${trusted(operator)} (${inRow([...keys, ...(id ? [id] : [])])})`;
  };

/**
 * The ranges of an index in which the rows of an order are. Ascending it is one, for missing and null have the last
 * key. An order that descends reads backwards, and has the rows that lack a value in a range of their own: by one
 * column they follow the others; by several they are read from the index of such rows, and merged.
 */
export function branchesOf({ fixed, free, descending }: IndexOrder): IndexBranch[] {
  const compareFree = compareRow(free);
  if (!descending) return [{ conditions: [], conditionsBehind: [], columns: free, compare: compareFree }];
  const hasValue = free.map((column) => sql`${column} < ${emptyKey}`);
  // Postgres would begin a scan at the first bound of a column, and a position is a closer one.
  const complete: IndexBranch = {
    conditions: hasValue,
    conditionsBehind: hasValue.slice(1),
    columns: free,
    compare: compareFree,
  };
  if (free.length === 1) {
    // All rows of this range have the last key; what a position with another key means is for none of them, or for all.
    const within = (key: Sql) => sql`case when ${key} = ''::bytea then ${emptyKey} else '\\xff'::bytea end`;
    const isLast = [sql`${free[0]!} >= ${emptyKey}`];
    return [
      complete,
      {
        conditions: isLast,
        conditionsBehind: isLast,
        columns: free,
        compare: (operator, { keys, id }) => compareFree(operator, { keys: keys.map(within), id }),
      },
    ];
  }
  const columns = free.map(descendingKey);
  const lacksValue = join(
    free.map((column) => sql`${column} = ${emptyKey}`),
    ' or ',
  );
  const isFixed = fixed.map(({ column, key }) => sql`${descendingKey(column)} = ${descendingKey(key)}`);
  const conditions = [sql`(${lacksValue})`, ...isFixed];
  return [complete, { conditions, conditionsBehind: conditions, columns, compare: compareRow(columns) }];
}

/** The parts of a statement that reads rows in the order of an index. */
export interface IndexScan {
  order: IndexOrder;
  /** FROM and WHERE of the rows, aliased t, that fulfil these conditions as well. */
  rows: (...conditions: Sql[]) => Sql;
  /** The columns of the result, by name. */
  select: ReadonlyArray<{ name: Sql; value: Sql }>;
  /** Which rows of a branch are behind the position where the scan begins; undefined where it begins at the first. */
  behind: ((branch: IndexBranch) => Sql) | undefined;
  limit: Sql;
  offset: Sql;
}

/**
 * Rows in the order of an index, no more of them read than are wanted, or twice as many where two ranges are merged.
 */
export function indexScan({ order, rows, select, behind, limit, offset }: IndexScan): Sql {
  const direction = directionOf(order.descending);
  const branches = branchesOf(order);
  const read = (branch: IndexBranch, columns: readonly Sql[], bound: Sql): Sql => {
    const orderBy = inRow([...branch.columns, sql`t.id`].map((column) => sql`${column} ${direction}`));
    const conditions = behind ? [behind(branch), ...branch.conditionsBehind] : branch.conditions;
    return sql`select ${inRow(columns)} ${rows(...conditions)} order by ${orderBy} ${bound}`;
  };
  const selectedColumns = select.map(({ name, value }) => sql`${value} as ${name}`);
  if (branches.length === 1) return read(branches[0]!, selectedColumns, sql`limit ${limit} offset ${offset}`);
  const bound = sql`limit ${limit} + ${offset}`;
  const names = inRow(select.map(({ name }) => sql`p.${name}`));
  if (order.free.length === 1) {
    // Postgres reads the parts of an append one behind the other, and the second only where the first has too few rows.
    const parts = branches.map((branch) => sql`(${read(branch, selectedColumns, bound)})`);
    return sql`select ${names} from (${join(parts, ' union all ')}) p limit ${limit} offset ${offset}`;
  }
  const keyNames = order.free.map((_, index) => named('k', BigInt(index)));
  const parts = branches.map((branch) => {
    const keys = branch.columns.map((column, index) => sql`${column} as ${keyNames[index]!}`);
    return sql`(${read(branch, [...selectedColumns, ...keys, sql`t.id as place_id`], bound)})`;
  });
  const orderBy = inRow([...keyNames, sql`place_id`].map((name) => sql`p.${name} ${direction}`));
  return sql`select ${names} from (${join(parts, ' union all ')}) p order by ${orderBy} limit ${limit} offset ${offset}`;
}
