import { z } from 'zod';
import type { JobResponse } from '@granary/shared/gen/granary/data/v1/JobResponse';
import { newTicket } from '@granary/shared/ids';
import { accepted, json, type Answer } from '../http/answer';
import { mayPublish, requirePermission } from '../pipeline/access';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { priceConfigSchema, readPriceOf } from '../validation/index-prices';
import { memberBytes } from '../validation/json-members';
import { accessPolicySchema, exampleTicket, successSchema, ticketSchema } from '../validation/schemas';
import { changesSchema, ownPrice, refreshModes, variablesSchema, viewDefinition } from '../validation/view-definition';

const changeSchema = z
  .strictObject({
    query: viewDefinition.shape.query.optional(),
    source_collections: viewDefinition.shape.source_collections.optional(),
    refresh_mode: z.enum(refreshModes).optional().describe('`lazy` or `live`'),
    changes: changesSchema.optional(),
    variables: variablesSchema.optional(),
    access_policy: accessPolicySchema.optional(),
    read_price_config: priceConfigSchema.optional().describe(`${ownPrice.split('.')[0]}. \`{}\` removes it`),
  })
  .refine((body) => Object.keys(body).length > 0, 'names nothing to change')
  .meta({ minProperties: 1 });

/** The answers of a route that has a view built by a task, with the description of its 202. */
export const buildResponses = (description: string) =>
  ({
    202: {
      description,
      schema: ticketSchema.extend({ view_name: z.string().describe('Name of the view') }),
      example: {
        success: true,
        message: 'View by_stars is being built',
        view_name: 'by_stars',
        ticket_id: exampleTicket,
      },
    },
    400: { description: 'Malformed or invalid', codes: ['INVALID_QUERY', 'LIMIT_EXCEEDED'] },
    404: {
      description: 'A source collection does not exist; the message names one that is near',
      codes: ['COLLECTION_NOT_FOUND'],
    },
  }) as const;

/** The answer once a view is being built. */
export function buildAnswer({ name, ticketId, replayed }: JobResponse): Answer {
  const body = { success: true, message: `View ${name} is being built`, view_name: name, ticket_id: ticketId };
  return accepted(ticketId, body, replayedHeader(replayed === true));
}

export const changeViewRoute = route({
  method: 'PUT',
  path: '/apps/{app_id}/views/{view_name}',
  prefixes: ['', '/api'],
  id: 'changeView',
  summary: 'Change a view',
  description:
    'What the body does not name stays as it is. A task builds the view anew; its present rows are read until the new ' +
    'ones take their place, with the new definition, and stay where the task fails. A change during that time takes the ' +
    'place of the one before. Where only access, price or `changes` change, that is done at once. To show a private ' +
    'source in public, and to set a price, needs `Admin`.',
  tag: 'Views',
  auth: { kind: 'app', permission: 'Write' },
  headers: idempotencyHeader,
  body: {
    kind: 'json',
    schema: changeSchema,
    example: {
      query: { group_by: 'stars', aggregate: { notes: { $count: '*' }, last: { $max: 'created_at' } } },
    },
    limitBytes: bodyLimits.definitionBytes,
  },
  responses: {
    200: {
      description: 'Its access, its price or whether its changes are kept is changed',
      schema: successSchema,
      example: { success: true, message: 'View by_stars is changed' },
    },
    ...buildResponses('It is being built beside its present rows'),
  },
  handle: async ({ clients }, request) => {
    const { path, caller, body: view, jsonTree: tree, call } = request;
    if (view.read_price_config) requirePermission(caller, 'Admin');
    const job = await clients.data.changeView(
      {
        appId: path.app_id,
        name: path.view_name,
        queryJson: memberBytes(tree, 'query'),
        sourceCollections: view.source_collections ?? [],
        refreshMode: view.refresh_mode ?? '',
        variablesJson: memberBytes(tree, 'variables'),
        readAccess: view.access_policy?.read ?? '',
        ticketId: newTicket('j', BigInt(caller.appNumber)),
        mayPublish: mayPublish(caller),
        ...(view.changes !== undefined && { keepsChanges: view.changes }),
        ...readPriceOf(view),
        idempotency: idempotencyOfJson(request),
      },
      call,
    );
    if (job.ticketId !== '') return buildAnswer(job);
    const body = { success: true, message: `View ${job.name} is changed` };
    return json(200, body, replayedHeader(job.replayed === true));
  },
});
