import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { uniqueIndexes, type IndexDefinition } from '../catalog/index-definition';
import { documentsTable, uniqueColumn } from '../catalog/table-names';
import type { PreparedDocument } from '../documents/parser';

/** A document that cannot be written, by its place among others, and the index whose value is taken. */
export interface TakenValue {
  place: number;
  index: IndexDefinition;
}

/**
 * The documents whose unique values are taken: by a stored document, unless it is one of them and gives the value up,
 * or by one of them that comes earlier. Of several with one id the last is what will be stored. The values may still be
 * taken between this look and a write.
 */
export async function takenValues(
  db: Queryable,
  collection: CollectionRef,
  documents: readonly PreparedDocument[],
): Promise<TakenValue[]> {
  const lastPlaces = new Map(documents.map(({ id }, place) => [id, place]));
  const taken: TakenValue[] = [];
  for (const [position, index] of uniqueIndexes(collection.indexes).entries()) {
    const valueOf = (place: number) => documents[place]!.uniques?.[position] ?? null;
    const places = [...lastPlaces.values()].filter((place) => valueOf(place) !== null).sort((a, b) => a - b);
    const ownerByValue = new Map<string, string>();
    for (const { id, value } of await storedValues(db, collection, index, places.map(valueOf))) {
      const place = lastPlaces.get(id);
      if (place === undefined || valueOf(place) === value) ownerByValue.set(value, id);
    }
    for (const place of places) {
      const value = valueOf(place)!;
      const { id } = documents[place]!;
      if (!ownerByValue.has(value)) ownerByValue.set(value, id);
      else if (ownerByValue.get(value) !== id) taken.push({ place, index });
    }
  }
  return taken;
}

/** The stored documents that have some of the values of a unique index. */
function storedValues(
  db: Queryable,
  collection: CollectionRef,
  index: IndexDefinition,
  values: ReadonlyArray<string | null>,
): Promise<Array<{ id: string; value: string }>> {
  const column = uniqueColumn(index);
  return rows(
    db,
    sql`select id, ${column} as value from ${documentsTable(collection)} where ${column} = any(${values}::text[])`,
  );
}
