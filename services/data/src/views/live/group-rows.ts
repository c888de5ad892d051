import { join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { viewKeyColumn } from '../../catalog/table-names';
import { columnTexts, groupColumn, groupsOver, rowText } from '../aggregates/groups';
import { deltaOf } from '../aggregates/operators';
import type { Groups } from '../language/aggregates';
import {
  entryColumns,
  entryCtes,
  entryDeltas,
  extremeText,
  keptDelta,
  slotCte,
  slotFor,
  slotJoins,
  slotValue,
  textIn,
  type Slot,
} from './entries';
import { changedFields, cteOf, keyColumns, selectedText, type LivePlan } from './live-plan';
import { changedRow } from './row-changes';

/** A number that a group keeps and changes by differences, with its column. */
interface Accumulator {
  column: Sql;
  type: 'int8' | 'numeric';
  /** Its difference from the rows of `changed`; undefined where it follows from the slot alone. */
  difference: Sql | undefined;
  /** Its difference from what came and went in a slot. */
  kept?: Sql;
}

/** A grouped view as SQL. */
interface GroupedPlan {
  /** The JSON texts of the columns of a row `x`: of the groups, then of the aggregates. */
  texts: readonly Sql[];
  accumulators: readonly Accumulator[];
  /** The arguments of aggregates, as columns of `changed`. */
  values: readonly Sql[];
  slots: readonly Slot[];
  /** The columns of a row `x` with the first and last values of slots, each with a comma before it. */
  extremes: readonly Sql[];
}

function groupedPlan(plan: LivePlan, groups: Groups): GroupedPlan {
  const fields = changedFields(plan);
  const slots: Slot[] = [];
  const accumulators: Accumulator[] = [{ column: sql`n`, type: 'int8', difference: sql`coalesce(sum(e.w), 0)::int8` }];
  const [values, extremes]: [Sql[], Sql[]] = [[], []];
  const texts = groups.by.map((_, index) => sql`x.${named('t', BigInt(index))}`);
  groups.aggregates.forEach((aggregate, index) => {
    const { path } = aggregate;
    const columnOf = (letter: 'x' | 'c' | 's' | 'd' | 'b'): Sql => named(letter, BigInt(index));
    const isDate = path !== undefined && fields.isDate(path);
    const delta = deltaOf(aggregate, sql`e.${columnOf('x')}`, isDate);
    if (delta.by === 'sums') {
      if (path) values.push(sql`${fields.value(path)} as ${columnOf('x')}`);
      const sums = delta.sums.map(({ letter, ...sum }) => ({ ...sum, column: columnOf(letter) }));
      accumulators.push(...sums);
      texts.push(delta.text(sums.map(({ column }) => sql`x.${column}`)));
      return;
    }
    const slot = slotFor(slots, path!, delta);
    if (delta.take === 'number') {
      accumulators.push({ column: columnOf('d'), type: 'int8', difference: undefined, kept: keptDelta(plan, slot) });
      texts.push(sql`x.${columnOf('d')}::text`);
    } else {
      extremes.push(sql`, ${extremeText(plan, slot, `${delta.take}_`)} as ${columnOf('b')}`);
      texts.push(sql`coalesce(x.${columnOf('b')}, 'null')`);
    }
  });
  values.push(...slots.map((slot) => slotValue(slot, fields.value(slot.path))));
  return { texts, accumulators, values, slots, extremes };
}

/** Whether the groups of a view keep values beside their sums, so that it needs a table of entries. */
export const hasEntries = (plan: LivePlan, groups: Groups): boolean => groupedPlan(plan, groups).slots.length > 0;

/** The columns of the table of a grouped view beside those of every view; counts are never negative. */
export function accumulatorColumns(plan: LivePlan, groups: Groups): Sql {
  const least = groups.by.length === 0 ? sql`0` : sql`1`;
  const columns = groupedPlan(plan, groups).accumulators.map(({ column, type }, index) => {
    if (index === 0) return sql`, n int8 not null check (n >= ${least})`;
    return type === 'int8' ? sql`, ${column} int8 not null check (${column} >= 0)` : sql`, ${column} numeric not null`;
  });
  return join(columns, '');
}

const groupColumns = ({ by }: Groups): Sql[] => by.map((_, index) => groupColumn(index));

/** The id of a group, from its columns in a row `q`. */
function groupId(groups: Groups): Sql {
  const parts = groupColumns(groups).map((group) => sql`group_part(q.${group})`);
  return parts.length === 0 ? sql`''::text` : sql`group_id(${join(parts, ` || '.' || `)})`;
}

/** The rows of its source that count, with the values of their groups and the arguments of aggregates. */
function changedCte(plan: LivePlan, groups: Groups, { values }: GroupedPlan): Sql {
  const fields = changedFields(plan);
  const columns = groupColumns(groups);
  const groupValues = groups.by.map(
    (path, index) => sql`coalesce(${fields.value(path)}, 'null'::jsonb) as ${columns[index]!}`,
  );
  const selected = join([sql`c.w`, sql`c.ordinal`, sql`c.place`, ...groupValues, ...values], ', ');
  return sql`${cteOf('changed_', plan)} as materialized (select ${selected} from ${plan.source} c ${fields.where(plan.query.find)})`;
}

/**
 * The CTE of the deltas: for each group of the changed rows its id, the texts of its values, and the differences of its
 * sums.
 */
function deltaCte(plan: LivePlan, groups: Groups, { accumulators, slots }: GroupedPlan, isFirst: boolean): Sql {
  const columns = groupColumns(groups);
  const texts = columns.map((group, index) => sql`, canonical_json(q.${group}) as ${named('t', BigInt(index))}`);
  const summed = accumulators.flatMap(({ column, difference }) => (difference ? [{ column, difference }] : []));
  const deltas = summed.map(({ column, difference }) => sql`${difference} as ${column}`);
  const names = summed.map(({ column }) => sql`, q.${column}`);
  const groupBy = columns.length === 0 ? sql`` : sql`group by ${join(columns, ', ')}`;
  // Values may change where sums do not.
  const isAll = isFirst || slots.length > 0;
  const changes = summed.map(({ column }) => sql`q.${column} <> 0`);
  return sql`${cteOf('delta_', plan)} as materialized (
    select ${groupId(groups)} as id${join(texts, '')}${join(names, '')}
    from (select ${join([...columns, ...deltas], ', ')} from ${cteOf('changed_', plan)} e ${groupBy}) q
    ${isAll ? sql`` : sql`where ${join(changes, ' or ')}`})`;
}

const entryCte = (plan: LivePlan, groups: Groups, slot: Slot): Sql =>
  sql`${slotCte('entry_', plan, slot)} as materialized (${entryDeltas(plan, slot, groupId(groups), groupColumns(groups))})`;

/** The columns of the row of a group, made from the columns of a row `x` of `source`. */
interface GroupTexts {
  source: Sql;
  /** The JSON texts of its columns. */
  texts: readonly Sql[];
  /** Columns of `x` that are handed on, each with a comma before it. */
  handedOn: readonly Sql[];
}

/** The rows of groups as `id, body`, what is handed on, and keys. */
function groupTexts(plan: LivePlan, groups: Groups, { source, texts, handedOn }: GroupTexts): Sql {
  const text = selectedText(plan, rowText(groups, texts));
  const { values } = keyColumns(plan, sql`z.j`);
  const record = plan.columns.length === 0 ? sql`` : sql`cross join lateral (select y.body::jsonb as j offset 0) z`;
  return sql`select x.id, y.body${join(handedOn, '')}${values} from (${source}) x
    cross join lateral (select ${text} as body offset 0) y ${record}`;
}

/** The rows of a grouped view, computed from all that is in its source. */
export function groupRows(plan: LivePlan, groups: Groups): Sql {
  const fields = changedFields(plan);
  const rows = groupsOver(
    {
      argumentOf: (path) => ({
        value: fields.value(path),
        text: textIn(path),
        isDate: fields.isDate(path),
        ordinal: sql`c.ordinal`,
        place: sql`to_jsonb(c.place)`,
      }),
      from: () => sql`${plan.source} c ${fields.where(plan.query.find)}`,
    },
    groups,
  );
  const source = sql`select ${groupId(groups)} as id, q.* from (${rows}) q`;
  return groupTexts(plan, groups, { source, texts: columnTexts(groups), handedOn: [] });
}

/** The CTEs of what the rows of its source make of each group. `isFirst`: of the row of a view without groups too. */
export function groupDeltas(plan: LivePlan, groups: Groups, isFirst: boolean): Sql[] {
  const grouped = groupedPlan(plan, groups);
  const entries = grouped.slots.map((slot) => entryCte(plan, groups, slot));
  return [changedCte(plan, groups, grouped), deltaCte(plan, groups, grouped, isFirst), ...entries];
}

/** A CTE of deltas, with the columns that it needs to be made again. */
interface DeltaColumns {
  cte: Sql;
  columns: ReadonlyArray<{ name: Sql; type: Sql }>;
}

function deltaColumns(plan: LivePlan, groups: Groups): DeltaColumns[] {
  const { accumulators, slots } = groupedPlan(plan, groups);
  const texts = groups.by.map((_, index) => ({ name: named('t', BigInt(index)), type: sql`text` }));
  const sums = accumulators.flatMap(({ column, type, difference }) =>
    difference ? [{ name: column, type: trusted(type) }] : [],
  );
  return [
    { cte: cteOf('delta_', plan), columns: [{ name: sql`id`, type: sql`text` }, ...texts, ...sums] },
    ...slots.map((slot) => ({ cte: slotCte('entry_', plan, slot), columns: entryColumns })),
  ];
}

/** The deltas of groups as texts of arrays: for each of their CTEs one row, with a text for each column. */
export const deltaArrays = (plan: LivePlan, groups: Groups): Array<{ rows: Sql; columns: number }> =>
  deltaColumns(plan, groups).map(({ cte, columns }) => {
    const arrays = columns.map(({ name }) => sql`array_agg(o.${name})::text`);
    return { rows: sql`(select ${join(arrays, ', ')} from ${cte} o)`, columns: columns.length };
  });

/** The CTEs of the deltas, made again from the texts of `deltaArrays`, which are null where there are no rows. */
export function deltasOf(plan: LivePlan, groups: Groups, arrays: ReadonlyArray<string | null>): Sql[] {
  let index = 0;
  return deltaColumns(plan, groups).map(({ cte, columns }) => {
    const values = columns.map(({ type }) => sql`${arrays[index++] ?? null}::${type}[]`);
    const names = columns.map(({ name }) => name);
    return sql`${cte} as materialized (select * from unnest(${join(values, ', ')}) as o(${join(names, ', ')}))`;
  });
}

/** CTEs that change the rows of such a view by its deltas, of which a bounded change makes at most so many. */
export function groupCtes(plan: LivePlan, groups: Groups, isBounded: boolean): Sql[] {
  const grouped = groupedPlan(plan, groups);
  const { slots, accumulators, extremes } = grouped;
  const [delta, row] = [cteOf('delta_', plan), cteOf('row_', plan)];
  const [put, dropped] = [cteOf('put_', plan), cteOf('dropped_', plan)];
  const texts = groups.by.map((_, index) => sql`, d.${named('t', BigInt(index))}`);
  const sums = accumulators.map(
    ({ column, kept }) => sql`, coalesce(v.${column}, 0) + ${kept ?? sql`d.${column}`} as ${column}`,
  );
  // The place of each row in the table is kept, so that it is not looked up twice.
  const changed = sql`select d.id, v.ctid as at${join([...texts, ...sums, ...extremes], '')}
    from ${delta} d left join ${plan.table} v on v.id = d.id${slotJoins(plan, slots)}`;
  const handedOn = [sql`, x.at`, ...accumulators.map(({ column }) => sql`, x.${column}`)];
  const columns = [
    sql`body`,
    ...accumulators.map(({ column }) => column),
    ...plan.columns.map(({ key }) => viewKeyColumn(key)),
  ];
  const bound = isBounded ? sql`where assert_view_change((select count(*) from ${delta}))` : sql``;
  const isEmpty = groups.by.length === 0 ? sql`false` : sql`r.n = 0`;
  return [
    ...slots.flatMap((slot) => entryCtes(plan, slot)),
    sql`${row} as materialized (${groupTexts(plan, groups, { source: changed, texts: grouped.texts, handedOn })})`,
    // No other transaction changes these rows: a row that is new needs no look for a conflict.
    sql`${put} as (merge into ${plan.table} v using (select * from ${row} ${bound}) r on v.ctid = r.at
          when matched and ${isEmpty} then delete
          when matched then update set ${join(
            columns.map((column) => sql`${column} = r.${column}`),
            ', ',
          )}
          when not matched and not ${isEmpty} then insert (id, ${join(columns, ', ')})
            values (r.id, ${join(
              columns.map((column) => sql`r.${column}`),
              ', ',
            )})
          returning merge_action() = 'INSERT' as added, merge_action() = 'DELETE' as removed${changedRow(plan, sql`r.id`)})`,
    sql`${dropped} as (select from ${put} where removed)`,
  ];
}
