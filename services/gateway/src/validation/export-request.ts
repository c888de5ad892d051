import { z } from 'zod';
import { flagParameter, wholeParameter } from './parameters';
import { findBytesMax } from './feed-request';

/** Characters of the names of columns. */
const columnsLengthMax = 16 * 1024;

/** The parameters of an export. */
export const exportQuery = z.strictObject({
  format: z
    .enum(['ndjson', 'json', 'csv'])
    .optional()
    .describe(
      '`ndjson` (default): a document on each line; `json`: an array; `csv`: a table, see docs/import-export.md',
    ),
  at: wholeParameter(0, Number.MAX_SAFE_INTEGER)
    .optional()
    .describe('The documents as they were behind the commit of that height; by default behind the last one'),
  after: z
    .string()
    .min(1)
    .max(512)
    .optional()
    .describe('Goes on behind the document with that id, which need not exist, in the order of the bytes of ids'),
  after_version: wholeParameter(1, Number.MAX_SAFE_INTEGER)
    .optional()
    .describe('With `history` and `after`: behind that version of it; else behind all of its versions'),
  find: z
    .string()
    .min(1)
    .max(findBytesMax)
    .optional()
    .describe('A filter as JSON text, for the documents of that height'),
  select: z.string().min(1).max(findBytesMax).optional().describe('Fields separated by commas, or a selection as JSON'),
  history: flagParameter
    .optional()
    .describe('`true`: every version up to the height, as `{id, version, height, at, deleted, document}`'),
  deleted: z.enum(['exclude', 'include']).optional().describe('`include`: soft-deleted documents too'),
  columns: z
    .string()
    .min(1)
    .max(columnsLengthMax)
    .optional()
    .describe(
      'With `csv`: dotted paths separated by commas, in their order; by default those of the schema, else of the first documents',
    ),
  formulas: z
    .enum(['keep', 'escape'])
    .optional()
    .describe('With `csv`: `escape` puts an apostrophe before texts that a spreadsheet would take for formulas'),
});
