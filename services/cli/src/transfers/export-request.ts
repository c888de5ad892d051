import { UsageError } from '../failure.ts';
import { kindOf, pathList, type Format } from './formats.ts';

/** The part of a collection that is exported, and its form. */
export interface ExportRequest {
  collection: string;
  format: Format;
  /** JSON text, as the user has written it. */
  find: string | undefined;
  select: string[] | undefined;
  columns: string[] | undefined;
  hasHistory: boolean;
  hasDeleted: boolean;
  escapesFormulas: boolean;
  /** Undefined: the last height. */
  height: number | undefined;
  isGzip: boolean;
}

/** The options of `granary export` for one collection. */
export interface ExportOptions {
  format?: Format;
  out?: string;
  find?: string;
  select?: string;
  columns?: string;
  at?: string;
  history?: boolean;
  deleted?: boolean;
  formulas?: 'escape' | 'keep';
  gzip?: boolean;
}

/** Throws UsageError for what does not fit together. */
export function exportRequestOf(collection: string, options: ExportOptions): ExportRequest {
  const named = options.out === undefined ? undefined : kindOf(options.out);
  const format = options.format ?? named?.format ?? 'ndjson';
  if (options.out === '') throw new UsageError('--out is empty', 'Name the file, or leave --out out for stdout.');
  if (format !== 'csv') {
    for (const flag of ['columns', 'formulas'] as const) {
      if (options[flag] !== undefined) throw new UsageError(`--${flag} is for tables`, 'Add --format csv.');
    }
  }
  return {
    collection,
    format,
    find: options.find === undefined ? undefined : checkedJson(options.find),
    select: options.select === undefined ? undefined : pathList(options.select, '--select'),
    columns: options.columns === undefined ? undefined : pathList(options.columns, '--columns'),
    hasHistory: options.history === true,
    hasDeleted: options.deleted === true,
    escapesFormulas: options.formulas === 'escape',
    height: options.at === undefined ? undefined : heightOf(options.at),
    isGzip: options.gzip ?? named?.isGzip ?? false,
  };
}

function checkedJson(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch (error) {
    throw new UsageError(
      `--find is not JSON: ${(error as Error).message}`,
      `For example --find '{"year": {"gte": 1900}}'`,
    );
  }
}

function heightOf(text: string): number {
  const height = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(height)) return height;
  throw new UsageError(`--at ${text} is not a height`, 'A height is a whole number, 0 or more.');
}

/** The parameters of the route for a request. The service makes no difference between an array and its lines. */
export function exportQuery(request: ExportRequest): Record<string, string | number | boolean | undefined> {
  return {
    format: request.format === 'csv' ? 'csv' : 'ndjson',
    find: request.find,
    select: request.select?.join(','),
    columns: request.columns?.join(','),
    history: request.hasHistory || undefined,
    deleted: request.hasDeleted ? 'include' : undefined,
    formulas: request.escapesFormulas ? 'escape' : undefined,
    at: request.height,
  };
}
