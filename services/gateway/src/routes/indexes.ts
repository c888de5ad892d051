import { z } from 'zod';
import { invalid, notImplemented } from '@granary/shared/errors';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import { newTicket } from '@granary/shared/ids';
import { accepted, created, json, jsonText } from '../answer';
import { limits, route } from '../route';
import { indexNameSchema, nameSchema, objectSchema, successSchema, ticketSchema, timeSchema } from '../schemas';

const indexTypes = [
  ...['btree', 'hash', 'fulltext', 'composite', 'price', 'encrypted'],
  ...['string', 'number', 'boolean', 'date'],
] as const;

const fieldSchema = z.string().min(1).max(500);

const createSchema = z.strictObject({
  name: indexNameSchema,
  collection: nameSchema,
  field_name: fieldSchema.nullish().describe('Dotted for a nested field; needed unless there are `fields`'),
  index_type: z
    .string()
    // For the document, which would say `string` only: it describes what comes in.
    .meta({ enum: [...indexTypes] })
    .transform((text) => text.toLowerCase())
    .pipe(z.enum(indexTypes))
    .describe('Case-insensitive'),
  fields: z
    .array(fieldSchema)
    .min(1)
    .max(16)
    .nullish()
    .describe('The 2 to 4 different fields of a composite index, in its order'),
  store_values: z.boolean().nullish(),
  unique_constraint: z.boolean().nullish(),
  sort_enabled: z.boolean().nullish(),
  options: z.strictObject({ unique: z.boolean().nullish() }).nullish(),
  read_price_config: objectSchema.nullish(),
  price_config: objectSchema.nullish(),
});

const indexSchema = z
  .object({
    name: z.string(),
    collection: z.string(),
    field_name: z.string(),
    fields: z.array(z.string()).optional().describe('Of a composite index, in its order'),
    index_type: z.enum(indexTypes),
    unique: z.boolean(),
    status: z.enum(['building', 'ready', 'failed']),
    error: z.string().nullable(),
    size_bytes: z.int(),
    entry_count: z.int(),
    created_at: timeSchema,
  })
  .meta({ id: 'Index' });

function indexJson(index: Index) {
  return {
    name: index.name,
    collection: index.collection,
    field_name: index.fieldName,
    ...(index.fields.length > 0 ? { fields: index.fields } : {}),
    index_type: index.indexType,
    unique: index.unique,
    status: index.status,
    error: index.error ?? null,
    size_bytes: Number(index.sizeBytes),
    entry_count: Number(index.entryCount),
    created_at: index.createdAt,
  };
}

const read = { kind: 'app', permission: 'Read' } as const;
const admin = { kind: 'app', permission: 'Admin' } as const;
const tag = 'Indexes';
const collectionPath = '/apps/{app_id}/collections/{collection}/indexes';
const indexPath = `${collectionPath}/{index_name}` as const;

export const indexRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/indexes',
    id: 'createIndex',
    summary: 'Create an index',
    description: 'The collection is created where it is missing. The same definition again answers 200.',
    tag,
    auth: admin,
    body: {
      kind: 'json',
      schema: createSchema,
      example: { name: 'by_stars', collection: 'notes', field_name: 'stars', index_type: 'number' },
      limitBytes: limits.definitionBytes,
    },
    responses: {
      200: { description: 'It was there already', schema: indexSchema.extend({ updated: z.literal(true) }) },
      201: { description: 'The index, ready', schema: indexSchema },
      202: { description: 'It is being built', schema: indexSchema.extend({ ticket_id: z.string() }) },
      409: { description: 'The name is taken by another definition, or documents violate the uniqueness' },
      501: { description: 'A type that is not implemented yet' },
    },
    handle: async ({ clients }, { path, caller, body, call }) => {
      if (!body.field_name && !body.fields) throw invalid('The body is not valid', { field_name: ['is required'] });
      if (body.read_price_config || body.price_config) throw notImplemented('pricing');
      const made = await clients.data.createIndex(
        {
          appId: path.app_id,
          appNumber: caller.appNumber,
          name: body.name,
          collection: body.collection,
          fieldName: body.field_name ?? '',
          fields: body.fields ?? [],
          indexType: body.index_type,
          unique: body.unique_constraint === true || body.options?.unique === true,
          ticketId: newTicket('j', BigInt(caller.appNumber)),
        },
        call,
      );
      const index = indexJson(made.index!);
      if (made.updated) return json(200, { ...index, updated: true });
      if (made.ticketId) return accepted(made.ticketId, { ...index, ticket_id: made.ticketId });
      const collectionPath = `/api/apps/${path.app_id}/collections/${index.collection}`;
      return created(`${collectionPath}/indexes/${encodeURIComponent(index.name)}`, index);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/indexes',
    id: 'listIndexes',
    summary: 'List the indexes of an application, as a bare array',
    tag,
    auth: read,
    responses: { 200: { description: 'The indexes', schema: z.array(indexSchema) } },
    handle: async ({ clients }, { path, call }) => {
      const { indexes } = await clients.data.listIndexes({ appId: path.app_id, collection: '' }, call);
      return json(200, indexes.map(indexJson));
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/indexes/encrypted-quote',
    id: 'quoteEncryptedIndex',
    summary: 'Ask the price of an encrypted index',
    tag,
    auth: read,
    responses: {
      200: { description: 'An x402 quote', schema: objectSchema },
      501: { description: 'Not implemented yet' },
    },
    handle: async ({ clients }, { path, call }) =>
      json(200, jsonText((await clients.payments.quoteEncryptedIndex({ appId: path.app_id }, call)).quoteJson)),
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/indexes/{index_name}',
    id: 'deleteIndexOfApplication',
    summary: 'Delete an index by <collection>_<field>_index',
    tag,
    auth: admin,
    responses: { 200: { description: 'It is gone', schema: successSchema } },
    handle: async ({ clients }, { path, call }) => {
      await clients.data.deleteIndex({ appId: path.app_id, collection: '', name: path.index_name, ticketId: '' }, call);
      return json(200, { success: true, message: `Index ${path.index_name} is deleted` });
    },
  }),
  route({
    method: 'GET',
    path: collectionPath,
    id: 'listIndexesOfCollection',
    summary: 'List the indexes of a collection, as a bare array',
    tag,
    auth: read,
    responses: { 200: { description: 'The indexes', schema: z.array(indexSchema) } },
    handle: async ({ clients }, { path, call }) => {
      const request = { appId: path.app_id, collection: path.collection };
      const { indexes } = await clients.data.listIndexes(request, call);
      return json(200, indexes.map(indexJson));
    },
  }),
  route({
    method: 'GET',
    path: indexPath,
    id: 'getIndex',
    summary: 'Read an index',
    tag,
    auth: read,
    responses: { 200: { description: 'The index', schema: indexSchema } },
    handle: async ({ clients }, { path, call }) =>
      json(200, indexJson(await clients.data.getIndex(indexRequest(path), call))),
  }),
  route({
    method: 'DELETE',
    path: indexPath,
    id: 'deleteIndex',
    summary: 'Delete an index; a build under way is cancelled',
    tag,
    auth: admin,
    responses: { 200: { description: 'It is gone', schema: successSchema } },
    handle: async ({ clients }, { path, call }) => {
      await clients.data.deleteIndex(indexRequest(path), call);
      return json(200, { success: true, message: `Index ${path.index_name} is deleted` });
    },
  }),
  route({
    method: 'GET',
    path: `${indexPath}/status`,
    id: 'getIndexStatus',
    summary: 'Read how far an index is',
    tag,
    auth: read,
    responses: {
      200: { description: 'The state', schema: indexSchema.pick({ name: true, status: true, error: true }) },
    },
    handle: async ({ clients }, { path, call }) => {
      const { name, status, error } = indexJson(await clients.data.getIndex(indexRequest(path), call));
      return json(200, { name, status, error });
    },
  }),
  route({
    method: 'GET',
    path: `${indexPath}/statistics`,
    id: 'getIndexStatistics',
    summary: 'Read how large an index is',
    tag,
    auth: read,
    responses: {
      200: { description: 'Its size', schema: indexSchema.pick({ name: true, size_bytes: true, entry_count: true }) },
    },
    handle: async ({ clients }, { path, call }) => {
      const index = indexJson(await clients.data.getIndex(indexRequest(path), call));
      return json(200, { name: index.name, size_bytes: index.size_bytes, entry_count: index.entry_count });
    },
  }),
  route({
    method: 'POST',
    path: `${indexPath}/rebuild`,
    id: 'rebuildIndex',
    summary: 'Build an index again',
    tag,
    auth: admin,
    responses: { 202: { description: 'It is being built', schema: ticketSchema } },
    handle: async ({ clients }, { path, caller, call }) => {
      const request = { ...indexRequest(path), ticketId: newTicket('j', BigInt(caller.appNumber)) };
      const job = await clients.data.rebuildIndex(request, call);
      const message = `Index ${path.index_name} is being rebuilt`;
      return accepted(job.ticketId, { success: true, message, ticket_id: job.ticketId });
    },
  }),
];

function indexRequest(path: { app_id: string; collection: string; index_name: string }) {
  return { appId: path.app_id, collection: path.collection, name: path.index_name, ticketId: '' };
}
