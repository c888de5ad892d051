import { compileWatch, type WatchTree } from '../json/document';
import type { CollectionRef } from '../catalog/collection';
import type { FieldRule, Schema } from '../catalog/schema';
import { cipherOf, type EncryptedField } from '../encryption/document-cipher';
import { searchIndexes, uniqueIndexes, type IndexDefinition, type IndexedField } from '../catalog/index-definition';

/** The rules by which the documents of a collection are read, compiled once for each state of the catalog. */
export interface DocumentRules {
  watch: WatchTree;
  keys: readonly IndexedField[];
  /** The places among `keys` of the fields of each unique index. */
  uniques: ReadonlyArray<readonly number[]>;
  /** The fields of full-text indexes. */
  searches: ReadonlyArray<{ name: string; path: readonly string[] }>;
  fields: ReadonlyArray<{ name: string; rule: FieldRule }>;
  encrypted: readonly EncryptedField[];
}

const noRules: DocumentRules = {
  watch: compileWatch([]),
  keys: [],
  uniques: [],
  searches: [],
  fields: [],
  encrypted: [],
};
const compiled = new WeakMap<CollectionRef, DocumentRules>();

/** The rules of a collection; none for one that does not exist yet. Throws ENCRYPTION_UNAVAILABLE. */
export function rulesOf(ref: CollectionRef | undefined): DocumentRules {
  if (!ref) return noRules;
  let rules = compiled.get(ref);
  if (!rules) compiled.set(ref, (rules = compileRules(ref.fields, ref.indexes, ref.schema, cipherOf(ref)?.fields)));
  return rules;
}

export function compileRules(
  keys: readonly IndexedField[],
  indexes: ReadonlyArray<Pick<IndexDefinition, 'unique' | 'declaredType' | 'status' | 'fieldName' | 'keys'>>,
  schema: Schema | undefined,
  encrypted: readonly EncryptedField[] = [],
): DocumentRules {
  const fields = [...(schema?.fields ?? [])].map(([name, rule]) => ({ name, rule }));
  const searches = searchIndexes(indexes).map(({ fieldName: name }) => ({ name, path: name.split('.') }));
  const paths = [...keys, ...searches].map(({ path }) => path);
  return {
    // The captures of a document come in this order: keys, full texts, the fields of the schema, encrypted fields.
    watch: compileWatch([...paths, ...fields.map(({ name }) => name.split('.')), ...encrypted.map(({ path }) => path)]),
    keys,
    uniques: uniqueIndexes(indexes).map((index) => index.keys.map((key) => keys.indexOf(key))),
    searches,
    fields,
    encrypted,
  };
}
