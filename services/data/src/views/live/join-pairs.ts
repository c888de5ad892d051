import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Path } from '../../query/language/condition';
import { valueIn } from '../../query/sql/row-fields';
import { latestVersion, presentChanges, versionAt, type DocumentTables } from './changes';
import { assertTouched, cteOf, type LiveJoin, type LivePlan } from './live-plan';

/** The two collections of a live view with a join. */
export interface JoinedSources {
  base: DocumentTables;
  partner: DocumentTables;
}

/** A change of the documents of one of them. */
export interface JoinedChange extends JoinedSources {
  of: 'base' | 'partner';
  /** The documents of the other one are those of this ordinal; without it the latest. */
  at?: bigint;
}

/** Pairs that are looked up: if there are more, more have come or more have gone than a change of a view may touch. */
const pairsMax = 20_000;

const sides = { base: trusted('0::int2'), partner: trusted('1::int2') };

/** Creates the table that has the key of each visible document of both collections, if it has one. */
export const createJoinKeys = ({ keys }: LiveJoin): Sql[] => [
  sql`create table ${keys} (side int2 not null, id text collate "C" not null, key text collate "C" not null, primary key (side, id))`,
  sql`create index on ${keys} (side, key, id)`,
];

/**
 * CTEs that put the pairs of a join in the place of `change`: with weight −1 those that a change has ended, with weight
 * 1 those that it has made. The keys of the documents follow in the same statement, which sees them as they were.
 *
 * A change of the base meets the partners that are there; one of the partners meets the documents of the base. Where
 * both change in one transaction their statements follow each other, so each pair is counted once. In a left join a
 * document without a partner is a pair too, with null: it comes when the last partner goes, and goes when the first one
 * comes.
 */
export function pairCtes(plan: LivePlan, live: LiveJoin, change: JoinedChange, isBounded: boolean): Sql[] {
  const met = cteOf('met_', plan);
  const bound = isBounded ? sql`limit ${trusted(String(pairsMax + 1))}` : empty;
  return [
    keyedCte(plan, live, change.of),
    ...(change.of === 'partner' && !live.isInner ? [turnedCte(plan, live)] : []),
    sql`${met} as materialized (${change.of === 'base' ? metPartners(plan, live) : metDocuments(plan, live)} ${bound})`,
    sql`${cteOf('pair_', plan)} as materialized (${pairsOf(plan, live, change)}
      ${isBounded ? sql`where ${assertTouched(met)}` : empty})`,
    ...keyChanges(plan, live, change.of),
  ];
}

/** CTEs of the pairs of all documents, where `change` has the documents of the base; no table of keys is needed. */
export function computedPairCtes(plan: LivePlan, live: LiveJoin, { partner }: JoinedSources): Sql[] {
  const [keyed, met] = [cteOf('keyed_', plan), cteOf('met_', plan)];
  const partners = sql`select o.id, o.body, o.j, ${keyOf(live, 'partner', sql`o.j`)} as key
    from (select p.id, p.body, p.body::jsonb as j from (${presentChanges(partner)}) p offset 0) o`;
  const columns = pairColumns(plan, live, {
    base: { id: sql`c.id`, body: sql`c.body`, record: sql`c.j` },
    partner: { id: sql`m.id`, body: sql`m.body`, record: sql`m.j` },
  });
  return [
    keyedCte(plan, live, 'base'),
    sql`${met} as materialized (${partners})`,
    sql`${cteOf('pair_', plan)} as materialized (
      select c.w, c.ordinal, c.place, ${columns} from ${keyed} c ${joinWord(live)} ${met} m on m.key = c.key)`,
  ];
}

const joinWord = ({ isInner }: LiveJoin): Sql => (isInner ? sql`join` : sql`left join`);

const keyedCte = (plan: LivePlan, live: LiveJoin, of: 'base' | 'partner'): Sql =>
  sql`${cteOf('keyed_', plan)} as materialized (select c.*, ${keyOf(live, of, sql`c.j`)} as key from change c)`;

/** Equal where two documents meet, null where one meets nothing: a value for each field of the join. */
function keyOf({ on }: LiveJoin, side: 'base' | 'partner', record: Sql): Sql {
  const parts = on.map(({ path, to, isDate }) => keyPart(record, side === 'base' ? to : path, isDate));
  return sql`group_id(${join(parts, ` || '.' || `)})`;
}

function keyPart(record: Sql, path: Path, isDate: boolean): Sql {
  const value = sql`nullif(${valueIn(record, path)}, 'null'::jsonb)`;
  if (!isDate) return sql`group_part(${value})`;
  // Texts of one instant meet; any other value of a date meets its equals.
  const sort = sql`date_sort_key(${value})`;
  return sql`case when get_byte(${sort}, 0) = 16 then 'i' || encode(${sort}, 'hex') else group_part(${value}) end`;
}

/** The ids of the documents of one side with a key, for each row of another relation. */
const withKey = ({ keys }: LiveJoin, side: 'base' | 'partner', key: Sql): Sql =>
  sql`lateral (select k.id from ${keys} k where k.side = ${sides[side]} and k.key = ${key} offset 0) o on true`;

const metPartners = (plan: LivePlan, live: LiveJoin): Sql => sql`
  select c.w, c.id, c.body, c.ordinal, c.place, c.j, o.id as other
  from ${cteOf('keyed_', plan)} c ${joinWord(live)} ${withKey(live, 'partner', sql`c.key`)}`;

function metDocuments(plan: LivePlan, live: LiveJoin): Sql {
  const pairs = sql`select c.w, c.id, c.body, c.j, o.id as other
    from ${cteOf('keyed_', plan)} c join ${withKey(live, 'base', sql`c.key`)}`;
  if (live.isInner) return pairs;
  return sql`${pairs} union all select t.w, null, null, null, o.id
    from ${cteOf('turned_', plan)} t join ${withKey(live, 'base', sql`t.key`)}`;
}

/** The keys that have got their first partner or lost their last one, with the weight of the pairs with null. */
function turnedCte(plan: LivePlan, { keys }: LiveJoin): Sql {
  // Counted no further than is needed to know whether any are left.
  const before = sql`(select count(*) from (select from ${keys} k where k.side = ${sides.partner} and k.key = d.key
    limit greatest(-d.delta, 0) + 1) z)`;
  return sql`${cteOf('turned_', plan)} as materialized (
    select q.key, case when q.before = 0 then -1 else 1 end as w from (
      select d.key, d.delta, ${before} as before from (
        select key, sum(w)::int8 as delta from ${cteOf('keyed_', plan)} where key is not null group by key having sum(w) <> 0) d) q
    where (q.before = 0) <> (q.before + q.delta = 0))`;
}

/** The pairs with the documents on their other side. */
function pairsOf(plan: LivePlan, live: LiveJoin, { of: side, base, partner, at: ordinal }: JoinedChange): Sql {
  const versionOf = (tables: DocumentTables): Sql =>
    ordinal === undefined ? latestVersion(tables, sql`m.other`) : versionAt(tables, sql`m.other`, ordinal);
  const [changed, other] = [
    { id: sql`m.id`, body: sql`m.body`, record: sql`m.j` },
    { id: sql`m.other`, body: sql`d.body`, record: sql`d.body::jsonb` },
  ];
  const met = cteOf('met_', plan);
  if (side === 'base') {
    const columns = pairColumns(plan, live, { base: changed, partner: other });
    return sql`select m.w, m.ordinal, m.place, ${columns} from ${met} m ${joinWord(live)} lateral (${versionOf(partner)}) d on true`;
  }
  const columns = pairColumns(plan, live, { base: other, partner: changed });
  return sql`select m.w, d.ordinal, d.place, ${columns} from ${met} m join lateral (${versionOf(base)}) d on true`;
}

interface Member {
  id: Sql;
  body: Sql;
  record: Sql;
}

/** The record of a pair, and where pairs are rows their ids and texts. */
function pairColumns(plan: LivePlan, live: LiveJoin, { base, partner }: Record<'base' | 'partner', Member>): Sql {
  const record = sql`${base.record} || jsonb_build_object(${live.alias}::text, coalesce(${partner.record}, 'null')) as j`;
  if (plan.query.groups) return record;
  return sql`${rowId(base.id, partner.id)} as id, ${rowText(live, base, partner.body)} as body, ${record}`;
}

/** Sorts by the id of the document, then by that of its partner, whatever characters they have. */
function rowId(base: Sql, partner: Sql): Sql {
  const escaped = (id: Sql): Sql => sql`replace(${id}, chr(1), chr(1) || chr(2))`;
  return sql`${escaped(base)} || chr(1) || chr(1) || coalesce(${escaped(partner)}, '')`;
}

/** The text of the document with that of its partner as the last member, in the place of a member of that name. */
function rowText({ alias }: LiveJoin, base: Member, partner: Sql): Sql {
  const without = JSON.stringify({ named: false, members: { [alias]: false }, elements: {} });
  const baseText = sql`case when ${base.record} ? ${alias}::text then selected_json(${base.body}::json, ${without}::jsonb) else ${base.body} end`;
  const key = `${JSON.stringify(alias)}:`;
  return sql`(select left(w.own, -1) || case when w.own = '{}' then '' else ',' end || ${key}::text || coalesce(${partner}, 'null') || '}'
    from (select ${baseText} as own offset 0) w)`;
}

/** CTEs that keep the keys of a side. */
function keyChanges(plan: LivePlan, { keys }: LiveJoin, side: 'base' | 'partner'): Sql[] {
  const keyed = cteOf('keyed_', plan);
  return [
    sql`${cteOf('entered_', plan)} as (
      insert into ${keys} as k (side, id, key) select ${sides[side]}, c.id, c.key from ${keyed} c where c.w = 1 and c.key is not null
      on conflict (side, id) do update set key = excluded.key where k.key <> excluded.key)`,
    sql`${cteOf('left_', plan)} as (
      delete from ${keys} k using ${keyed} c where k.side = ${sides[side]} and k.id = c.id and c.w = -1
        and not exists (select from ${keyed} n where n.id = c.id and n.w = 1 and n.key is not null))`,
  ];
}
