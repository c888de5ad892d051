import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable, historyTable } from '../catalog/table-names';
import type { CollectionMatcher } from './collection-matcher';
import type { LogEntry } from './log';

/** A stored version of a document. */
export interface StoredVersion {
  id: string;
  version: bigint;
  deleted: boolean;
  /** Whether no other has replaced it. */
  isPresent: boolean;
  /** Null where the texts before it are as many bytes as a window may have. */
  text: Buffer | null;
  /** What Postgres says about it, see CollectionMatcher. */
  results: readonly boolean[];
}

interface VersionRow {
  id: string;
  version: bigint;
  deleted: boolean;
  is_present: boolean;
  ordinal: bigint;
  place: number;
  body: string | null;
  matching: string;
}

/** The versions of one collection that a window is about, and those before them where filters look at these. */
export class Versions {
  /** Bytes of all texts that were read. */
  readonly bytes: number;
  private readonly byPlace = new Map<string, StoredVersion>();
  private readonly byVersion = new Map<string, StoredVersion>();

  constructor(matcher: CollectionMatcher, versions: readonly VersionRow[]) {
    this.bytes = versions.reduce((sum, { body }) => sum + (body?.length ?? 0), 0);
    for (const { id, version, deleted, is_present: isPresent, ordinal, place, body, matching } of versions) {
      const text = body === null ? null : Buffer.from(body);
      const stored = { id, version, deleted, isPresent, text, results: matcher.columns.resultsOf(matching) };
      this.byPlace.set(`${ordinal}.${place}`, stored);
      this.byVersion.set(`${version} ${id}`, stored);
    }
  }

  /** The version that a commit stored; undefined where it is not there any more. */
  of({ ordinal, place, id }: LogEntry): StoredVersion | undefined {
    const stored = this.byPlace.get(`${ordinal}.${place}`);
    return stored?.id === id ? stored : undefined;
  }

  before({ version, id }: StoredVersion): StoredVersion | undefined {
    return this.byVersion.get(`${version - 1n} ${id}`);
  }
}

/**
 * Reads the versions that entries of one collection stored, which are in order, with the results of the conditions. The
 * texts of the first `bytesMax` bytes come with them, one version at least.
 */
export async function readVersions(
  db: Queryable,
  collection: CollectionRef,
  matcher: CollectionMatcher,
  entries: readonly LogEntry[],
  bytesMax: number,
): Promise<Versions> {
  const [first, last] = [entries[0]!, entries.at(-1)!];
  const counts = new Map<string, number>();
  for (const { id } of entries) counts.set(id!, (counts.get(id!) ?? 0) + 1);
  const before = matcher.hasFilters ? 1 : 0;
  const columns = sql`body, version, deleted, ordinal, place`;
  const upTo = sql`(ordinal, place) <= (${last.ordinal}, ${last.place})`;
  // A version before the window counts with the one that follows it, for it is read because of that.
  const versions = await rows<VersionRow>(
    db,
    sql`with versions as (
          select w.id, v.*, (v.ordinal, v.place) < (${first.ordinal}, ${first.place}) as is_before
          from unnest(${[...counts.keys()]}::text[], ${[...counts.values()]}::int4[]) as w(id, count)
          cross join lateral (
            select ${columns}, is_present from (
              select ${columns}, true as is_present from ${documentsTable(collection)} d where d.id = w.id and ${upTo}
              union all
              (select ${columns}, false as is_present from ${historyTable(collection)} h where h.id = w.id and ${upTo}
               order by version desc limit w.count + ${before})) u
            order by version desc limit w.count + ${before}) v
        ), placed as (
          select v.*, case when is_before then lead(ordinal) over later else ordinal end as at_ordinal,
            case when is_before then lead(place) over later else place end as at_place
          from versions v window later as (partition by id order by version)
        ), measured as (
          select p.*, sum(octet_length(body)) over (order by at_ordinal, at_place) as bytes,
            sum(octet_length(body)) over (partition by at_ordinal, at_place) as own_bytes
          from placed p where at_ordinal is not null
        )
        select t.id, t.version, t.deleted, t.is_present, t.ordinal, t.place, t.body, ${matcher.columns.column} as matching
        from ${matcher.columns.records(sql`(
          select id, version, deleted, is_present, ordinal, place, case when bytes - own_bytes < ${bytesMax} then body end as body
          from measured) t`)}`,
  );
  return new Versions(matcher, versions);
}
