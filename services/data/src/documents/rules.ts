import { compileWatch, type WatchTree } from '@granary/shared/json/document';
import type { CollectionRef } from '../catalog/collection';
import type { FieldRule, Schema } from '../catalog/schema';
import type { IndexDefinition, IndexedField } from '../catalog/index-definition';

/** What of a collection decides how its documents are read: compiled once for each state of the catalog. */
export interface DocumentRules {
  watch: WatchTree;
  keys: readonly IndexedField[];
  /** For each unique index, the places of its fields among `keys`. */
  uniques: ReadonlyArray<readonly number[]>;
  fields: ReadonlyArray<{ name: string; rule: FieldRule }>;
}

const noRules: DocumentRules = { watch: compileWatch([]), keys: [], uniques: [], fields: [] };
const compiled = new WeakMap<CollectionRef, DocumentRules>();

/** The rules of a collection; none for one that does not exist yet. */
export function rulesOf(ref: CollectionRef | undefined): DocumentRules {
  if (!ref) return noRules;
  let rules = compiled.get(ref);
  if (!rules) compiled.set(ref, (rules = compileRules(ref.fields, ref.indexes, ref.schema)));
  return rules;
}

export function compileRules(
  keys: readonly IndexedField[],
  indexes: ReadonlyArray<Pick<IndexDefinition, 'unique' | 'keys'>>,
  schema: Schema | undefined,
): DocumentRules {
  const fields = [...(schema?.fields ?? [])].map(([name, rule]) => ({ name, rule }));
  return {
    // The captures of a document come in this order: keys first, then the fields of the schema.
    watch: compileWatch([...keys.map(({ path }) => path), ...fields.map(({ name }) => name.split('.'))]),
    keys,
    uniques: indexes.filter(({ unique }) => unique).map((index) => index.keys.map((key) => keys.indexOf(key))),
    fields,
  };
}
