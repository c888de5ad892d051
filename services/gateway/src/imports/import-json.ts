import { z } from 'zod';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { OperationError } from '@granary/shared/gen/granary/data/v1/OperationError';
import { JsonText, jsonText } from '../http/answer';
import { exampleTime, objectSchema, timeSchema } from '../validation/schemas';

/** An import as it is answered. */
export const importJsonSchema = z
  .object({
    import_id: z.string().describe('Id of the import, which is the ticket of its task too'),
    collection: z.string().describe('Name of the collection'),
    options: objectSchema.describe('What is done with the file, as it was asked for'),
    status: z
      .enum(['open', 'completed', 'failed'])
      .describe('`open`: more of the file may come; `failed`: a record has ended it'),
    offset: z.int().describe('Bytes of the file that are done. More of it begins there'),
    lines: z.int().describe('Lines of the file that are done, with a header and empty ones'),
    written: z.int().describe('Documents that were stored; of a dry run, that would have been'),
    skipped: z.int().describe('Documents that were left out because their ids are present'),
    failed: z.int().describe('Records that were passed over; the first thousand are at `/errors`'),
    height: z.int().nullable().describe('Height of the last commit'),
    error: z
      .object({
        error: z.string().describe('Text for people'),
        code: z.string().describe('Its code'),
        details: objectSchema.describe('Where it lies'),
      })
      .nullable()
      .describe('Why it failed'),
    created_at: timeSchema.describe('When it began'),
    updated_at: timeSchema.describe('When it last changed'),
    expires_at: timeSchema.describe('When it is forgotten, unless more of the file comes'),
  })
  .meta({ id: 'Import' });

export const exampleImport = {
  import_id: 'j1-Qm9va3MgYW5kIHRoZWly',
  collection: 'notes',
  options: { format: 'ndjson', mode: 'upsert', on_error: 'abort', dry_run: false },
  status: 'completed',
  offset: 73_400_320,
  lines: 120_000,
  written: 119_998,
  skipped: 2,
  failed: 0,
  height: 121,
  error: null,
  created_at: exampleTime,
  updated_at: exampleTime,
  expires_at: exampleTime,
};

export function importJson(one: Import): object {
  return {
    import_id: one.importId,
    collection: one.collection,
    options: new JsonText(one.options.toString()),
    status: one.status,
    offset: Number(one.offset),
    lines: Number(one.lines),
    written: Number(one.written),
    skipped: Number(one.skipped),
    failed: Number(one.failed),
    height: Number(one.height) || null,
    error: one.error ? errorJson(one.error) : null,
    created_at: one.createdAt,
    updated_at: one.updatedAt,
    expires_at: one.expiresAt,
  };
}

const errorJson = ({ reason, message, detailsJson }: OperationError) => ({
  error: message,
  code: reason,
  details: jsonText(detailsJson),
});

/** The headers of an answer that says how much of a file is done, by the names of resumable uploads. */
export const uploadHeaders = ({ offset, status }: Import): Record<string, string> => ({
  'Upload-Offset': offset,
  'Upload-Complete': status === 'completed' ? '?1' : '?0',
});
