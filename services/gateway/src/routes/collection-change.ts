import { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import type { UpdateCollectionRequest } from '@granary/shared/gen/granary/data/v1/UpdateCollectionRequest';
import { message } from '@granary/shared/rpc/types';
import { json } from '../http/answer';
import { mayPublish, requirePermission } from '../pipeline/access';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route } from '../pipeline/route';
import { collectionDefinition, collectionJson, collectionSchema, exampleCollection } from '../validation/collection';
import { readPriceOf } from '../validation/index-prices';
import { memberText } from '../validation/json-members';
import { publishedAs } from '../validation/published-as';
import { nameSchema, unfitDocumentsJson, unfitDocumentsSchema } from '../validation/schemas';

const collectionChange = {
  ...collectionDefinition,
  force: z.boolean().nullish().describe('Change the types of fields although stored documents do not have them'),
};

export const updateCollectionRoute = route({
  method: 'PUT',
  path: '/apps/{app_id}/collections/{collection}',
  id: 'updateCollection',
  summary: 'Change a collection',
  description:
    'What is absent or null stays as it is, but a `schema_definition` of null removes the schema. ' +
    'Making a private collection public needs `Admin`. Where a field gets another type than stored documents have, ' +
    'nothing is changed, unless `force` is true.',
  pathExamples: { collection: 'diary' },
  tag: 'Collections',
  auth: { kind: 'app', permission: 'Write' },
  headers: idempotencyHeader,
  body: {
    kind: 'json',
    // The name in the path is accepted in the body too, for clients that send the whole collection.
    schema: publishedAs(
      z.strictObject({ name: nameSchema.nullish(), ...collectionChange }),
      z.strictObject(collectionChange),
    ),
    example: { access_policy: { read: 'private' } },
    limitBytes: bodyLimits.definitionBytes,
  },
  responses: {
    200: {
      description: 'The collection',
      schema: collectionSchema.extend({ unfit_documents: unfitDocumentsSchema }),
      example: exampleCollection,
    },
    409: {
      description: 'Documents do not have the type that a field would get, or the schema wants an index that cannot be',
      codes: ['DOCUMENTS_DO_NOT_FIT', 'UNIQUE_VIOLATION', 'ALREADY_EXISTS', 'ENCRYPTION_CONFLICT'],
    },
  },
  handle: async ({ clients }, request) => {
    const { path, caller, body, jsonTree: tree, call } = request;
    if ((body.name ?? path.collection) !== path.collection) {
      throw invalid('A collection cannot be renamed', { name: ['must be the name in the path'] });
    }
    if (body.read_price_config || body.write_pricing) requirePermission(caller, 'Admin');
    const updated = await clients.data.updateCollection(
      message<UpdateCollectionRequest>({
        appId: path.app_id,
        name: path.collection,
        namespace: body.namespace ?? undefined,
        primaryColumn: body.primary_column ?? undefined,
        sortColumn: body.sort_column ?? undefined,
        // Null removes the schema, absence keeps it.
        schemaJson: body.schema_definition === undefined ? undefined : memberText(tree, 'schema_definition'),
        readAccess: body.access_policy?.read,
        mayPublish: mayPublish(caller),
        ...readPriceOf(body),
        writePricing: body.write_pricing == null ? undefined : body.write_pricing === 'on',
        force: body.force ?? false,
        idempotency: idempotencyOfJson(request),
      }),
      call,
    );
    const changed = { ...collectionJson(updated), ...unfitDocumentsJson(updated) };
    return json(200, changed, replayedHeader(updated.replayed === true));
  },
});
