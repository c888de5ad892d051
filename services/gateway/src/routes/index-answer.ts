import { z } from 'zod';
import type { CreateIndexResponse } from '@granary/shared/gen/granary/data/v1/CreateIndexResponse';
import { accepted, created, json, type Answer } from '../http/answer';
import { replayedHeader } from '../pipeline/idempotency';
import { exampleIndex, indexJson, indexSchema } from '../validation/index-definition';
import {
  createdCollectionSchema,
  createdJson,
  exampleTicket,
  ticketField,
  unfitDocumentsJson,
  unfitDocumentsSchema,
} from '../validation/schemas';

/** The answers of both routes that create an index. */
export const indexAnswers = {
  200: {
    description: 'There is one with the same definition already; it has the prices that were given',
    schema: indexSchema.extend({ updated: z.literal(true).describe('Always true') }),
    example: { ...exampleIndex, updated: true },
  },
  201: {
    description: 'The index, ready',
    schema: indexSchema.extend({
      created_collection: createdCollectionSchema,
      warnings: z
        .array(z.string())
        .optional()
        .describe('Where the request made a collection: a collection of nearly the same name, which may be meant'),
      unfit_documents: unfitDocumentsSchema,
    }),
    example: exampleIndex,
  },
  202: {
    description: 'It is being built',
    schema: indexSchema.extend({ ticket_id: ticketField, unfit_documents: unfitDocumentsSchema }),
    example: { ...exampleIndex, status: 'building', ticket_id: exampleTicket },
  },
} as const;

/** The answer to the creation of an index. */
export function indexAnswer(appId: string, made: CreateIndexResponse): Answer {
  const { createdCollection, warnings } = made;
  const index = {
    ...indexJson(made.index!),
    ...(createdCollection && { created_collection: createdJson(createdCollection) }),
    ...(warnings.length > 0 && { warnings }),
    ...unfitDocumentsJson(made),
  };
  const headers = replayedHeader(made.replayed === true);
  if (made.updated) return json(200, { ...index, updated: true }, headers);
  if (made.ticketId) return accepted(made.ticketId, { ...index, ticket_id: made.ticketId }, headers);
  const location = `/api/apps/${appId}/collections/${index.collection}/indexes/${encodeURIComponent(index.name)}`;
  return created(location, index, headers);
}
