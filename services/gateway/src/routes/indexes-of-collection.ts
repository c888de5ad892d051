import { z } from 'zod';
import { newTicket } from '@granary/shared/ids';
import { idempotencyHeader, idempotencyOfJson } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { fieldPathSchema } from '../validation/schemas';
import { indexAnswer, indexAnswers } from './index-answer';

/** Other members, which tune another database, are ignored. */
const definitionSchema = z.object({
  field_name: fieldPathSchema.describe('Dotted for a nested field'),
  index_config: z
    .object({ index_type: z.enum(['Primary', 'Secondary']).describe('`Primary` is a unique index') })
    .nullish()
    .describe('By default `Secondary`'),
});

export const indexOfCollectionRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/collections/{collection}/indexes',
    id: 'createIndexOfCollection',
    summary: 'Create an index of a field; a unique one for the type Primary',
    description: 'What the query builder of `@onchaindb/sdk` calls; createIndex makes indexes of all kinds.',
    tag: 'Indexes',
    auth: { kind: 'app', permission: 'Admin' },
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: definitionSchema,
      example: { field_name: 'stars', index_config: { index_type: 'Secondary' } },
      limitBytes: bodyLimits.smallBytes,
    },
    responses: {
      ...indexAnswers,
      400: { description: 'Malformed or invalid', codes: ['LIMIT_EXCEEDED'] },
      409: {
        description: 'Documents have equal values, or the field has such an index of another kind',
        codes: ['ALREADY_EXISTS', 'UNIQUE_VIOLATION'],
      },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, body, call } = request;
      const name = `${path.collection}_${body.field_name}_idx`;
      const made = await clients.data.createIndex(
        {
          appId: path.app_id,
          appNumber: caller.appNumber,
          name,
          collection: path.collection,
          fieldName: body.field_name,
          fields: [],
          indexType: 'btree',
          unique: body.index_config?.index_type === 'Primary',
          ticketId: newTicket('j', BigInt(caller.appNumber)),
          idempotency: idempotencyOfJson(request),
        },
        call,
      );
      return indexAnswer(path.app_id, made);
    },
  }),
];
