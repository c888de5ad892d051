import { boolArray, int4Array, int8Array, textArray, type BinaryWriter } from '@granary/shared/postgres/wire/binary';
import { copyInto } from '@granary/shared/postgres/copy';
import { rows as queryRows, type Connection } from '@granary/shared/postgres/pool';
import type { Step } from '@granary/shared/postgres/pipeline';
import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { keyArrays } from '../documents/keys';
import type { PreparedDocument } from '../documents/parser';
import type { DerivedStatements } from './after-plan';
import type { DocumentRow } from './plan';
import { searchIndexes, uniqueIndexes } from '../catalog/index-definition';
import { documentsTable, historyTable, keyColumn, searchColumn, uniqueColumn } from '../catalog/table-names';

/**
 * From this number of new documents of one collection on, they are copied instead of upserted: then the look-up of
 * known ids pays.
 */
export const copyFromDocuments = 100;

/**
 * A version that a later one of the same batch replaces: it is written to history only, `back` versions before the
 * last.
 */
interface EarlierVersion extends DocumentRow {
  back: number;
}

/**
 * The last version of each id in the order of their writes, how many versions each id has, and those before the last.
 */
interface Versions {
  latest: readonly DocumentRow[];
  counts: readonly number[];
  earlier: readonly EarlierVersion[];
}

/** Only the last version of an id is written to the table. */
function splitVersions(rows: readonly DocumentRow[]): Versions {
  const byId = new Map<string, DocumentRow[]>();
  for (const one of rows) {
    const versions = byId.get(one.document.id) ?? [];
    versions.push(one);
    // The ids keep the order of their last versions, because a unique value may have been released in between.
    byId.delete(one.document.id);
    byId.set(one.document.id, versions);
  }
  const latest: DocumentRow[] = [];
  const counts: number[] = [];
  const earlier: EarlierVersion[] = [];
  for (const versions of byId.values()) {
    const last = versions.pop()!;
    latest.push(last);
    counts.push(versions.length + 1);
    versions.forEach((one, index) => earlier.push({ ...one, back: versions.length - index }));
  }
  return { latest, counts, earlier };
}

export interface WriteOptions extends UpsertOptions {
  /** Whether there is a document with an id, where that has been read for all of them under the lock. */
  isKnown?: ((id: string) => boolean) | undefined;
}

export interface UpsertOptions {
  derived: DerivedStatements;
  /**
   * Whether to insert the documents without a look at those that exist. Where one of them does, the statement fails
   * with an error that `collectionOfDuplicate` recognizes, and the batch must be written again without this.
   */
  expectsNew: boolean;
  /** Whether the upsert returns the last version of each document that it wrote, as `writtenVersions` reads it. */
  returnsVersions: boolean;
}

/**
 * The statements that write the documents of one collection, to be sent with COMMIT: an upsert comes first, and is
 * missing where all documents are copied. The head of the app must be locked. Known documents come first: they may
 * release a unique value that a new one takes.
 */
export async function writeDocuments(
  tx: Connection,
  collection: CollectionRef,
  rows: readonly DocumentRow[],
  time: Date,
  { isKnown, ...options }: WriteOptions,
): Promise<Step[]> {
  if (fitsUpsert(rows)) return [upsertDocuments(collection, rows, time, options)];
  // Their ids are looked up, so that nothing needs to be expected of them.
  const lookedUp = { ...options, expectsNew: false };
  const repeated = repeatedIds(rows);
  // Under the lock no other transaction adds an id.
  const existingIds = isKnown ? idsOf(rows, isKnown) : await knownIds(tx, collection, rows);
  const isNew = ({ document: { id } }: DocumentRow) => !existingIds.has(id) && !repeated.has(id);
  const added = existingIds.size + repeated.size === 0 ? rows : rows.filter(isNew);
  if (added.length < copyFromDocuments) return [upsert(collection, rows, repeated, time, lookedUp)];
  const others = added.length === rows.length ? [] : rows.filter((one) => !isNew(one));
  const steps: Step[] = others.length === 0 ? [] : [upsert(collection, others, repeated, time, lookedUp)];
  return [
    ...steps,
    await copyDocuments(collection, added, time),
    countNew(collection, added, time),
    ...options.derived.afterCopy(added),
  ];
}

/** Whether documents of one collection are so few that one statement upserts them, without a look-up of known ids. */
export const fitsUpsert = ({ length }: { length: number }): boolean => length < copyFromDocuments;

/** The statement that writes a few documents of one collection, known or not. The head of the app must be locked. */
export const upsertDocuments = (
  collection: CollectionRef,
  rows: readonly DocumentRow[],
  time: Date,
  options: UpsertOptions,
): Sql => upsert(collection, rows, repeatedIds(rows), time, options);

function repeatedIds(rows: readonly DocumentRow[]): Set<string> {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const { document } of rows) {
    const { size } = seen;
    if (seen.add(document.id).size === size) repeated.add(document.id);
  }
  return repeated;
}

const idsOf = (rows: readonly DocumentRow[], isKnown: (id: string) => boolean): Set<string> =>
  new Set(rows.map(({ document: { id } }) => id).filter(isKnown));

async function knownIds(tx: Connection, collection: CollectionRef, rows: readonly DocumentRow[]): Promise<Set<string>> {
  const ids = textArray(rows.map(({ document }) => document.id));
  const existing = await queryRows<{ id: string }>(
    tx,
    sql`select id from ${documentsTable(collection)} where id = any(${ids}::text[])`,
  );
  return new Set(existing.map(({ id }) => id));
}

/**
 * One statement for documents that may be known: it inserts new ones, replaces known ones, moves replaced versions to
 * history (from `returning old.*`, never by reading the table in the same statement) and adjusts the catalog's
 * counters. It returns how many it replaced, or for each whether it did, and its version. Documents that are expected
 * to be new are only inserted and counted, and nothing is returned.
 */
function upsert(
  collection: CollectionRef,
  rows: readonly DocumentRow[],
  repeated: ReadonlySet<string>,
  time: Date,
  { derived, expectsNew, returnsVersions }: UpsertOptions,
): Sql {
  if (expectsNew && repeated.size === 0) return insertNew(collection, rows, time, derived);
  const { latest, counts, earlier } =
    repeated.size > 0 ? splitVersions(rows) : { latest: rows, counts: undefined, earlier: [] };
  const { history, updates } = layoutOf(collection);
  const counting = sql`
    update collection set
      row_count = row_count + s.added, deleted_count = deleted_count + s.deleted, size_bytes = size_bytes + ${sizeOf(rows)}::int8,
      version_count = version_count + s.replaced + ${earlier.length}::int8, last_write_at = ${time}
    from (select count(*) filter (where old_id is null) as added, count(*) filter (where old_id is not null) as replaced,
            count(*) filter (where deleted) - count(*) filter (where old_deleted) as deleted from written) s
    where number = ${collection.number}`;
  return sql`
    with written as (
      ${insertion(collection, latest, time, counts)}
      on conflict (id) do update set
        body = excluded.body, version = t.version + excluded.version, deleted = excluded.deleted,
        updated_at = excluded.updated_at, ordinal = excluded.ordinal, place = excluded.place${updates}
      returning ${versionAndReplaced}${derived.returning}
    ), replaced as (
      insert into ${history} (id, body, version, deleted, created_at, updated_at, ordinal, place)
      select old_id, old_body, old_version, old_deleted, old_created_at, old_updated_at, old_ordinal, old_place
      from written where old_id is not null
    )${earlier.length === 0 ? empty : earlierVersions(history, earlier, time)}${derived.ctes}
    ${
      returnsVersions
        ? sql`, counted as (${counting})
    select (old_id is not null)::int, id, version, old_id is null or old_deleted from written`
        : sql`${counting} returning s.replaced`
    }`;
}

/** A version that was written and the one that it replaced, whose columns are null for a new document. */
const versionAndReplaced = sql`new.id, new.version, new.deleted, new.created_at, old.id as old_id, old.body as old_body,
        old.version as old_version, old.deleted as old_deleted, old.created_at as old_created_at,
        old.updated_at as old_updated_at, old.ordinal as old_ordinal, old.place as old_place`;

/** Inserts documents, of which none may exist, and counts them. */
function insertNew(
  collection: CollectionRef,
  rows: readonly DocumentRow[],
  time: Date,
  derived: DerivedStatements,
): Sql {
  const returning = derived.isEmpty ? empty : sql` returning ${versionAndReplaced}${derived.returning}`;
  return sql`
    with written as (${insertion(collection, rows, time)}${returning})${derived.ctes}
    ${countNew(collection, rows, time)}`;
}

/** Inserts documents into the table `t`; `counts` says how many versions each stands for, which is one by default. */
function insertion(
  collection: CollectionRef,
  rows: readonly DocumentRow[],
  time: Date,
  counts?: readonly number[],
): Sql {
  const { documents, fields, uniques, searches, names } = layoutOf(collection);
  const keys = keyArrays(
    fields,
    rows.map(({ document }) => document),
  );
  const arrays = join(
    [
      empty,
      ...(counts ? [sql`${int8Array(counts)}::int8[]`] : []),
      ...keys.map((array) => sql`${array}::bytea[]`),
      ...Array.from({ length: uniques }, (_, index) => sql`${textArray(rows.map(uniqueValue(index)))}::text[]`),
      ...Array.from({ length: searches }, (_, index) => sql`${textArray(rows.map(searchValue(index)))}::text[]`),
    ],
    ', ',
  );
  const version = counts ? sql`version` : sql`1`;
  return sql`
    insert into ${documents} as t (id, body, version, deleted, created_at, updated_at, ordinal, place${names})
    select id, body, ${version}, deleted, ${time}::timestamptz, ${time}::timestamptz, ordinal, place${names}
    from unnest(${textArray(rows.map(({ document }) => document.id))}::text[],
        ${textArray(rows.map(({ document }) => bodyOf(document)))}::text[],
        ${boolArray(rows.map(({ document }) => document.deleted))}::bool[],
        ${int8Array(rows.map(({ ordinal }) => ordinal))}::int8[], ${int4Array(rows.map(({ place }) => place))}::int4[]${arrays})
      as i(id, body, deleted, ordinal, place${counts ? sql`, version` : empty}${names})`;
}

function earlierVersions(history: Sql, earlier: readonly EarlierVersion[], time: Date): Sql {
  return sql`, earlier as (
      insert into ${history} (id, body, version, deleted, created_at, updated_at, ordinal, place)
      select e.id, e.body, w.version - e.back, e.deleted, w.created_at, ${time}, e.ordinal, e.place
      from unnest(${textArray(earlier.map(({ document }) => document.id))}::text[],
          ${textArray(earlier.map(({ document }) => bodyOf(document)))}::text[], ${int8Array(earlier.map(({ back }) => back))}::int8[],
          ${boolArray(earlier.map(({ document }) => document.deleted))}::bool[],
          ${int8Array(earlier.map(({ ordinal }) => ordinal))}::int8[], ${int4Array(earlier.map(({ place }) => place))}::int4[])
        as e(id, body, back, deleted, ordinal, place) join written w on w.id = e.id)`;
}

/** Inserts documents of which none is known; needs no lock of the head. */
export function copyDocuments(collection: CollectionRef, added: readonly DocumentRow[], time: Date): Promise<Step> {
  const { documents, fields, uniques, searches, names } = layoutOf(collection);
  const columns = sql`id, body, version, deleted, created_at, updated_at, ordinal, place${names}`;
  const writeRow = (writer: BinaryWriter, { document, ordinal, place }: DocumentRow) => {
    writer.textField(document.id);
    writer.bytesField(document.text, document.start, document.end);
    writer.int8Field(1);
    writer.boolField(document.deleted);
    writer.instantField(time);
    writer.instantField(time);
    writer.int8Field(ordinal);
    writer.int4Field(place);
    // The buffer of the keys holds them as fields of this format already.
    writer.raw(document.keys.bytes, document.keysStart, document.keysEnd);
    for (let unique = 0; unique < uniques; unique += 1) writer.textField(document.uniques?.[unique] ?? null);
    for (let search = 0; search < searches; search += 1) writer.textField(document.searches?.[search] ?? null);
  };
  return copyInto(documents, { names: columns, count: 8 + fields + uniques + searches }, added, writeRow);
}

/** The counters of the catalog for documents that were new, under the lock of the head. */
export function countNew(collection: CollectionRef, added: readonly DocumentRow[], time: Date): Sql {
  const deleted = added.filter(({ document }) => document.deleted).length;
  return sql`update collection set row_count = row_count + ${added.length}::int8, deleted_count = deleted_count + ${deleted}::int8,
               size_bytes = size_bytes + ${sizeOf(added)}::int8, last_write_at = ${time}
             where number = ${collection.number}`;
}

const sizeOf = (rows: readonly DocumentRow[]): number =>
  rows.reduce((sum, { document: { start, end } }) => sum + end - start, 0);

const bodyOf = ({ text, start, end }: PreparedDocument): Buffer => text.subarray(start, end);

const uniqueValue =
  (at: number) =>
  ({ document }: DocumentRow): string | null =>
    document.uniques?.[at] ?? null;

const searchValue =
  (at: number) =>
  ({ document }: DocumentRow): string | null =>
    document.searches?.[at] ?? null;

/** The parts of a collection's statements, compiled once for each state of the catalog. */
interface Layout {
  documents: Sql;
  history: Sql;
  /** How many columns have keys of fields, in their order; after them values of unique indexes, then full texts. */
  fields: number;
  uniques: number;
  searches: number;
  /** These columns, each with a comma before it: their names, and assignments. */
  names: Sql;
  updates: Sql;
}

const layouts = new WeakMap<CollectionRef, Layout>();

function layoutOf(collection: CollectionRef): Layout {
  let layout = layouts.get(collection);
  if (!layout) {
    const uniques = uniqueIndexes(collection.indexes).map(uniqueColumn);
    const searches = searchIndexes(collection.indexes).map(searchColumn);
    const columns = [...collection.fields.map(keyColumn), ...uniques];
    const updates = [
      ...columns.map((column) => sql`${column} = excluded.${column}`),
      // The value that is there already, in its place outside the row, is what lets Postgres leave the indexes alone
      // (HOT).
      ...searches.map(
        (column) =>
          sql`${column} = case when t.${column} is distinct from excluded.${column} then excluded.${column} else t.${column} end`,
      ),
    ];
    layout = {
      documents: documentsTable(collection),
      history: historyTable(collection),
      fields: collection.fields.length,
      uniques: uniques.length,
      searches: searches.length,
      names: join([empty, ...columns, ...searches], ', '),
      updates: join([empty, ...updates], ', '),
    };
    layouts.set(collection, layout);
  }
  return layout;
}
