import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { shownViewName } from '../catalog/table-names';
import type { CollectionRef } from '../catalog/collection';
import { invalidQuery } from '../query/language/query-error';
import { readJsonText } from '../query/language/paging';
import { parseViewQuery, type ViewQuery } from './language/view-query';
import { viewUses } from './language/view-use';

/** Throws INVALID_QUERY for a view that would show an encrypted field, or depend on one. */
export function assertPlainSources(query: ViewQuery, sources: Iterable<CollectionRef>): void {
  for (const { name, encrypted } of sources) {
    const used = encrypted?.names.find((field) => viewUses(query, name, field.split('.')));
    if (used === undefined) continue;
    throw invalidQuery('query', `of a view cannot use the encrypted field ${used} of ${name}: select other fields`);
  }
}

interface ViewRow {
  name: string;
  query_text: string;
  source_collections: string[];
}

/** The name of a view that uses a field of a collection, if there is one. */
export async function viewUsing(
  db: Queryable,
  { appNumber, name: collection }: CollectionRef,
  field: string,
): Promise<string | undefined> {
  const views = await rows<ViewRow>(
    db,
    sql`select ${shownViewName} as name, query_text, source_collections from view v
        where app_number = ${appNumber} and ${collection} = any(source_collections) order by 1`,
  );
  return views.find(({ query_text: text, source_collections: sources }) =>
    viewUses(parseViewQuery(readJsonText(Buffer.from(text), 'query'), sources), collection, field.split('.')),
  )?.name;
}
