import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../../catalog/collection';
import type { Path } from '../language/filter';
import { documentsTable, historyTable, keyColumn, viewTable } from '../../catalog/table-names';
import { indexedType, schemaType, type IndexDefinition } from '../../catalog/index-definition';
import type { FieldType } from '../../values/field-type';

/** An index that reads may use: the key columns of its fields, in its order. */
export interface ServingIndex {
  fields: readonly string[];
  columns: readonly Sql[];
}

/** What can be read: a table of JSON texts under the alias t, and what is known of it. Made from catalog rows only. */
export interface Relation {
  /** Tells the rows of this source from those of any other. */
  identity: string;
  /** Its rows, aliased t: id text, body text. */
  table: Sql;
  /** Which rows count, as a condition on t; empty for all. */
  visible: Sql;
  /** Whether the column t.id is the field `id` of the record. */
  hasIdColumn: boolean;
  /** Orders records of one id, after t.id. */
  tieColumn: Sql | undefined;
  /** The key column of each field path that a ready index is over. */
  keys: ReadonlyMap<string, Sql>;
  /** The indexes that are ready, single and composite. */
  indexes: readonly ServingIndex[];
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

const sources = new WeakMap<CollectionRef, Map<number, Relation>>();

/** The documents of a collection. The same object for the same handle, so that what is made of it can be kept by it. */
export function documentsRelation(handle: CollectionRef, options: DocumentsOptions): Relation {
  let known = sources.get(handle);
  if (!known) sources.set(handle, (known = new Map<number, Relation>()));
  const which = (options.includeHistory ? 2 : 0) + (options.includeDeleted ? 1 : 0);
  let source = known.get(which);
  if (!source) known.set(which, (source = makeSource(handle, options)));
  return source;
}

function makeSource(handle: CollectionRef, { includeHistory, includeDeleted }: DocumentsOptions): Relation {
  const dates = new Set<string>();
  for (const [path, rule] of handle.schema?.fields ?? []) if (rule.type === 'date') dates.add(path);
  for (const index of handle.indexes) {
    if (index.status !== 'failed') for (const { isDate, name } of index.keys) if (isDate) dates.add(name);
  }
  // The keys of a date are instants, so an index with other keys of the same field is of no use, or the reverse.
  const serves = (index: IndexDefinition) =>
    !includeHistory && index.status === 'ready' && index.keys.every((key) => key.isDate === dates.has(key.name));
  const ready = handle.indexes.filter(serves);
  const indexes = ready.map(({ fields, keys }) => ({ fields, columns: keys.map((key) => sql`t.${keyColumn(key)}`) }));
  const keys = new Map<string, Sql>();
  for (const { fields, columns } of indexes) {
    // Ids are compared with their own column.
    fields.forEach((field, at) => field !== 'id' && keys.set(field, columns[at]!));
  }
  const table = includeHistory
    ? sql`(select id, body, version, deleted, ordinal, place from ${documentsTable(handle)}
           union all
           select id, body, version, deleted, ordinal, place from ${historyTable(handle)}) t`
    : sql`${documentsTable(handle)} t`;
  const latest = includeDeleted ? handle.rowCount : handle.rowCount - handle.deletedCount;
  return {
    identity: `c${handle.appNumber}.${handle.number}${includeHistory ? '.history' : ''}${includeDeleted ? '' : '.present'}`,
    table,
    visible: includeDeleted ? empty : sql`not t.deleted`,
    hasIdColumn: true,
    tieColumn: includeHistory ? sql`t.version` : undefined,
    keys,
    indexes,
    dates,
    // Which of the older versions were deletions is counted nowhere; nobody asks for history without deletions.
    rowCount: includeHistory ? handle.rowCount + handle.versionCount : latest,
    sizeBytes: handle.sizeBytes,
  };
}

/** The rows of a view; none before it was built for the first time. */
export function viewRelation(view: { appNumber: bigint; tableNumber: bigint | null; rowCount: bigint }): Relation {
  return {
    identity: `v${view.appNumber}.${view.tableNumber}`,
    table:
      view.tableNumber === null
        ? sql`(select null::text as id, null::text as body where false) t`
        : sql`${viewTable(view.appNumber, view.tableNumber)} t`,
    visible: empty,
    hasIdColumn: false,
    tieColumn: undefined,
    keys: new Map(),
    indexes: [],
    dates: new Set(),
    rowCount: view.rowCount,
    sizeBytes: undefined,
  };
}

/** How text from a URL is read for a field: as its index says, else as the schema does, else `any`. */
export function typeOf({ indexes, schema }: CollectionRef, path: Path): FieldType {
  const name = path.join('.');
  if (name === 'id') return 'string';
  for (const { fields, declaredType } of indexes) {
    const type = fields.includes(name) ? indexedType(declaredType, schema, name) : 'any';
    if (type !== 'any') return type;
  }
  return schemaType(schema, name);
}
