import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { UsageError } from '../failure.ts';
import { columnTypesOf, kindOf, pathList, type ColumnType, type Format } from './formats.ts';
import { otherPlace, type TransferState } from './state-file.ts';

/** The way in which the records of a file are treated, as the service takes it. */
export interface ImportDefinition {
  format: Format;
  mode: 'insert' | 'upsert' | 'skip';
  on_error: 'abort' | 'continue';
  dry_run: boolean;
  columns?: string[] | undefined;
  types?: Record<string, ColumnType> | undefined;
  empty?: 'missing' | 'null' | 'string' | undefined;
  separator?: ',' | ';' | '|' | 'tab' | undefined;
}

/** The options of `granary import` for one file. */
export interface ImportOptions {
  format?: Format;
  mode?: ImportDefinition['mode'];
  onError?: ImportDefinition['on_error'];
  dryRun?: boolean;
  columns?: string;
  types?: string;
  empty?: NonNullable<ImportDefinition['empty']>;
  separator?: NonNullable<ImportDefinition['separator']>;
  errors?: string;
  restart?: boolean;
}

/** The name that stands for stdin. */
export const stdinName = '-';

/** The definition of an import by the name of its file and the options. Throws UsageError for contradictory options. */
export function importDefinitionOf(file: string, options: ImportOptions): ImportDefinition {
  const kind = kindOf(file);
  const format = options.format ?? kind.format ?? (file === stdinName ? 'ndjson' : undefined);
  if (format === undefined) {
    throw new UsageError(`The name ${basename(file)} does not say the format`, 'Add --format ndjson, json or csv.');
  }
  if (format !== 'csv') {
    for (const flag of ['columns', 'types', 'empty', 'separator'] as const) {
      if (options[flag] !== undefined) throw new UsageError(`--${flag} is for tables`, 'Add --format csv.');
    }
  }
  return {
    format,
    mode: options.mode ?? 'upsert',
    on_error: options.onError ?? 'abort',
    dry_run: options.dryRun ?? false,
    columns: options.columns === undefined ? undefined : pathList(options.columns, '--columns'),
    types: options.types === undefined ? undefined : columnTypesOf(options.types),
    empty: options.empty,
    separator: options.separator ?? (format === 'csv' ? kind.separator : undefined),
  };
}

/** Size and time of a file, by which it is the same as before. */
export interface FileMark {
  sizeBytes: number;
  modifiedMs: number;
}

/** An import of a file that has begun. */
export interface ImportState extends TransferState {
  collection: string;
  importId: string;
  file: FileMark;
  definition: ImportDefinition;
}

/** The reason why an import that has begun does not go on with a file; undefined if it does. */
export function otherImport(
  state: ImportState,
  place: { url: string; app: string },
  { collection, definition, file }: Pick<ImportState, 'collection' | 'definition' | 'file'>,
): string | undefined {
  const elsewhere = otherPlace(state, place);
  if (elsewhere !== undefined) return elsewhere;
  if (state.collection !== collection) return `it is into the collection "${state.collection}"`;
  for (const [name, value] of Object.entries(definition)) {
    const before = state.definition[name as keyof ImportDefinition];
    if (isDeepStrictEqual(before, value)) continue;
    return `its --${name.replace('_', '-')} is ${before === undefined ? 'not named' : JSON.stringify(before)}`;
  }
  if (state.file.sizeBytes !== file.sizeBytes) {
    return `the file had ${state.file.sizeBytes} bytes, and has ${file.sizeBytes} now`;
  }
  if (state.file.modifiedMs !== file.modifiedMs) {
    return `the file was changed at ${new Date(file.modifiedMs).toISOString()}`;
  }
  return undefined;
}
