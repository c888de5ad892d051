import { execute, type Connection } from '@granary/shared/postgres/pool';
import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import { documentsTable, historyTable, keyColumn, uniqueColumn, type CollectionHandle } from './catalog';
import type { PreparedDocument } from './prepare';

/** A document with its place in the order of all writes: the height of its commit and its place in that. */
export interface PlacedDocument {
  document: PreparedDocument;
  height: bigint;
  place: number;
}

/** A version that a later one of the same batch replaces: it goes straight to history, `back` versions before the last. */
interface EarlierVersion extends PlacedDocument {
  back: number;
}

/** A latest version; `versions` counts the versions of its id in the batch. */
interface LatestVersion extends PlacedDocument {
  versions: number;
}

/** Only the last write of an id reaches the table. */
function splitVersions(placed: readonly PlacedDocument[]): { latest: LatestVersion[]; earlier: EarlierVersion[] } {
  const byId = new Map<string, PlacedDocument[]>();
  for (const one of placed) {
    const versions = byId.get(one.document.id) ?? [];
    versions.push(one);
    // Last versions go in the order in which they were written: a unique value may have been given up in between.
    byId.delete(one.document.id);
    byId.set(one.document.id, versions);
  }
  const latest: LatestVersion[] = [];
  const earlier: EarlierVersion[] = [];
  for (const versions of byId.values()) {
    const last = versions.pop()!;
    latest.push({ ...last, versions: versions.length + 1 });
    versions.forEach((one, at) => earlier.push({ ...one, back: versions.length - at }));
  }
  return { latest, earlier };
}

/**
 * Writes the documents of one collection in one statement: new ones are inserted, known ones replaced, what was
 * replaced goes to history (from `returning old.*`, never by reading the table beside the write), and the catalog's
 * counters follow. The head of the app must be locked.
 */
export async function writeDocuments(
  tx: Connection,
  handle: CollectionHandle,
  placed: readonly PlacedDocument[],
  at: Date,
): Promise<void> {
  const { latest, earlier } = splitVersions(placed);
  const bytes = placed.reduce((sum, { document }) => sum + document.bytes, 0);
  const keys = keyColumns(handle, latest);
  const history = historyTable(handle);
  const documents = latest.map(({ document }) => document);
  const statement = sql`
    with input as (
      select * from unnest(${documents.map(({ id }) => id)}::text[], ${documents.map(({ body }) => body)}::text[],
          ${latest.map(({ versions }) => versions)}::int8[], ${documents.map(({ deleted }) => deleted)}::bool[],
          ${latest.map(({ height }) => height.toString())}::int8[], ${latest.map(({ place }) => place)}::int4[]${keys.arrays})
        as i(id, body, version, deleted, height, place${keys.names})
    ), written as (
      insert into ${documentsTable(handle)} as t (id, body, version, deleted, created_at, updated_at, height, place${keys.names})
      select id, body, version, deleted, ${at}::timestamptz, ${at}::timestamptz, height, place${keys.values} from input
      on conflict (id) do update set
        body = excluded.body, version = t.version + excluded.version, deleted = excluded.deleted,
        updated_at = excluded.updated_at, height = excluded.height, place = excluded.place${keys.updates}
      returning new.id, new.version, new.deleted, new.created_at, old.id as old_id, old.body as old_body, old.version as old_version,
        old.deleted as old_deleted, old.created_at as old_created_at, old.updated_at as old_updated_at,
        old.height as old_height, old.place as old_place
    ), replaced as (
      insert into ${history} (id, body, version, deleted, created_at, updated_at, height, place)
      select old_id, old_body, old_version, old_deleted, old_created_at, old_updated_at, old_height, old_place
      from written where old_id is not null
    )${earlier.length === 0 ? empty : earlierVersions(history, earlier, at)}
    update collection set
      row_count = row_count + s.added, deleted_count = deleted_count + s.deleted, size_bytes = size_bytes + ${bytes}::int8,
      version_count = version_count + s.replaced + ${earlier.length}::int8, last_write_at = ${at}
    from (select count(*) filter (where old_id is null) as added, count(*) filter (where old_id is not null) as replaced,
            count(*) filter (where deleted) - count(*) filter (where old_deleted) as deleted from written) s
    where number = ${handle.number}`;
  await execute(tx, statement);
}

function earlierVersions(history: Sql, earlier: readonly EarlierVersion[], at: Date): Sql {
  return sql`, earlier as (
      insert into ${history} (id, body, version, deleted, created_at, updated_at, height, place)
      select e.id, e.body, w.version - e.back, e.deleted, w.created_at, ${at}, e.height, e.place
      from unnest(${earlier.map(({ document }) => document.id)}::text[], ${earlier.map(({ document }) => document.body)}::text[],
          ${earlier.map(({ back }) => back)}::int8[], ${earlier.map(({ document }) => document.deleted)}::bool[],
          ${earlier.map(({ height }) => height.toString())}::int8[], ${earlier.map(({ place }) => place)}::int4[])
        as e(id, body, back, deleted, height, place) join written w on w.id = e.id)`;
}

interface KeyColumns {
  names: Sql;
  arrays: Sql;
  values: Sql;
  updates: Sql;
}

/** The columns of the indexes, as parts of the statement; a document carries its keys in the order of the handle's indexes. */
function keyColumns(handle: CollectionHandle, latest: readonly LatestVersion[]): KeyColumns {
  const columns = handle.indexes.flatMap((index, at) => {
    const key = {
      name: keyColumn(index),
      array: latest.map(({ document }) => document.keys[at] ?? null),
      value: sql`${keyColumn(index)}::jsonb`,
    };
    const unique = {
      name: uniqueColumn(index),
      array: latest.map(({ document }) => document.uniques[at] ?? null),
      value: uniqueColumn(index),
    };
    return index.unique ? [key, unique] : [key];
  });
  const each = (part: (column: (typeof columns)[number]) => Sql) => join([empty, ...columns.map(part)], ', ');
  return {
    names: each(({ name }) => name),
    arrays: each(({ array }) => sql`${array}::text[]`),
    values: each(({ value }) => value),
    updates: each(({ name }) => sql`${name} = excluded.${name}`),
  };
}
