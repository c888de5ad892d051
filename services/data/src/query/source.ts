import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import {
  documentsTable,
  historyTable,
  keyColumn,
  schemaType,
  viewTable,
  type CollectionHandle,
  type FieldType,
} from '../catalog';
import type { Path } from './find';

/** What can be read: a table of JSON texts under the alias t, and what is known of it. Made from catalog rows only. */
export interface Source {
  /** Its rows, aliased t: id text, body text. */
  table: Sql;
  /** Which rows count, as a condition on t; empty for all. */
  visible: Sql;
  /** Whether the column t.id is the field `id` of the record. */
  hasIdColumn: boolean;
  /** Orders records of one id, after t.id. */
  tieColumn: Sql | undefined;
  /** The key column of each field path that an index serves. */
  keys: ReadonlyMap<string, Sql>;
  /** Field paths whose RFC 3339 texts compare as instants. */
  dates: ReadonlySet<string>;
  /** How many rows count. */
  rowCount: bigint;
  /** Bytes of all its texts, at most; undefined where nobody knows. */
  sizeBytes: bigint | undefined;
}

export interface DocumentsOptions {
  includeHistory: boolean;
  includeDeleted: boolean;
}

export function documentsOf(handle: CollectionHandle, options: DocumentsOptions): Source {
  const { includeHistory, includeDeleted } = options;
  const dates = new Set<string>();
  for (const [path, rule] of handle.schema?.fields ?? []) if (rule.type === 'date') dates.add(path);
  for (const index of handle.indexes)
    if (index.type === 'date' && index.status !== 'failed') dates.add(index.fieldName);

  const keys = new Map<string, Sql>();
  for (const index of handle.indexes) {
    // The keys of a date are instants, so an index of another type over the same field is of no use, or the reverse.
    const fits = (index.type === 'date') === dates.has(index.fieldName);
    if (fits && index.status === 'ready' && index.fieldName !== 'id' && !includeHistory)
      keys.set(index.fieldName, named(index));
  }
  const table = includeHistory
    ? sql`(select id, body, version, deleted, height, place from ${documentsTable(handle)}
           union all
           select id, body, version, deleted, height, place from ${historyTable(handle)}) t`
    : sql`${documentsTable(handle)} t`;
  const latest = includeDeleted ? handle.rowCount : handle.rowCount - handle.deletedCount;
  return {
    table,
    visible: includeDeleted ? empty : sql`not t.deleted`,
    hasIdColumn: true,
    tieColumn: includeHistory ? sql`t.version` : undefined,
    keys,
    dates,
    // Which of the older versions were deletions is counted nowhere; nobody asks for history without deletions.
    rowCount: includeHistory ? handle.rowCount + handle.versionCount : latest,
    sizeBytes: handle.sizeBytes,
  };
}

const named = (index: { number: bigint }): Sql => sql`t.${keyColumn(index)}`;

/** The rows of a view; none before it was built for the first time. */
export function rowsOfView(view: { appNumber: bigint; tableNumber: bigint | null; rowCount: bigint }): Source {
  return {
    table:
      view.tableNumber === null
        ? sql`(select null::text as id, null::text as body where false) t`
        : sql`${viewTable(view.appNumber, view.tableNumber)} t`,
    visible: empty,
    hasIdColumn: false,
    tieColumn: undefined,
    keys: new Map(),
    dates: new Set(),
    rowCount: view.rowCount,
    sizeBytes: undefined,
  };
}

/** How text from a URL is read for a field: as its index says, else as the schema does, else `any`. */
export function typeOf(handle: CollectionHandle, path: Path): FieldType {
  const name = path.join('.');
  if (name === 'id') return 'string';
  const typed = handle.indexes.find((index) => index.fieldName === name && index.type !== 'any');
  return typed?.type ?? schemaType(handle.schema, name);
}
