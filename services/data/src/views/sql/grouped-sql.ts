import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { Path } from '../../query/language/condition';
import { directionOf } from '../../query/sql/keyset-sql';
import type { Argument } from '../aggregates/aggregate';
import { aggregateColumn, columnTexts, groupColumn, groupsOver, rowText } from '../aggregates/groups';
import { sortParts } from '../aggregates/sort-parts';
import { columnPaths, isFieldValue, type Groups } from '../language/aggregates';
import type { ViewPlan } from '../plan/view-plan';
import { ViewFields } from './joined-fields';

/** The rows of a grouped view in its order, each as the text `body`. */
export function groupedRows(plan: ViewPlan, groups: Groups): Sql {
  const fields = new ViewFields(plan);
  const where = fields.where(plan.query.find);
  const rows = groupsOver(
    { argumentOf: (path) => argumentOf(fields, path), from: () => sql`${fields.records()} ${where}` },
    groups,
  );
  const order = orderOf(plan, groups);
  const orderBy = order.length === 0 ? sql`` : sql`order by ${join(order, ', ')}`;
  return sql`select ${rowText(groups, columnTexts(groups))} as body from (${rows}) x ${orderBy}`;
}

/** A field of the rows. Their place is that of the document of the base, then the ids of its partners. */
function argumentOf(fields: ViewFields, path: Path): Argument {
  const { row } = fields.source.alias;
  return {
    value: fields.value(path),
    text: fields.textValue(path),
    isDate: fields.isDate(path),
    ordinal: sql`${row}.ordinal`,
    place: sql`jsonb_build_array(${join([sql`${row}.place`, ...fields.partnerIds], ', ')})`,
  };
}

/** The sort of the view; then the groups, so that the same documents always give the same rows. */
function orderOf({ query: { sort }, rows: { dates } }: ViewPlan, groups: Groups): Sql[] {
  const names = columnPaths(groups).map((path) => path.join('.'));
  const isDate = (path: Path | undefined): boolean => dates.has(path?.join('.') ?? '');
  const byGroup = (index: number, descending: boolean): Sql =>
    orderBy(sql`nullif(x.${groupColumn(index)}, 'null'::jsonb)`, isDate(groups.by[index]), descending);
  const byColumn = (column: number, descending: boolean): Sql => {
    const index = column - groups.by.length;
    const aggregate = groups.aggregates[index];
    if (!aggregate) return byGroup(column, descending);
    const value = sql`nullif(x.${aggregateColumn(index)}::jsonb, 'null'::jsonb)`;
    return orderBy(value, isFieldValue(aggregate) && isDate(aggregate.path), descending);
  };
  const last = sort.at(-1)?.descending ?? false;
  return [
    ...sort.map(({ path, descending }) => byColumn(names.indexOf(path.join('.')), descending)),
    ...groups.by.map((_, index) => byGroup(index, last)),
  ];
}

/**
 * The order by one value: instants of a date, strings, numbers, booleans, arrays, objects, or the reverse; null last.
 */
function orderBy(value: Sql, isDate: boolean, descending: boolean): Sql {
  const direction = directionOf(descending);
  const { rank, key } = sortParts(value, isDate);
  const plain = sql`${value} is null, ${rank} ${direction}, ${key} ${direction}`;
  return isDate ? sql`${plain}, ${value} ${direction}` : plain;
}
