import { z } from 'zod';
import { flagParameter } from './parameters';
import { nameSchema } from './schemas';

const formats = ['ndjson', 'json', 'csv'] as const;
const modes = ['insert', 'upsert', 'skip'] as const;
const errorHandlings = ['abort', 'continue'] as const;
const columnTypes = ['string', 'number', 'boolean', 'json'] as const;
const emptyCells = ['missing', 'null', 'string'] as const;
const separators = [',', ';', '|', 'tab'] as const;
/** Characters of the names and types of columns in a URL. */
const columnsLengthMax = 16 * 1024;

export type ColumnType = (typeof columnTypes)[number];
export const isColumnType = (text: string): text is ColumnType => (columnTypes as readonly string[]).includes(text);
export const columnTypeList = columnTypes.join(', ');

const format = z
  .enum(formats)
  .optional()
  .describe('`ndjson` (default): a document on each line; `json`: an array of documents; `csv`: a table');
const mode = z
  .enum(modes)
  .optional()
  .describe(
    'What a document does whose id is present: `upsert` (default): it becomes the new version; `insert`: it is an ' +
      'error; `skip`: it is left out',
  );
const onError = z
  .enum(errorHandlings)
  .optional()
  .describe(
    '`abort` (default): the first record that cannot be stored ends the import, and those before it stay; `continue`: ' +
      'it is passed over, up to 10,000 of them',
  );
const dryRunText = '`true`: everything is read and checked, and nothing is stored';
const columnsText = 'With `csv`: the paths of the columns of a file without a header row';
const typesText =
  'With `csv`: the types of columns that the schema does not say, `string` (default), `number`, `boolean` or `json`';
const empty = z
  .enum(emptyCells)
  .optional()
  .describe('With `csv`: what an empty cell without quotes becomes; by default `missing`: no member');
const separator = z.enum(separators).optional().describe('With `csv`: what separates cells; by default a comma');

/** The parameters of an import in one request. */
export const importQuery = z.strictObject({
  format,
  mode,
  on_error: onError,
  dry_run: flagParameter.optional().describe(dryRunText),
  columns: z.string().min(1).max(columnsLengthMax).optional().describe(`${columnsText}, separated by commas`),
  types: z.string().min(1).max(columnsLengthMax).optional().describe(`${typesText}: \`year:number,ok:boolean\``),
  empty,
  separator,
});

/** The body that begins an import in several requests. */
export const importSchema = z.strictObject({
  collection: nameSchema,
  format,
  mode,
  on_error: onError,
  dry_run: z.boolean().optional().describe(dryRunText),
  columns: z.array(z.string().min(1).max(500)).min(1).max(1_000).optional().describe(columnsText),
  types: z.record(z.string().min(1).max(500), z.enum(columnTypes)).optional().describe(typesText),
  empty,
  separator,
  size_bytes: z
    .int()
    .min(0)
    .optional()
    .describe('The bytes of the file, where they are known: the progress of its task is told by them'),
});
