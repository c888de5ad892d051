import { z } from 'zod';
import type { RelationIndex } from '@granary/shared/gen/granary/data/v1/RelationIndex';
import { created } from '../http/answer';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { exampleTicket, exampleTime, fieldPathSchema, nameSchema, timeSchema } from '../validation/schemas';

const relation = {
  parent_collection: nameSchema.describe('The collection that is referred to'),
  parent_field: fieldPathSchema.describe('The field that holds the value, often `id`'),
  child_collection: nameSchema.describe('The collection that refers to it; may be the same one'),
  child_field: fieldPathSchema.describe('The field that holds the reference'),
};
const example = {
  parent_collection: 'notes',
  parent_field: 'id',
  child_collection: 'notes',
  child_field: 'answers_id',
};

export const relationRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/relations',
    id: 'createRelation',
    summary: 'Index both fields of a relation',
    description:
      'For joins: a field gets an index of the type `hash` unless it is `id` or an index begins with it. ' +
      'Both collections must exist. The same relation again changes nothing.',
    tag: 'Indexes',
    auth: { kind: 'app', permission: 'Admin' },
    headers: idempotencyHeader,
    body: { kind: 'json', schema: z.object(relation), example, limitBytes: bodyLimits.definitionBytes },
    responses: {
      201: {
        description: 'Both fields are indexed, or are being indexed',
        schema: z.object({
          ...relation,
          created_at: timeSchema.describe('When this was answered for the first time'),
          indexes_created: z
            .object({
              parent_index: z.boolean().describe('Whether the parent field got an index'),
              child_index: z.boolean().describe('Whether the child field got an index'),
            })
            .describe('Which of the indexes are new'),
          ticket_ids: z
            .array(z.string())
            .describe('Tickets of the indexes that are being built; ask at `/api/tasks/{ticket_id}`'),
        }),
        example: {
          ...example,
          created_at: exampleTime,
          indexes_created: { parent_index: false, child_index: true },
          ticket_ids: [exampleTicket],
        },
      },
      400: { description: 'Malformed or invalid', codes: ['LIMIT_EXCEEDED'] },
      404: {
        description: 'A collection does not exist; the message names one that is near',
        codes: ['COLLECTION_NOT_FOUND'],
      },
    },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      const made = await clients.data.createRelation(
        {
          appId: path.app_id,
          parent: { collection: body.parent_collection, fieldName: body.parent_field },
          child: { collection: body.child_collection, fieldName: body.child_field },
          idempotency: idempotencyOfJson(request),
        },
        call,
      );
      const sides: RelationIndex[] = [made.parent!, made.child!];
      const answer = {
        ...body,
        created_at: made.createdAt,
        indexes_created: { parent_index: made.parent!.created, child_index: made.child!.created },
        ticket_ids: sides.map(({ ticketId }) => ticketId).filter((ticketId) => ticketId !== ''),
      };
      const where = `/api/apps/${path.app_id}/collections/${body.child_collection}/indexes`;
      return created(where, answer, replayedHeader(made.replayed === true));
    },
  }),
];
