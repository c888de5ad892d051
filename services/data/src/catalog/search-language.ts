import { trusted, type Sql } from '@granary/shared/postgres/sql';

/** The text search configurations of Postgres that a full-text index may have. */
export const searchLanguages = [
  'simple',
  'arabic',
  'armenian',
  'basque',
  'catalan',
  'danish',
  'dutch',
  'english',
  'estonian',
  'finnish',
  'french',
  'german',
  'greek',
  'hindi',
  'hungarian',
  'indonesian',
  'irish',
  'italian',
  'lithuanian',
  'nepali',
  'norwegian',
  'portuguese',
  'romanian',
  'russian',
  'serbian',
  'spanish',
  'swedish',
  'tamil',
  'turkish',
  'yiddish',
];

/** The configuration of a language of the list above. */
export function searchConfiguration(language: string): Sql {
  if (!searchLanguages.includes(language)) throw new RangeError('a language of the list is expected');
  return trusted(`'pg_catalog.${language}'::regconfig`);
}
