import { join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Path } from '../../query/language/condition';
import { valueIn } from '../../query/sql/row-fields';
import type { Delta, SlotKind } from '../aggregates/aggregate';
import { cteOf, type LivePlan } from './live-plan';

type ValuesDelta = Extract<Delta, { by: 'values' }>;

/** The values of one field that each group keeps beside its sums, see `SlotKind`. */
export interface Slot {
  number: number;
  kind: SlotKind;
  path: Path;
  /** Whether an aggregate takes its first value, its last. */
  isLeast: boolean;
  isMost: boolean;
}

/** Finds the slot of a field, or adds it; several aggregates may share one. */
export function slotFor(slots: Slot[], path: Path, { kind, take }: ValuesDelta): Slot {
  let slot = slots.find((each) => each.kind === kind && each.path.join('.') === path.join('.'));
  if (!slot) slots.push((slot = { number: slots.length, kind, path, isLeast: false, isMost: false }));
  if (take === 'least') slot.isLeast = true;
  if (take === 'most') slot.isMost = true;
  return slot;
}

type SlotName = 'entry_' | 'merged_' | 'kept_' | 'least_' | 'most_';
export const slotCte = (name: SlotName, { number }: LivePlan, slot: Slot): Sql =>
  named(name, number, '_', BigInt(slot.number));

const slotColumn = ({ number }: Slot): Sql => named('y', BigInt(number));

/** The column of `changed` with the argument of a slot: as it is written for a place, else its value. */
export function slotValue(slot: Slot, value: Sql): Sql {
  if (slot.kind !== 'place') return sql`${value} as ${slotColumn(slot)}`;
  return sql`${textIn(slot.path)} as ${slotColumn(slot)}`;
}

/** The JSON text at a path of a changed document `c` as it was written; null where it is missing. */
export const textIn = (path: Path): Sql => sql`(${valueIn(sql`c.body::json`, path)})::text`;

/** Creates the table of the entries of a view. */
export const createEntries = ({ entries }: LivePlan): Sql =>
  sql`create table ${entries} (slot int2 not null, key text collate "C" not null, part text collate "C" not null,
        sort bytea not null, value text not null, n int8 not null check (n > 0), primary key (slot, key, part))`;

export const indexEntries = ({ entries }: LivePlan): Sql => sql`create index on ${entries} (slot, key, sort)`;

/** The columns of entries. */
export const entryColumns = [
  ...['key', 'part', 'value'].map((name) => ({ name: trusted(name), type: sql`text` })),
  { name: sql`sort`, type: sql`bytea` },
  { name: sql`n`, type: sql`int8` },
];

/**
 * The differences that the rows of `changed` make to a slot, for each value: the key of its group, what tells it from
 * other values, what it sorts by, its text, and how many more or fewer rows have it. `id` makes the key of the group
 * columns of a row `q`.
 */
export function entryDeltas(plan: LivePlan, slot: Slot, id: Sql, groups: readonly Sql[]): Sql {
  const changed = cteOf('changed_', plan);
  const column = slotColumn(slot);
  if (slot.kind === 'place') {
    const place = sql`int8send(q.ordinal) || int4send(q.place)`;
    return sql`select ${id} as key, encode(${place}, 'hex') as part, ${place} as sort, coalesce(q.${column}, 'null') as value,
      q.w::int8 as n from ${changed} q`;
  }
  const isDate = plan.dates.has(slot.path.join('.'));
  const sort = sql`${trusted(isDate ? 'date_sort_key' : 'sort_key')}(q.value)`;
  const isInstant = sql`get_byte(${sort}, 0) = 16`;
  const part =
    slot.kind === 'value'
      ? sql`group_part(q.value)`
      : sql`case when ${isInstant} then encode(${sort}, 'hex') else group_part(q.value) end`;
  const columns = [...groups, sql`${column} as value`, sql`sum(w)::int8 as n`];
  const rows = sql`select ${id} as key, ${part} as part, ${sort} as sort, canonical_json(q.value) as value, q.n
    from (select ${join(columns, ', ')} from ${changed} where jsonb_typeof(${column}) <> 'null'
          group by ${join([...groups, column], ', ')} having sum(w) <> 0) q`;
  if (slot.kind === 'value') return rows;
  // Several texts are one instant.
  return sql`select p.key, p.part, min(p.sort) as sort, min(p.value) as value, sum(p.n)::int8 as n from (${rows}) p
    group by p.key, p.part having sum(p.n) <> 0`;
}

/** The order of entries. Keys that are cut, and those of arrays and objects, are followed by the values. */
function orderBy(row: Sql, { kind }: Slot, direction: Sql): Sql {
  const value = kind === 'place' ? sql`` : sql`, (${row}.value)::jsonb ${direction}`;
  return sql`${row}.sort ${direction}${value}`;
}

const directions = { least_: trusted('asc'), most_: trusted('desc') };

/** CTEs that apply the entries of a slot to the table, and say what came and went in each group. */
export function entryCtes(plan: LivePlan, slot: Slot): Sql[] {
  const [entry, merged] = [slotCte('entry_', plan, slot), slotCte('merged_', plan, slot)];
  const number = trusted(`${slot.number}::int2`);
  return [
    sql`${merged} as (merge into ${plan.entries} m using ${entry} e on m.slot = ${number} and m.key = e.key and m.part = e.part
          when matched and m.n + e.n = 0 then delete
          when matched then update set n = m.n + e.n
          when not matched then insert (slot, key, part, sort, value, n) values (${number}, e.key, e.part, e.sort, e.value, e.n)
          returning merge_action() as act, e.key, e.part, e.sort, e.value)`,
    sql`${slotCte('kept_', plan, slot)} as materialized (
          select key, (count(*) filter (where act = 'INSERT') - count(*) filter (where act = 'DELETE'))::int8 as delta,
            coalesce(array_agg(part) filter (where act = 'DELETE'), '{}') as gone from ${merged} group by key)`,
    ...extremeCtes(plan, slot, sql`(select * from ${merged} where act = 'INSERT')`),
  ];
}

/** The first or last entry of each group among some. */
function extremeCtes(plan: LivePlan, slot: Slot, from: Sql): Sql[] {
  const names = [...(slot.isLeast ? (['least_'] as const) : []), ...(slot.isMost ? (['most_'] as const) : [])];
  return names.map(
    (name) => sql`${slotCte(name, plan, slot)} as materialized (
      select distinct on (i.key) i.key, i.sort, i.value from ${from} i order by i.key, ${orderBy(sql`i`, slot, directions[name])})`,
  );
}

/** Joins what changed in the slots of a group `d`. */
export function slotJoins(plan: LivePlan, slots: readonly Slot[]): Sql {
  const joined = (name: 'kept_' | 'least_' | 'most_', slot: Slot): Sql => {
    const cte = slotCte(name, plan, slot);
    return sql` left join ${cte} on ${cte}.key = d.id`;
  };
  const joins = slots.flatMap((slot) => [
    joined('kept_', slot),
    ...(slot.isLeast ? [joined('least_', slot)] : []),
    ...(slot.isMost ? [joined('most_', slot)] : []),
  ]);
  return join(joins, '');
}

/** How many values more a slot of the group `d` has. */
export const keptDelta = (plan: LivePlan, slot: Slot): Sql => sql`coalesce(${slotCte('kept_', plan, slot)}.delta, 0)`;

/** The text of the first or last value of the group `d` after the change; null where there is none. */
export function extremeText(plan: LivePlan, slot: Slot, name: 'least_' | 'most_'): Sql {
  const cte = slotCte(name, plan, slot);
  const direction = directions[name];
  return sql`(select u.value from (
      (select m.sort, m.value from ${plan.entries} m
       where m.slot = ${trusted(`${slot.number}::int2`)} and m.key = d.id
         and m.part <> all(coalesce(${slotCte('kept_', plan, slot)}.gone, '{}'))
       order by ${orderBy(sql`m`, slot, direction)} limit 1)
      union all select ${cte}.sort, ${cte}.value where ${cte}.key is not null) u
    order by ${orderBy(sql`u`, slot, direction)} limit 1)`;
}
