import { conflict } from '@granary/shared/errors';
import type { Connection } from '@granary/shared/postgres/pool';
import type { CollectionRef } from '../catalog/collection';
import { schemaIndexName, type IndexDefinition } from '../catalog/index-definition';

export const INDEX_IN_USE = 'INDEX_IN_USE';

/** The names of the predefined queries that would lose an index, some of them where there are many. */
export type QueriesNeeding = (tx: Connection, collection: CollectionRef, index: IndexDefinition) => Promise<string[]>;

/** Something that needs an index, as `details.used_by` and as the sentence names it. */
interface Need {
  usedBy: string;
  sentence: string;
}

/**
 * Refuses the deletion of an index that the schema declares, or by which a predefined query finds or sorts its records.
 * Throws INDEX_IN_USE with a sentence that names them, and `details.used_by`.
 */
export async function assertUnneeded(
  tx: Connection,
  collection: CollectionRef,
  index: IndexDefinition,
  queriesNeeding: QueriesNeeding,
): Promise<void> {
  const needs: Need[] = [];
  const declared = declaredBy(collection, index);
  if (declared) needs.push({ usedBy: 'schema', sentence: `the schema, which has ${declared}` });
  for (const name of await queriesNeeding(tx, collection, index)) {
    needs.push({ usedBy: `query ${name}`, sentence: `the query ${name}` });
  }
  if (needs.length === 0) return;
  const users = needs.map(({ sentence }) => sentence).join('; ');
  throw conflict(INDEX_IN_USE, `The index ${index.name} cannot be deleted, for it is needed by ${users}`, {
    used_by: needs.map(({ usedBy }) => usedBy),
  });
}

/** Names the member of the schema that has made an index; undefined for any other index. */
function declaredBy({ name, schema }: CollectionRef, index: IndexDefinition): string | undefined {
  const [field] = index.fields;
  const rule = index.name === schemaIndexName(name, field!) ? schema?.fields.get(field!) : undefined;
  if (!rule?.index && !rule?.unique) return undefined;
  return `${rule.unique ? 'unique' : 'index'}: true for ${field}`;
}
