import type { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import type { importQuery, importSchema } from '../validation/import-request';
import { columnTypeList, isColumnType, type ColumnType } from '../validation/import-request';

type Requested = Pick<z.output<typeof importSchema>, 'format' | 'mode' | 'on_error' | 'dry_run'> &
  Pick<z.output<typeof importSchema>, 'columns' | 'types' | 'empty' | 'separator'>;

/** The options of an import as the data service takes them, JSON text. Throws VALIDATION_FAILED. */
export function optionsText(requested: Requested): string {
  const { format = 'ndjson', mode = 'upsert', on_error = 'abort', dry_run = false } = requested;
  const { columns, types, empty, separator } = requested;
  const ofCsv = { columns, types, empty, separator };
  for (const [name, value] of Object.entries(ofCsv)) {
    if (value !== undefined && format !== 'csv') {
      throw invalid('The import is not valid', { [name]: ['is for the format csv'] });
    }
  }
  const written = separator === 'tab' ? '\t' : separator;
  return JSON.stringify({ format, mode, on_error, dry_run, ...ofCsv, separator: written });
}

/** The options in a query string, where columns and their types are lists. Throws VALIDATION_FAILED. */
export const optionsOfQuery = ({ columns, types, ...others }: z.output<typeof importQuery>): Requested => ({
  ...others,
  columns: columns?.split(',').map((name) => name.trim()),
  types: types === undefined ? undefined : typesOf(types),
});

function typesOf(text: string): Record<string, ColumnType> {
  const entries = text.split(',').map((entry) => {
    const colon = entry.lastIndexOf(':');
    const [name, type] = [entry.slice(0, Math.max(0, colon)).trim(), entry.slice(colon + 1).trim()];
    if (name === '') throw wrongTypes(`${entry || 'an empty entry'} is no name and type, as in year:number`);
    if (!isColumnType(type)) throw wrongTypes(`${type} is none of ${columnTypeList}`);
    return [name, type] as const;
  });
  const names = entries.map(([name]) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw wrongTypes(`names ${twice} twice`);
  return Object.fromEntries(entries);
}

const wrongTypes = (message: string) => invalid('The query string is not valid', { types: [message] });
