import { invalid } from '@granary/shared/errors';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { searchWords } from '../../values/search-text';
import type { ConditionOf } from '../language/condition';
import { FIELD_NOT_INDEXED } from '../language/query-error';
import type { RowFields } from './row-fields';

/**
 * Whether the words of a field match a search. Its index has the same expression over the same column; where a row has
 * no such column (in history, and until the index is built) its words are made of the record. Throws FIELD_NOT_INDEXED.
 */
export function searchSql(fields: RowFields, { path, search }: ConditionOf<'search'>): Sql {
  const name = path.join('.');
  const index = fields.source.searches.get(name);
  if (!index) {
    const message = `$search needs an index of the type fulltext on ${name}`;
    throw invalid(message, { [name]: [message] }, FIELD_NOT_INDEXED);
  }
  const { configuration, column } = index;
  const words = sql`to_tsvector(${configuration}, ${column ?? sql`search_text(${fields.value(path)})`})`;
  return sql`${words} @@ websearch_to_tsquery(${configuration}, ${searchWords(search)}::text)`;
}
