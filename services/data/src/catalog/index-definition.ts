import type { FieldType } from '../values/field-type';
import type { FieldTypes } from './schema';

export const INDEX_NOT_FOUND = 'INDEX_NOT_FOUND';
export const UNIQUE_VIOLATION = 'UNIQUE_VIOLATION';

/** A field that indexes are over. Writers fill the column of its key, which all its indexes share. */
export interface IndexedField {
  number: bigint;
  name: string;
  path: string[];
  /** Whether RFC 3339 text has the key of its instant. A path may be indexed both ways. */
  isDate: boolean;
}

/** An index as it was requested, over one field or over two to four. */
export interface IndexDefinition {
  number: bigint;
  name: string;
  /** The field name that the index is listed with; a composite's own fields are in `fields`. */
  fieldName: string;
  fields: string[];
  /** The requested type: btree, hash, composite, fulltext, price, encrypted, or a declared type. */
  declaredType: string;
  /** The language of a full-text index. */
  language: string | null;
  /** Whether it has a column for the unique value of its fields together. */
  unique: boolean;
  /** Writers fill the columns of a building index already; readers use ready ones only. A failed one has no columns. */
  status: 'building' | 'ready' | 'failed';
  /** The fields with their columns, in the order of the index; none of a full-text index. */
  keys: IndexedField[];
}

/** The name of the index that a schema makes for a field. */
export const schemaIndexName = (collection: string, fieldName: string): string => `${collection}_${fieldName}_idx`;

/** Whether an index is over the words of a field: it has a column of text, and no keys. */
export const isSearchIndex = ({ declaredType }: Pick<IndexDefinition, 'declaredType'>): boolean =>
  declaredType === 'fulltext';

/** Whether an index is over the blind index of an encrypted field. */
export const isEncryptedIndex = ({ declaredType }: Pick<IndexDefinition, 'declaredType'>): boolean =>
  declaredType === 'encrypted';

/** The path of the blind index of an encrypted field, see encryption/field-cipher.ts. No caller can name it. */
export const termPath = (fieldName: string): string => `${fieldName}${termStep}`;

const termStep = '.$term';

/** Whether a path is that of the blind index of a field. */
export const isTermPath = (path: readonly string[]): boolean => path.at(-1) === termStep.slice(1);

/** Returns the name of the field that a path leads to. The path of a blind index leads to its encrypted field. */
export const fieldNameOf = (path: readonly string[]): string => (isTermPath(path) ? path.slice(0, -1) : path).join('.');

type Uses = Pick<IndexDefinition, 'unique' | 'declaredType' | 'status'>;

/** The indexes with a column for unique values, in the order of the columns. */
export const uniqueIndexes = <T extends Uses>(indexes: readonly T[]): T[] =>
  indexes.filter(({ unique, status }) => unique && status !== 'failed');

/** The indexes with a column for words, in the order of the columns. */
export const searchIndexes = <T extends Uses>(indexes: readonly T[]): T[] =>
  indexes.filter((index) => isSearchIndex(index) && index.status !== 'failed');

/** The columns that an index has in the table of documents. */
export interface IndexColumns extends Pick<IndexDefinition, 'number' | 'unique' | 'language'> {
  keys: ReadonlyArray<Pick<IndexedField, 'number'>>;
}

export interface FieldRow {
  number: string;
  path: string;
  is_date: boolean;
}

export interface IndexRow {
  number: string;
  name: string;
  field_name: string;
  fields: string[] | null;
  index_type: string;
  language: string | null;
  is_unique: boolean;
  status: IndexDefinition['status'];
  field_numbers: string[];
}

export const toIndexedField = ({ number, path, is_date: isDate }: FieldRow): IndexedField => ({
  number: BigInt(number),
  name: path,
  path: path.split('.'),
  isDate,
});

export const toIndexDefinition = (index: IndexRow, fields: ReadonlyMap<bigint, IndexedField>): IndexDefinition => ({
  number: BigInt(index.number),
  name: index.name,
  fieldName: index.field_name,
  fields: index.fields ?? [index.field_name],
  declaredType: index.index_type,
  language: index.language,
  unique: index.is_unique,
  status: index.status,
  keys: index.field_numbers.map((number) => fields.get(BigInt(number))!),
});

/** The types of fields that are types of indexes too. */
type DeclaredType = 'string' | 'number' | 'boolean' | 'date';
const isFieldType = (text: string): text is DeclaredType => ['string', 'number', 'boolean', 'date'].includes(text);

/** The type of the values that an index is over, where its own type says so. */
export function declaredFieldType(declaredType: string): DeclaredType | undefined {
  if (declaredType === 'price') return 'number';
  return isFieldType(declaredType) ? declaredType : undefined;
}

/** How an index takes a field: as its declared type says, else as the schema does. */
export const indexedType = (declaredType: string, schema: FieldTypes | undefined, fieldName: string): FieldType =>
  declaredFieldType(declaredType) ?? schemaType(schema, fieldName);

/**
 * Returns the schema's type of a field over which an index of another type would find nothing; undefined where the two
 * agree, and where either of them says nothing. An index of the type btree, hash or composite takes its types from the
 * schema.
 */
export function contradictedType(
  declaredType: string,
  schema: FieldTypes | undefined,
  fieldName: string,
): string | undefined {
  const inSchema = schema?.fields.get(fieldName)?.type;
  if (inSchema === undefined) return undefined;
  const scalar = schemaType(schema, fieldName);
  if (isSearchIndex({ declaredType })) {
    return inSchema === 'object' || scalar === 'number' || scalar === 'boolean' ? inSchema : undefined;
  }
  return (declaredFieldType(declaredType) ?? scalar) === scalar ? undefined : inSchema;
}

/** The scalar type that the schema declares for a path, `any` for none and for objects and arrays. */
export function schemaType(schema: FieldTypes | undefined, fieldName: string): FieldType {
  const rule = schema?.fields.get(fieldName);
  if (rule === undefined || rule.type === 'object' || rule.type === 'array') return 'any';
  return rule.isDay ? 'day' : rule.type;
}
