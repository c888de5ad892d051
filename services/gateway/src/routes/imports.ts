import { z } from 'zod';
import { newTicket } from '@granary/shared/ids';
import { created, json, jsonBytes, type Answer } from '../http/answer';
import { exampleImport, importJson, importJsonSchema, uploadHeaders } from '../imports/import-json';
import { optionsText } from '../imports/import-options';
import type { AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route, type RouteRequest } from '../pipeline/route';
import { importQuery, importSchema } from '../validation/import-request';
import { objectSchema, successSchema } from '../validation/schemas';
import { importFile, isPaid, locationOf, sendImport } from './import-files';

type Path = 'app_id' | 'import_id';

async function createImport(
  { clients }: GatewayContext,
  request: RouteRequest<'app_id', AppCaller, unknown, z.output<typeof importSchema>>,
): Promise<Answer> {
  const { path, caller, body, call } = request;
  const { collection, size_bytes: sizeBytes, ...requested } = body;
  const begun = await clients.data.createImport(
    {
      appId: path.app_id,
      appNumber: caller.appNumber,
      importId: newTicket('j', BigInt(caller.appNumber)),
      collection,
      options: Buffer.from(optionsText(requested)),
      ...(sizeBytes !== undefined && { sizeBytes: String(sizeBytes) }),
      isOneRequest: false,
      idempotency: idempotencyOfJson(request),
      isPaid: isPaid(caller),
    },
    call,
  );
  const headers = { ...uploadHeaders(begun), ...replayedHeader(begun.replayed === true) };
  return created(locationOf(path.app_id, begun.importId), importJson(begun), headers);
}

async function getImport({ clients }: GatewayContext, { path, call }: RouteRequest<Path>): Promise<Answer> {
  const one = await clients.data.getImport({ appId: path.app_id, importId: path.import_id }, call);
  return json(200, importJson(one), uploadHeaders(one));
}

async function deleteImport({ clients }: GatewayContext, request: RouteRequest<Path, AppCaller>): Promise<Answer> {
  const { path, call } = request;
  const { replayed } = await clients.data.deleteImport(
    { appId: path.app_id, importId: path.import_id, idempotency: idempotencyOfJson(request) },
    call,
  );
  const answer = { success: true, message: 'The import is deleted; its documents stay' };
  return json(200, answer, replayedHeader(replayed === true));
}

/** Any content type is taken: client generators know this one. */
const fileContent = {
  'application/octet-stream': { schema: z.string().meta({ format: 'binary' }), example: '{"id":"first","stars":5}' },
};
const uploadHeaderDocs = {
  'Upload-Offset': 'Bytes of the file that are done',
  'Upload-Complete': '`?1`: the whole file is; else `?0`',
};
const recordErrorSchema = z.object({
  line: z.int().describe('The line on which the record begins, counted from 1'),
  offset: z.int().describe('Offset of its first byte in the file'),
  code: z.string().describe('The code that the error has elsewhere'),
  id: z.string().optional().describe('Id of the document, where it can be read'),
  error: z.string().describe('Text for people'),
  details: objectSchema.describe('Where it lies, by field'),
});
const encodingHeader = { 'Content-Encoding': { description: '`gzip`, or none', example: 'gzip' } };
const recordErrors = {
  400: {
    description: 'A record or a parameter is not valid, or the file is of another format',
    codes: ['VALIDATION_FAILED', 'MALFORMED_JSON', 'MALFORMED_CSV'],
  },
  402: { description: 'Writes to the collection cost something, and cannot be paid here', codes: ['PAYMENT_REQUIRED'] },
  413: { description: 'The file or a document is too large', codes: ['PAYLOAD_TOO_LARGE', 'DOCUMENT_TOO_LARGE'] },
  415: { description: 'The file is part of a form, or of another encoding', codes: ['UNSUPPORTED_MEDIA_TYPE'] },
} as const;
const common = { tag: 'Documents', auth: { kind: 'app', permission: 'Write' } } as const;

export const importRoutes = [
  route({
    ...common,
    method: 'POST',
    path: '/apps/{app_id}/collections/{collection}/import',
    id: 'importFile',
    summary: 'Import a file',
    description:
      'Stores the documents of a file of any length, in commits of up to 1,000, and answers once all are stored. A ' +
      'collection that does not exist is created. See docs/import-export.md.',
    query: importQuery,
    headers: { ...idempotencyHeader, ...encodingHeader },
    body: { kind: 'stream', content: fileContent },
    responses: {
      200: {
        description: 'The whole file is done',
        schema: importJsonSchema,
        example: exampleImport,
        headers: { Location: 'The import' },
      },
      ...recordErrors,
      409: {
        description: 'A document exists already, or a unique value is taken',
        codes: ['ALREADY_EXISTS', 'UNIQUE_VIOLATION', 'IMPORT_OFFSET_MISMATCH'],
      },
      422: {
        description:
          'A document violates the schema, too many records failed, or the Idempotency-Key was used for another file',
        codes: ['SCHEMA_VIOLATION', 'TOO_MANY_ERRORS', 'IDEMPOTENCY_KEY_REUSED'],
      },
      429: { description: 'Too many imports have not ended', codes: ['TOO_MANY_IMPORTS'] },
    },
    handle: importFile,
  }),
  route({
    ...common,
    method: 'POST',
    path: '/apps/{app_id}/imports',
    id: 'createImport',
    summary: 'Begin an import in several requests',
    description: 'Its file is sent by `PATCH`, whole or in parts, and goes on after a break where its offset is.',
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: importSchema,
      example: { collection: 'notes', format: 'csv', on_error: 'continue' },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      201: {
        description: 'It waits for its file',
        schema: importJsonSchema,
        example: { ...exampleImport, status: 'open', offset: 0, lines: 0, written: 0, skipped: 0, height: null },
        headers: { Location: 'The import', ...uploadHeaderDocs },
      },
      402: recordErrors[402],
      429: { description: 'Too many imports have not ended', codes: ['TOO_MANY_IMPORTS'] },
    },
    handle: createImport,
  }),
  route({
    ...common,
    method: 'GET',
    path: '/apps/{app_id}/imports',
    id: 'listImports',
    summary: 'List the imports of an application',
    description: 'The newest hundred.',
    responses: {
      200: {
        description: 'The imports, the newest first',
        schema: z.object({ imports: z.array(importJsonSchema).describe('The imports') }),
        example: { imports: [exampleImport] },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const { imports } = await clients.data.listImports({ appId: path.app_id }, call);
      return json(200, { imports: imports.map(importJson) });
    },
  }),
  route({
    ...common,
    method: 'GET',
    path: '/apps/{app_id}/imports/{import_id}',
    id: 'getImport',
    summary: 'Read how far an import is',
    description: '`HEAD` has `Upload-Offset` too.',
    responses: {
      200: {
        description: 'The import',
        schema: importJsonSchema,
        example: exampleImport,
        headers: uploadHeaderDocs,
      },
    },
    handle: getImport,
  }),
  route({
    ...common,
    method: 'PATCH',
    path: '/apps/{app_id}/imports/{import_id}',
    id: 'sendImport',
    summary: 'Send the next part of the file of an import',
    description:
      'What is behind the last whole record of the part is not stored, and to be sent again: the next part begins at ' +
      'the offset that is answered.',
    headers: {
      'Upload-Offset': {
        description: 'Offset of the first byte in the file: that of the import',
        required: true,
        pattern: '^[0-9]{1,15}$',
        example: '0',
      },
      'Upload-Complete': {
        description: '`?1`: the file ends with this part; else `?0`',
        required: true,
        pattern: '^[?][01]$',
        example: '?1',
      },
      ...encodingHeader,
    },
    body: { kind: 'stream', content: fileContent },
    responses: {
      200: {
        description: 'The import after the part',
        schema: importJsonSchema,
        example: exampleImport,
        headers: uploadHeaderDocs,
      },
      ...recordErrors,
      409: {
        description: 'The import is at another offset or has ended, a document exists, or a unique value is taken',
        codes: ['IMPORT_OFFSET_MISMATCH', 'IMPORT_ENDED', 'ALREADY_EXISTS', 'UNIQUE_VIOLATION'],
      },
      422: {
        description: 'A document violates the schema, or too many records failed',
        codes: ['SCHEMA_VIOLATION', 'TOO_MANY_ERRORS'],
      },
    },
    handle: sendImport,
  }),
  route({
    ...common,
    method: 'GET',
    path: '/apps/{app_id}/imports/{import_id}/errors',
    id: 'listImportErrors',
    summary: 'Read the errors of an import',
    description: 'The first thousand records that were passed over, in their order.',
    responses: {
      200: {
        description: 'The errors',
        schema: z.object({ errors: z.array(recordErrorSchema).describe('One for each record, in their order') }),
        example: {
          errors: [
            {
              line: 4711,
              offset: 73_400,
              code: 'SCHEMA_VIOLATION',
              id: 'b9',
              error: 'A document does not fit the schema of its collection: year must be a number',
              details: { year: ['must be a number'] },
            },
          ],
        },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const errors = await clients.data.listImportErrors({ appId: path.app_id, importId: path.import_id }, call);
      return jsonBytes(200, errors.json);
    },
  }),
  route({
    ...common,
    method: 'DELETE',
    path: '/apps/{app_id}/imports/{import_id}',
    id: 'deleteImport',
    summary: 'Delete an import',
    description: 'It cannot be gone on with, and its errors are forgotten. The documents that it has stored stay.',
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'The import is deleted; its documents stay' },
      },
    },
    handle: deleteImport,
  }),
];
