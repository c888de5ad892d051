import { z } from 'zod';
import type { OperationResult } from '@granary/shared/gen/granary/data/v1/OperationResult';
import type { OperationError } from '@granary/shared/gen/granary/data/v1/OperationError';
import { ServiceError, type ErrorDetails, type StatusName } from '@granary/shared/errors';
import { newTicket } from '@granary/shared/ids';
import { internalProblem, problemOf } from '../errors/problem';
import { jsonBytes, stringify } from '../http/answer';
import { hasPermission } from '../pipeline/access';
import { idempotency, idempotencyHeader, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { findSchema, objectSchema } from '../validation/schemas';
import { namePattern } from '@granary/shared/names';

const operationSchema = z.strictObject({
  operation: z
    .enum(['create', 'update', 'delete'])
    .describe('`update` merges `data` into the document (RFC 7396); `delete` marks it as deleted'),
  collection: z.string().regex(namePattern).describe('Name of the collection'),
  data: objectSchema
    .optional()
    .describe(
      'A document. `create` makes an `id` where there is none; `update` and `delete` take it from `conditions` then, and ' +
        '`delete` needs no `data` beside it',
    ),
  conditions: findSchema.optional().describe('A filter that the present version must match, else 412'),
});

const batchSchema = z.strictObject({
  operations: z
    .array(operationSchema)
    .min(1)
    .max(1_000)
    .describe('What to do, in this order for each document and each collection with unique fields'),
  atomic: z
    .boolean()
    .optional()
    .describe('True: all of them in one transaction, or none. By default each has a result of its own'),
});

const storedSchema = z.object({
  id: z.string().describe('Id of the document'),
  version: z.int().describe('Its new version'),
  celestia_height: z.int().describe('Height of the commit'),
  blob_id: z.string().describe('Hash of the commit'),
});

const resultSchema = z.object({
  success: z.boolean().describe('Whether it changed the document'),
  operation: z.string().describe('As in the request'),
  collection: z.string().describe('As in the request'),
  status: z.int().describe('As the HTTP status of the operation alone: 200, 201, or that of its error'),
  result: storedSchema.optional().describe('What it stored'),
  error: z.string().optional().describe('Why it was refused'),
  code: z.string().optional().describe('The code of the error'),
  details: objectSchema.optional().describe('Where it lies, by field'),
});

const exampleResult = {
  success: true,
  operation: 'create',
  collection: 'notes',
  status: 201,
  result: { id: 'second', version: 1, celestia_height: 7, blob_id: '9f86d081…' },
};

export const batchRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/batch',
    id: 'batch',
    summary: 'Create, update and delete documents in one request',
    description:
      'An operation that is refused does not affect the others, which are committed. With `atomic` all are committed or ' +
      'none: the error of the first that is refused is that of the request, and nothing was changed.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    body: {
      kind: 'raw',
      content: {
        'application/json': {
          schema: batchSchema,
          example: {
            operations: [
              { operation: 'create', collection: 'notes', data: { id: 'second', text: 'Bye', stars: 3 } },
              { operation: 'update', collection: 'notes', data: { id: 'second', stars: 4 }, conditions: { stars: 3 } },
            ],
          },
        },
      },
      limitBytes: bodyLimits.documentsBytes,
    },
    responses: {
      200: {
        description: 'The results',
        schema: z.array(resultSchema).describe('One for each operation, in their order'),
        example: [exampleResult],
      },
      400: { description: 'Malformed or invalid', codes: ['INVALID_QUERY', 'LIMIT_EXCEEDED'] },
      404: { description: 'Atomic: no such document', codes: ['COLLECTION_NOT_FOUND', 'DOCUMENT_NOT_FOUND'] },
      409: {
        description: 'Atomic: there is such a document already, or a unique value is taken',
        codes: ['ALREADY_EXISTS', 'UNIQUE_VIOLATION', 'REQUEST_IN_PROGRESS'],
      },
      412: { description: 'Atomic: a document does not meet the conditions', codes: ['PRECONDITION_FAILED'] },
      413: { description: 'The body or a document is too large', codes: ['DOCUMENT_TOO_LARGE'] },
      422: {
        description: 'Atomic: a document violates the schema; or the Idempotency-Key was used for other content',
        codes: ['SCHEMA_VIOLATION', 'IDEMPOTENCY_KEY_REUSED'],
      },
    },
    handle: async ({ clients }, request) => {
      const { caller, body, call } = request;
      const { appId, appNumber } = caller;
      const ticketId = newTicket('c', BigInt(appNumber));
      const { results, replayed } = await clients.data.batch(
        {
          appId,
          appNumber,
          ticketId,
          body,
          idempotency: idempotency(request, body),
          isPaid: hasPermission(caller, 'Admin'),
          mayReadPrivate: hasPermission(caller, 'Read'),
        },
        call,
      );
      return jsonBytes(200, Buffer.from(`[${results.map(resultText).join(',')}]`), replayedHeader(replayed));
    },
  }),
];

/** The results as text: those that were stored, which are most, need no more than their ids quoted. */
function resultText({ operation, collection, error, ...stored }: OperationResult): string {
  if (error) return stringify(refusedResult(operation, collection, error));
  const { id, version, height, hash, created } = stored;
  const result = `{"id":${JSON.stringify(id)},"version":${version},"celestia_height":${height},"blob_id":"${hash}"}`;
  const status = created ? 201 : 200;
  return `{"success":true,"operation":"${operation}","collection":"${collection}","status":${status},"result":${result}}`;
}

function refusedResult(operation: string, collection: string, error: OperationError): z.input<typeof resultSchema> {
  const { status, code, message, details } = problemOf(toServiceError(error)) ?? internalProblem;
  return { success: false, operation, collection, status, error: message, code, details };
}

const toServiceError = ({ status, reason, message, detailsJson }: OperationError): ServiceError =>
  new ServiceError(status as StatusName, reason, message, {
    details: JSON.parse(detailsJson.toString()) as ErrorDetails,
  });
