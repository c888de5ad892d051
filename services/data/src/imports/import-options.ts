import { invalid } from '@granary/shared/errors';
import type { SchemaType } from '../catalog/schema';
import type { CollectionRef } from '../catalog/collection';
import { columnsProblem } from './records/csv-columns';
import type { ColumnType, CsvOptions, ImportFormat } from './records/record';

/** The options of an import, in the shape in which clients send them and the database keeps them. */
export interface ImportOptions {
  format: ImportFormat;
  /**
   * - `insert`: a document whose id is present is an error.
   * - `upsert`: it becomes the new version of the one that is present.
   * - `skip`: it is left out.
   */
  mode: 'insert' | 'upsert' | 'skip';
  on_error: 'abort' | 'continue';
  /** Everything is read and checked, and nothing is stored. */
  dry_run: boolean;
  columns?: readonly string[];
  types?: Readonly<Record<string, ColumnType>>;
  empty?: CsvOptions['empty'];
  separator?: CsvOptions['separator'];
}

/** Reads the options of a new import. Throws VALIDATION_FAILED for columns that cannot be. */
export function parseOptions(text: string): ImportOptions {
  const options = JSON.parse(text) as ImportOptions;
  const problem = options.columns && columnsProblem(options.columns);
  if (problem !== undefined) throw invalid('The columns are not valid', { columns: [problem] });
  return options;
}

/**
 * How a table is read into documents of a collection, whose schema says the types of columns that nothing else says.
 */
export const csvOptions = (
  { columns, types = {}, empty = 'missing', separator = ',' }: ImportOptions,
  collection: CollectionRef | undefined,
): CsvOptions => ({
  columns,
  empty,
  separator,
  typeOf: (path) => (Object.hasOwn(types, path) ? types[path]! : typeInSchema(path, collection)),
});

function typeInSchema(path: string, collection: CollectionRef | undefined): ColumnType {
  const rule = collection?.schema?.fields.get(path);
  return rule ? columnTypes[rule.type] : 'string';
}

const columnTypes: Readonly<Record<SchemaType, ColumnType>> = {
  string: 'string',
  date: 'string',
  number: 'number',
  integer: 'number',
  boolean: 'boolean',
  object: 'json',
  array: 'json',
};
