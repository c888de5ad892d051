import { boolArray, int4Array, int8Array, textArray, type BinaryWriter } from '@granary/shared/postgres/wire/binary';
import { copyInto } from '@granary/shared/postgres/copy';
import { rows, type Connection } from '@granary/shared/postgres/pool';
import type { Step } from '@granary/shared/postgres/pipeline';
import { empty, join, sql, type Sql } from '@granary/shared/postgres/sql';
import { documentsTable, historyTable, keyColumn, uniqueColumn, type CollectionRef } from '../catalog/collection';
import type { PreparedDocument } from '../documents/parser';
import { keyAt, keyText } from '../values/key';

/** New documents of one collection are copied, not upserted, from so many on: then the look for known ids pays. */
export const copyFromDocuments = 100;

/** A document with its place in the order of all writes: the ordinal of its commit and its place in that. */
export interface PlacedDocument {
  document: PreparedDocument;
  ordinal: number;
  place: number;
}

/** A version that a later one of the same batch replaces: it goes straight to history, `back` versions before the last. */
interface EarlierVersion extends PlacedDocument {
  back: number;
}

/** The last versions of each id in the order in which they were written, how many each id has, and those before them. */
interface Versions {
  latest: readonly PlacedDocument[];
  counts: readonly number[];
  earlier: readonly EarlierVersion[];
}

/** Only the last write of an id reaches the table. */
function splitVersions(placed: readonly PlacedDocument[]): Versions {
  const byId = new Map<string, PlacedDocument[]>();
  for (const one of placed) {
    const versions = byId.get(one.document.id) ?? [];
    versions.push(one);
    // Last versions go in the order in which they were written: a unique value may have been given up in between.
    byId.delete(one.document.id);
    byId.set(one.document.id, versions);
  }
  const latest: PlacedDocument[] = [];
  const counts: number[] = [];
  const earlier: EarlierVersion[] = [];
  for (const versions of byId.values()) {
    const last = versions.pop()!;
    latest.push(last);
    counts.push(versions.length + 1);
    versions.forEach((one, at) => earlier.push({ ...one, back: versions.length - at }));
  }
  return { latest, counts, earlier };
}

/**
 * What writes the documents of one collection, to be sent with COMMIT. The head of the app must be locked. What is
 * known already goes first: it may give up a unique value that a new document takes.
 */
export async function writeDocuments(
  tx: Connection,
  handle: CollectionRef,
  placed: readonly PlacedDocument[],
  at: Date,
): Promise<Step[]> {
  if (fitsUpsert(placed)) return [upsertDocuments(handle, placed, at)];
  const repeated = repeatedIds(placed);
  // Under the lock nobody else adds an id.
  const known = await knownIds(tx, handle, placed);
  const isNew = ({ document: { id } }: PlacedDocument) => !known.has(id) && !repeated.has(id);
  const added = known.size + repeated.size === 0 ? placed : placed.filter(isNew);
  if (added.length < copyFromDocuments) return [upsert(handle, placed, repeated, at)];
  const others = added.length === placed.length ? [] : placed.filter((one) => !isNew(one));
  const steps: Step[] = others.length === 0 ? [] : [upsert(handle, others, repeated, at)];
  return [...steps, await copyDocuments(handle, added, at), countCopied(handle, added, at)];
}

/** Whether documents of one collection are so few that one statement upserts them, without a look-up of known ids. */
export const fitsUpsert = ({ length }: { length: number }): boolean => length < copyFromDocuments;

/** The statement that writes a few documents of one collection, known or not. The head of the app must be locked. */
export const upsertDocuments = (handle: CollectionRef, placed: readonly PlacedDocument[], at: Date): Sql =>
  upsert(handle, placed, repeatedIds(placed), at);

function repeatedIds(placed: readonly PlacedDocument[]): Set<string> {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  for (const { document } of placed) {
    const { size } = seen;
    if (seen.add(document.id).size === size) repeated.add(document.id);
  }
  return repeated;
}

async function knownIds(
  tx: Connection,
  handle: CollectionRef,
  placed: readonly PlacedDocument[],
): Promise<Set<string>> {
  const ids = textArray(placed.map(({ document }) => document.id));
  const found = await rows<{ id: string }>(
    tx,
    sql`select id from ${documentsTable(handle)} where id = any(${ids}::text[])`,
  );
  return new Set(found.map(({ id }) => id));
}

/**
 * One statement for documents that may be known: new ones are inserted, known ones replaced, what was replaced goes to
 * history (from `returning old.*`, never by reading the table beside the write), and the catalog's counters follow.
 */
function upsert(
  handle: CollectionRef,
  placed: readonly PlacedDocument[],
  repeated: ReadonlySet<string>,
  at: Date,
): Sql {
  const { latest, counts, earlier } =
    repeated.size > 0 ? splitVersions(placed) : { latest: placed, counts: placed.map(() => 1), earlier: [] };
  const { documents, history, keys, names, values, updates } = layoutOf(handle);
  const arrays = join(
    [empty, ...keys.map(({ textOf }) => sql`${textArray(latest.map(({ document }) => textOf(document)))}::text[]`)],
    ', ',
  );
  return sql`
    with input as (
      select * from unnest(${textArray(latest.map(({ document }) => document.id))}::text[],
          ${textArray(latest.map(({ document }) => bodyOf(document)))}::text[], ${int8Array(counts)}::int8[],
          ${boolArray(latest.map(({ document }) => document.deleted))}::bool[],
          ${int8Array(latest.map(({ ordinal }) => ordinal))}::int8[], ${int4Array(latest.map(({ place }) => place))}::int4[]${arrays})
        as i(id, body, version, deleted, ordinal, place${names})
    ), written as (
      insert into ${documents} as t (id, body, version, deleted, created_at, updated_at, ordinal, place${names})
      select id, body, version, deleted, ${at}::timestamptz, ${at}::timestamptz, ordinal, place${values} from input
      on conflict (id) do update set
        body = excluded.body, version = t.version + excluded.version, deleted = excluded.deleted,
        updated_at = excluded.updated_at, ordinal = excluded.ordinal, place = excluded.place${updates}
      returning new.id, new.version, new.deleted, new.created_at, old.id as old_id, old.body as old_body, old.version as old_version,
        old.deleted as old_deleted, old.created_at as old_created_at, old.updated_at as old_updated_at,
        old.ordinal as old_ordinal, old.place as old_place
    ), replaced as (
      insert into ${history} (id, body, version, deleted, created_at, updated_at, ordinal, place)
      select old_id, old_body, old_version, old_deleted, old_created_at, old_updated_at, old_ordinal, old_place
      from written where old_id is not null
    )${earlier.length === 0 ? empty : earlierVersions(history, earlier, at)}
    update collection set
      row_count = row_count + s.added, deleted_count = deleted_count + s.deleted, size_bytes = size_bytes + ${sizeOf(placed)}::int8,
      version_count = version_count + s.replaced + ${earlier.length}::int8, last_write_at = ${at}
    from (select count(*) filter (where old_id is null) as added, count(*) filter (where old_id is not null) as replaced,
            count(*) filter (where deleted) - count(*) filter (where old_deleted) as deleted from written) s
    where number = ${handle.number}`;
}

function earlierVersions(history: Sql, earlier: readonly EarlierVersion[], at: Date): Sql {
  return sql`, earlier as (
      insert into ${history} (id, body, version, deleted, created_at, updated_at, ordinal, place)
      select e.id, e.body, w.version - e.back, e.deleted, w.created_at, ${at}, e.ordinal, e.place
      from unnest(${textArray(earlier.map(({ document }) => document.id))}::text[],
          ${textArray(earlier.map(({ document }) => bodyOf(document)))}::text[], ${int8Array(earlier.map(({ back }) => back))}::int8[],
          ${boolArray(earlier.map(({ document }) => document.deleted))}::bool[],
          ${int8Array(earlier.map(({ ordinal }) => ordinal))}::int8[], ${int4Array(earlier.map(({ place }) => place))}::int4[])
        as e(id, body, back, deleted, ordinal, place) join written w on w.id = e.id)`;
}

/** Inserts documents of which none is known; may go before the lock of the head is held. */
export function copyDocuments(handle: CollectionRef, added: readonly PlacedDocument[], at: Date): Promise<Step> {
  const { documents, keys, names } = layoutOf(handle);
  const columns = sql`id, body, version, deleted, created_at, updated_at, ordinal, place${names}`;
  const writeRow = (writer: BinaryWriter, { document, ordinal, place }: PlacedDocument) => {
    writer.textField(document.id);
    writer.bytesField(document.text, document.start, document.end);
    writer.int8Field(1);
    writer.boolField(document.deleted);
    writer.instantField(at);
    writer.instantField(at);
    writer.int8Field(ordinal);
    writer.int4Field(place);
    for (const { write } of keys) write(writer, document);
  };
  return copyInto(documents, { names: columns, count: 8 + keys.length }, added, writeRow);
}

/** The counters of the catalog for documents that were copied, under the lock of the head. */
export function countCopied(handle: CollectionRef, added: readonly PlacedDocument[], at: Date): Sql {
  const deleted = added.filter(({ document }) => document.deleted).length;
  return sql`update collection set row_count = row_count + ${added.length}::int8, deleted_count = deleted_count + ${deleted}::int8,
               size_bytes = size_bytes + ${sizeOf(added)}::int8, last_write_at = ${at}
             where number = ${handle.number}`;
}

const sizeOf = (placed: readonly PlacedDocument[]): number =>
  placed.reduce((sum, { document: { start, end } }) => sum + end - start, 0);

const bodyOf = ({ text, start, end }: PreparedDocument): Buffer => text.subarray(start, end);

interface KeyColumn {
  name: Sql;
  /** Whether the column is jsonb: that of a key, not of a unique value. */
  isJson: boolean;
  textOf: (document: PreparedDocument) => string | null;
  write: (writer: BinaryWriter, document: PreparedDocument) => void;
}

/** The columns of the indexes; a document carries its keys in the order of the handle's indexes. */
function keyColumns(handle: CollectionRef): KeyColumn[] {
  return handle.indexes.flatMap((index, at) => {
    const key: KeyColumn = {
      name: keyColumn(index),
      isJson: true,
      textOf: ({ keys, source }) => keyText(source, keyAt(keys, at)),
      write: (writer, { keys, source }) => {
        // Not by keyAt(), which would make an object for each field of a bulk.
        const key = keys[2 * at] ?? null;
        if (key === null) writer.nullField();
        else if (typeof key === 'string') writer.jsonbField(key);
        else writer.jsonbField(source, key, keys[2 * at + 1] as number);
      },
    };
    if (!index.unique) return [key];
    const valueOf = ({ uniques }: PreparedDocument) => uniques?.[at] ?? null;
    const unique: KeyColumn = {
      name: uniqueColumn(index),
      isJson: false,
      textOf: valueOf,
      write: (writer, document) => writer.textField(valueOf(document)),
    };
    return [key, unique];
  });
}

/** What the statements of a collection consist of, as long as its indexes are the same. */
interface Layout {
  documents: Sql;
  history: Sql;
  keys: readonly KeyColumn[];
  /** Of the key columns, each with a comma before it: names, values of the input, and assignments. */
  names: Sql;
  values: Sql;
  updates: Sql;
}

const layouts = new WeakMap<CollectionRef, Layout>();

function layoutOf(handle: CollectionRef): Layout {
  let layout = layouts.get(handle);
  if (!layout) {
    const keys = keyColumns(handle);
    const each = (part: (column: KeyColumn) => Sql) => join([empty, ...keys.map(part)], ', ');
    layout = {
      documents: documentsTable(handle),
      history: historyTable(handle),
      keys,
      names: each(({ name }) => name),
      values: each(({ name, isJson }) => (isJson ? sql`${name}::jsonb` : name)),
      updates: each(({ name }) => sql`${name} = excluded.${name}`),
    };
    layouts.set(handle, layout);
  }
  return layout;
}
