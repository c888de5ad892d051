import { row, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable, historyTable } from '../catalog/table-names';
import type { Condition } from '../query/language/condition';
import type { Relation } from '../query/plan/relation';
import { Compiler } from '../query/sql/filter-sql';

/** A moment of an app: behind the commit of that height, whose documents have that ordinal. */
export interface Moment {
  height: bigint;
  ordinal: bigint;
}

/** A version of a document, in the order of ids and then of versions. */
export interface VersionPosition {
  id: string;
  version: bigint;
}

/** A version behind all versions of a document. */
export const behindAllVersions = 2n ** 63n - 1n;

export interface ScanOptions {
  filter: Condition;
  /** Undefined: from the beginning on. */
  after: VersionPosition | undefined;
  /** All versions up to the moment, not only the last one of each document. */
  hasHistory: boolean;
  /** Without history: soft-deleted documents too. */
  hasDeleted: boolean;
  /** Rows that are scanned, and bytes of their texts; one row at least. */
  max: { rows: number; bytes: number };
}

/** The versions of a page. */
export interface VersionsPage {
  /** The texts, with `textSeparator` between them; null where no version is for the export. */
  texts: string | null;
  /** The JSON text of `[id, version, ordinal, at, deleted]` of each text; null without history. */
  heads: string | null;
  /** The last one that was scanned; undefined where nothing is behind the page. */
  last: VersionPosition | undefined;
}

/** A control character, which JSON has in no place. */
export const textSeparator = '\x1e';

interface PageRow {
  texts: string | null;
  heads: string | null;
  has_more: boolean | null;
  last_id: string | null;
  last_version: bigint | null;
}

/**
 * Scans documents as they were at a moment, in the order of their ids, in one statement. It counts the bytes of the
 * texts before it reads them.
 */
export async function readVersionsAt(
  db: Queryable,
  collection: CollectionRef,
  relation: Relation,
  moment: Moment,
  options: ScanOptions,
): Promise<VersionsPage> {
  const { filter, hasHistory, max } = options;
  const compiler = new Compiler(relation);
  const condition = compiler.condition(filter);
  const order = hasHistory ? sql`id, version` : sql`id`;
  const columns = hasHistory ? versionColumns : sql`id, body`;
  const versions = hasHistory ? allVersions(collection, moment, options) : lastVersions(collection, moment, options);
  const page = await row<PageRow>(
    db,
    sql`select string_agg(body, ${textSeparator} order by ${order}) filter (where is_shown) as texts,
          count(*) = ${max.rows} or sum(octet_length(body)) >= ${max.bytes} as has_more,
          ${hasHistory ? headColumns : idColumn}
        from (
          select ${columns}, coalesce(body is not null and ${condition}, false) as is_shown
          from ${compiler.records(sql`(
            select * from (
              select v.*, sum(octet_length(body)) over (
                order by ${order} rows between unbounded preceding and 1 preceding) as bytes_before
              from (${versions}) v
            ) m where bytes_before is null or bytes_before < ${max.bytes}) t`)}
        ) p`,
  );
  const { texts, heads, has_more: hasMore, last_id: id, last_version: version } = page!;
  return { texts, heads, last: hasMore === true ? { id: id!, version: version ?? behindAllVersions } : undefined };
}

const versionColumns = sql`id, version, ordinal, updated_at, deleted, body`;

const idColumn = sql`null as heads, max(id) as last_id, null::int8 as last_version`;

const headColumns = sql`
  (json_agg(json_build_array(id, version, ordinal, updated_at, deleted) order by id, version) filter (where is_shown))::text as heads,
  max(id) as last_id, (array_agg(version order by id, version))[count(*)] as last_version`;

/** The next documents, each with the text that it had at the moment; null where the export has none of it. */
function lastVersions(collection: CollectionRef, { ordinal }: Moment, { after, hasDeleted, max }: ScanOptions): Sql {
  const behind = after ? sql`where d.id > ${after.id}` : empty;
  const textOf = (version: Sql): Sql =>
    hasDeleted ? sql`${version}.body` : sql`case when not ${version}.deleted then ${version}.body end`;
  // Most documents have not changed since, and then their history is not looked at.
  return sql`
    select d.id, case when d.ordinal <= ${ordinal} then ${textOf(sql`d`)} else (
      select ${textOf(sql`h`)} from ${historyTable(collection)} h
      where h.id = d.id and h.ordinal <= ${ordinal} order by h.version desc limit 1) end as body
    from ${documentsTable(collection)} d ${behind} order by d.id limit ${max.rows}`;
}

/** The next versions, older and present ones; with a null for the text where they are of a later moment. */
function allVersions(collection: CollectionRef, { ordinal }: Moment, { after, max }: ScanOptions): Sql {
  const behind = after ? sql`where (id, version) > (${after.id}, ${after.version})` : empty;
  // The table of the present versions has an index by id alone.
  const behindId = after ? sql`${behind} and id >= ${after.id}` : empty;
  return sql`
    select id, version, ordinal, updated_at, deleted, case when ordinal <= ${ordinal} then body end as body from (
      (select ${versionColumns} from ${documentsTable(collection)} ${behindId} order by id limit ${max.rows})
      union all
      (select ${versionColumns} from ${historyTable(collection)} ${behind} order by id, version limit ${max.rows})) u
    order by id, version limit ${max.rows}`;
}
