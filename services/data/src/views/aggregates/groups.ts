import { join, named, sql, type Sql } from '@granary/shared/postgres/sql';
import type { Path } from '../../query/language/condition';
import { columnPaths, type Groups } from '../language/aggregates';
import type { Argument } from './aggregate';
import { wholeOf } from './operators';

/** The rows of which groups are made. */
export interface GroupedRows {
  argumentOf: (path: Path) => Argument;
  /** The `from` and the `where` of the rows. Called after every use of `argumentOf`, whose fields may need a join. */
  from: () => Sql;
}

/** The column of a group in the result of `groupsOver`: its value as jsonb. */
export const groupColumn = (index: number): Sql => named('g', BigInt(index));

/** The column of an aggregate in the result of `groupsOver`: its JSON text, which is never null. */
export const aggregateColumn = (index: number): Sql => named('a', BigInt(index));

/**
 * A statement that computes all groups of some rows, with one row for each. Groups are formed by the value of JSON, so
 * that 1 and 1.0 are one, and a field that is missing is null. Without groups all rows are one group, even if there are
 * none.
 */
export function groupsOver({ argumentOf, from }: GroupedRows, { by, aggregates }: Groups): Sql {
  const values = by.map(
    (path, index) => sql`coalesce(${argumentOf(path).value}, 'null'::jsonb) as ${groupColumn(index)}`,
  );
  const texts = aggregates.map(
    (aggregate, index) => sql`${wholeOf(aggregate, argumentOf)} as ${aggregateColumn(index)}`,
  );
  const positions = by.map((_, index) => named('', BigInt(index + 1)));
  const groupBy = positions.length === 0 ? sql`` : sql`group by ${join(positions, ', ')}`;
  return sql`select ${join([...values, ...texts], ', ')} from ${from()} ${groupBy}`;
}

/**
 * The JSON texts of the columns of a row `x` of `groupsOver`: of its groups in one spelling, then of its aggregates.
 */
export const columnTexts = ({ by, aggregates }: Groups): Sql[] => [
  ...by.map((_, index) => sql`canonical_json(x.${groupColumn(index)})`),
  ...aggregates.map((_, index) => sql`x.${aggregateColumn(index)}`),
];

/** A member of a row: a column, or an object of them. */
interface ColumnNode {
  column: number | undefined;
  members: Map<string, ColumnNode>;
}

/** The text of a row from those of its columns; dotted paths give nested objects. Names of members are parameters. */
export function rowText(groups: Groups, texts: readonly Sql[]): Sql {
  const root: ColumnNode = { column: undefined, members: new Map() };
  columnPaths(groups).forEach((path, column) => {
    let node = root;
    for (const step of path) {
      let next = node.members.get(step);
      if (!next) node.members.set(step, (next = { column: undefined, members: new Map() }));
      node = next;
    }
    node.column = column;
  });
  return nodeText(root, texts);
}

function nodeText({ column, members }: ColumnNode, texts: readonly Sql[]): Sql {
  if (column !== undefined) return texts[column]!;
  const parts = [...members].map(([step, member], index) => {
    const name = `${index === 0 ? '{' : ','}${JSON.stringify(step)}:`;
    return sql`${name}::text || ${nodeText(member, texts)}`;
  });
  return parts.length === 0 ? sql`'{}'` : sql`${join(parts, ' || ')} || '}'`;
}
