import type { JsonValue } from '@granary/shared/json/value';
import type { Path } from './condition';
import { parsePath } from './path';
import { invalidQuery, overLimit } from './query-error';

export const sortFieldsMax = 16;

export interface SortTerm {
  path: Path;
  descending: boolean;
}

/** Terms from names of fields, `-field` descends. Throws INVALID_QUERY. */
export function parseSort(names: readonly JsonValue[], location: string): SortTerm[] {
  if (names.length > sortFieldsMax) throw overLimit(location, `may hold at most ${sortFieldsMax} fields`);
  return names.map((name) => {
    if (typeof name !== 'string') throw invalidQuery(location, 'must hold names of fields');
    const descending = name.startsWith('-');
    return { path: parsePath(descending ? name.slice(1) : name, location), descending };
  });
}
