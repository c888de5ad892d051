import { empty, join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../../catalog/collection';
import { readCollectionState } from '../../catalog/collection-state';
import type { FieldTypes } from '../../catalog/schema';
import type { Path } from '../language/condition';
import { cipherOf, type DocumentCipher } from '../../encryption/document-cipher';
import { searchConfiguration } from '../../catalog/search-language';
import {
  documentsTable,
  historyTable,
  keyColumn,
  searchColumn,
  viewKeyColumn,
  viewTable,
} from '../../catalog/table-names';
import {
  indexedType,
  isSearchIndex,
  schemaType,
  searchIndexes,
  type IndexDefinition,
} from '../../catalog/index-definition';
import { isDateType, type FieldType } from '../../values/field-type';

/** An index that reads may use: the key columns of its fields, in its order. */
export interface ServingIndex {
  name: string;
  fields: readonly string[];
  columns: readonly Sql[];
}

/** A full-text index: its text search configuration, and the column with the words where the rows have it. */
export interface SearchIndex {
  configuration: Sql;
  column: Sql | undefined;
}

/**
 * The names that a statement has for a row of a relation: t, d and s, with a number after them in all but the first.
 */
export interface RowAlias {
  /** The row. */
  row: Sql;
  /** The parsed record, as `j`. */
  record: Sql;
  /** The values that the row is sorted by. */
  sort: Sql;
}

const makeAlias = (number: string): RowAlias => ({
  row: trusted(`t${number}`),
  record: trusted(`d${number}`),
  sort: trusted(`s${number}`),
});
/** The alias of the rows that a statement gives a page of. */
export const pageAlias = makeAlias('');
const aliases = new Map<number, RowAlias>([[0, pageAlias]]);

/** The alias of that number, 0 for the one of the page. */
export function rowAlias(number: number): RowAlias {
  let alias = aliases.get(number);
  if (!alias) aliases.set(number, (alias = makeAlias(BigInt(number).toString())));
  return alias;
}

/** The source of a read: a table of JSON texts with its known properties. It is made from catalog rows only. */
export interface Relation {
  /** Tells the rows of this source from those of any other. */
  identity: string;
  kind: 'documents' | 'history' | 'view';
  /** Tells the collection of the rows from others; undefined for the rows of a view. */
  collection: string | undefined;
  /** The alias of its rows in a statement; it is part of the SQL below. */
  alias: RowAlias;
  /** Its rows under that alias: id text, body text. */
  table: Sql;
  /** Which rows count, as a condition; empty for all. */
  visible: Sql;
  /** Whether the column id is the field `id` of the record. */
  hasIdColumn: boolean;
  /** Orders records of one id, after the id. */
  tieColumn: Sql | undefined;
  /** The key column of each field path that a ready index is over. */
  keys: ReadonlyMap<string, Sql>;
  /** The indexes that are ready, single and composite. */
  indexes: readonly ServingIndex[];
  /** The full-text index of each field path that has one. */
  searches: ReadonlyMap<string, SearchIndex>;
  /** Field paths whose RFC 3339 texts compare as instants. */
  dates: ReadonlySet<string>;
  /**
   * The types of fields that are known for certain, by path: scalars of a schema, and dates of an index. A date that
   * only an index knows may hold days as well.
   */
  declared: ReadonlyMap<string, FieldType>;
  /** The fields that the schema and the indexes name. */
  fieldNames: readonly string[];
  /** The cipher of the encrypted fields of its records; undefined where it has none. */
  cipher: DocumentCipher | undefined;
  /** A statement that reads the state of its rows; undefined where pages of it are not to say which state they show. */
  state: Sql | undefined;
  /** How many rows count. */
  rowCount: bigint;
  /** How many rows the table has, those included that do not count: what a scan passes. */
  tableRowCount: bigint;
  /** Bytes of all its texts, at most; undefined where nobody knows. */
  sizeBytes: bigint | undefined;
}

export interface DocumentsOptions {
  includeHistory: boolean;
  includeDeleted: boolean;
  /** Whether pages are to have the state of the documents that they show. */
  withState?: boolean;
}

/** The latest versions of documents that are not deleted. */
export const presentDocuments = { includeHistory: false, includeDeleted: false } as const;

/** Tells a collection from any other. */
export const collectionIdentity = ({ appNumber, number }: Pick<CollectionRef, 'appNumber' | 'number'>): string =>
  `c${appNumber}.${number}`;

/** Whether a path is that of the id, which has a column of its own. */
export const isIdPath = ({ hasIdColumn }: Relation, path: Path): boolean =>
  hasIdColumn && path.length === 1 && path[0] === 'id';

const sources = new WeakMap<CollectionRef, Map<number, Relation>>();

/**
 * The documents of a collection, under the alias of that number. The same object for the same ref, so that what is made
 * of it can be kept by it.
 */
export function documentsRelation(ref: CollectionRef, options: DocumentsOptions, aliasNumber = 0): Relation {
  let relationsByVariant = sources.get(ref);
  if (!relationsByVariant) sources.set(ref, (relationsByVariant = new Map<number, Relation>()));
  const which =
    aliasNumber * 8 + (options.withState ? 4 : 0) + (options.includeHistory ? 2 : 0) + (options.includeDeleted ? 1 : 0);
  let source = relationsByVariant.get(which);
  if (!source) relationsByVariant.set(which, (source = makeSource(ref, options, rowAlias(aliasNumber))));
  return source;
}

function makeSource(
  ref: CollectionRef,
  { includeHistory, includeDeleted, withState }: DocumentsOptions,
  alias: RowAlias,
): Relation {
  const { row } = alias;
  const dates = new Set<string>();
  for (const [path, rule] of ref.schema?.fields ?? []) if (rule.type === 'date') dates.add(path);
  for (const index of ref.indexes) {
    if (index.status !== 'failed') for (const { isDate, name } of index.keys) if (isDate) dates.add(name);
  }
  const declared = declaredTypes(ref.schema, dates);
  // The keys of a date are instants, so an index with other keys of the same field is of no use, or the reverse.
  const serves = (index: IndexDefinition) =>
    !includeHistory &&
    index.status === 'ready' &&
    !isSearchIndex(index) &&
    index.keys.every((key) => key.isDate === dates.has(key.name));
  const ready = ref.indexes.filter(serves);
  const indexes = ready.map(({ name, keys: keyed }) => ({
    name,
    fields: keyed.map((key) => key.name),
    columns: keyed.map((key) => sql`${row}.${keyColumn(key)}`),
  }));
  const keys = new Map<string, Sql>();
  for (const { fields, columns } of indexes) {
    // Ids are compared with their own column.
    fields.forEach((field, index) => field !== 'id' && keys.set(field, columns[index]!));
  }
  const searches = new Map<string, SearchIndex>();
  for (const index of searchIndexes(ref.indexes)) {
    const hasColumn = !includeHistory && index.status === 'ready';
    const column = hasColumn ? sql`${row}.${searchColumn(index)}` : undefined;
    searches.set(index.fieldName, { configuration: searchConfiguration(index.language!), column });
  }
  const table = includeHistory
    ? sql`(select id, body, version, deleted, ordinal, place from ${documentsTable(ref)}
           union all
           select id, body, version, deleted, ordinal, place from ${historyTable(ref)}) ${row}`
    : sql`${documentsTable(ref)} ${row}`;
  const collection = collectionIdentity(ref);
  const latest = includeDeleted ? ref.rowCount : ref.rowCount - ref.deletedCount;
  return {
    identity: `${collection}${includeHistory ? '.history' : ''}${includeDeleted ? '' : '.present'}`,
    kind: includeHistory ? 'history' : 'documents',
    collection,
    alias,
    table,
    visible: includeDeleted ? empty : sql`not ${row}.deleted`,
    hasIdColumn: true,
    tieColumn: includeHistory ? sql`${row}.version` : undefined,
    keys,
    indexes,
    searches,
    dates,
    declared,
    fieldNames: [
      ...new Set([...(ref.schema?.fields.keys() ?? []), ...ref.indexes.flatMap(({ fields: indexed }) => indexed)]),
    ],
    cipher: cipherOf(ref),
    state: withState ? readCollectionState(ref) : undefined,
    // Which of the older versions were deletions is counted nowhere; nobody asks for history without deletions.
    rowCount: includeHistory ? ref.rowCount + ref.versionCount : latest,
    tableRowCount: includeHistory ? ref.rowCount + ref.versionCount : ref.rowCount,
    sizeBytes: ref.sizeBytes,
  };
}

function declaredTypes(schema: FieldTypes | undefined, dates: Iterable<string>): ReadonlyMap<string, FieldType> {
  const declared = new Map<string, FieldType>();
  for (const name of dates) declared.set(name, 'day');
  for (const name of schema?.fields.keys() ?? []) declared.set(name, schemaType(schema, name));
  return declared;
}

/** A field of the rows of a view of which something is known: its type, and the column of its key where it has one. */
export interface ViewColumn {
  name: string;
  type: FieldType;
  /** The number of its key column. */
  key: number | undefined;
}

/** A view whose rows are read. */
export interface StoredView {
  appNumber: bigint;
  tableNumber: bigint | null;
  rowCount: bigint;
  columns: readonly ViewColumn[];
}

/** The rows of a view; none before it was built for the first time. */
export function viewRelation({ appNumber, tableNumber, rowCount, columns }: StoredView): Relation {
  const { row } = pageAlias;
  const indexes = columns.flatMap(({ name, key }) =>
    key === undefined ? [] : [{ name, fields: [name], columns: [sql`${row}.${viewKeyColumn(key)}`] }],
  );
  // Before its first build a view is empty, with the columns that filters and sorts use.
  const emptyKeys = join(
    columns.flatMap(({ key }) => (key === undefined ? [] : [sql`, null::bytea as ${viewKeyColumn(key)}`])),
    '',
  );
  const dates = new Set(columns.flatMap(({ name, type }) => (isDateType(type) ? [name] : [])));
  return {
    identity: `v${appNumber}.${tableNumber}`,
    kind: 'view',
    collection: undefined,
    alias: pageAlias,
    table:
      tableNumber === null
        ? sql`(select null::text as id, null::text as body${emptyKeys} where false) ${row}`
        : sql`${viewTable(appNumber, tableNumber)} ${row}`,
    visible: empty,
    hasIdColumn: false,
    tieColumn: undefined,
    keys: new Map(indexes.map(({ name, columns: [column] }) => [name, column!])),
    indexes,
    searches: new Map(),
    dates,
    declared: declaredTypes(undefined, dates),
    fieldNames: columns.map(({ name }) => name),
    cipher: undefined,
    state: undefined,
    rowCount,
    tableRowCount: rowCount,
    sizeBytes: undefined,
  };
}

/** The indexes and the schema that the types of the fields of a collection follow from. */
export interface TypedFields {
  indexes: ReadonlyArray<Pick<IndexDefinition, 'fields' | 'declaredType'>>;
  schema: FieldTypes | undefined;
}

/** How text from a URL is read for a field: as its index says, else as the schema does, else `any`. */
export function typeOf({ indexes, schema }: TypedFields, path: Path): FieldType {
  const name = path.join('.');
  if (name === 'id') return 'string';
  for (const { fields, declaredType } of indexes) {
    const type = fields.includes(name) ? indexedType(declaredType, schema, name) : 'any';
    if (type !== 'any') return type;
  }
  return schemaType(schema, name);
}
