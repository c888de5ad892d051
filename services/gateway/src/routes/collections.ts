import { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import type { Collection } from '@granary/shared/gen/granary/data/v1/Collection';
import type { CreateCollectionRequest } from '@granary/shared/gen/granary/data/v1/CreateCollectionRequest';
import type { SetRetentionRequest } from '@granary/shared/gen/granary/data/v1/SetRetentionRequest';
import type { UpdateCollectionRequest } from '@granary/shared/gen/granary/data/v1/UpdateCollectionRequest';
import { message } from '@granary/shared/grpc/types';
import { created, json, jsonBytes, jsonText } from '../answer';
import { flagParameter, limits, route } from '../route';
import { accessPolicy, accessPolicySchema, nameSchema, objectSchema, successSchema, timeSchema } from '../schemas';
import { memberText } from '../tree';

const definition = {
  namespace: z.string().max(200).nullish(),
  primary_column: z.string().max(200).nullish(),
  sort_column: z.string().max(200).nullish(),
  schema_definition: z
    .strictObject({ fields: objectSchema.nullish() })
    .nullish()
    .describe('fields: field → {type, index?, unique?, required?, default?, validation?}'),
  access_policy: accessPolicySchema.nullish(),
};

const collectionSchema = z
  .object({
    app_id: z.string(),
    name: z.string(),
    namespace: z.string().nullable(),
    primary_column: z.string().nullable(),
    sort_column: z.string().nullable(),
    schema_definition: objectSchema.nullable(),
    access_policy: accessPolicySchema,
    retention_days: z.int().nullable(),
    document_count: z.int(),
    size_bytes: z.int(),
    created_at: timeSchema,
    updated_at: timeSchema,
  })
  .meta({ id: 'Collection' });

function collectionJson(collection: Collection) {
  return {
    app_id: collection.appId,
    name: collection.name,
    namespace: collection.namespace ?? null,
    primary_column: collection.primaryColumn ?? null,
    sort_column: collection.sortColumn ?? null,
    schema_definition: jsonText(collection.schemaJson),
    access_policy: accessPolicy(collection.readAccess),
    retention_days: collection.retentionDays ?? null,
    document_count: Number(collection.documentCount),
    size_bytes: Number(collection.sizeBytes),
    created_at: collection.createdAt,
    updated_at: collection.updatedAt,
  };
}

const read = { kind: 'app', permission: 'Read' } as const;
const write = { kind: 'app', permission: 'Write' } as const;
const admin = { kind: 'app', permission: 'Admin' } as const;
const tag = 'Collections';
const path = '/apps/{app_id}/collections/{collection}';

export const collectionRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/collections',
    id: 'createCollection',
    summary: 'Create a collection',
    tag,
    auth: write,
    body: {
      kind: 'json',
      schema: z.strictObject({ name: nameSchema, ...definition }),
      example: { name: 'diary', access_policy: { read: 'private' } },
      limitBytes: limits.definitionBytes,
    },
    responses: {
      201: { description: 'The collection', schema: collectionSchema },
      409: { description: 'ALREADY_EXISTS' },
    },
    handle: async ({ clients }, { path, body, tree, call }) => {
      const collection = await clients.data.createCollection(
        message<CreateCollectionRequest>({
          appId: path.app_id,
          name: body.name,
          namespace: body.namespace ?? undefined,
          primaryColumn: body.primary_column ?? undefined,
          sortColumn: body.sort_column ?? undefined,
          schemaJson: memberText(tree, 'schema_definition'),
          readAccess: body.access_policy?.read ?? 'public',
        }),
        call,
      );
      return created(`/api/apps/${path.app_id}/collections/${collection.name}`, collectionJson(collection));
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/collections',
    id: 'listCollections',
    summary: 'List the collections of an application, as a bare array',
    tag,
    auth: read,
    responses: { 200: { description: 'The collections', schema: z.array(collectionSchema) } },
    handle: async ({ clients }, { path, call }) => {
      const { collections } = await clients.data.listCollections({ appId: path.app_id }, call);
      return json(200, collections.map(collectionJson));
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/api_collections',
    prefixes: ['', '/api'],
    id: 'listApiCollections',
    summary: 'List the collections of an application',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The collections',
        schema: z.object({ app_id: z.string(), collections: z.array(collectionSchema) }),
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const { collections } = await clients.data.listCollections({ appId: path.app_id }, call);
      return json(200, { app_id: path.app_id, collections: collections.map(collectionJson) });
    },
  }),
  route({
    method: 'GET',
    path,
    id: 'getCollection',
    summary: 'Read a collection',
    tag,
    auth: read,
    responses: { 200: { description: 'The collection', schema: collectionSchema } },
    handle: async ({ clients }, { path, call }) => {
      const request = { appId: path.app_id, collection: path.collection };
      return json(200, collectionJson(await clients.data.getCollection(request, call)));
    },
  }),
  route({
    method: 'PUT',
    path,
    id: 'updateCollection',
    summary: 'Change a collection; what is absent stays as it is',
    tag,
    auth: write,
    body: {
      kind: 'json',
      schema: z.strictObject({ name: nameSchema.nullish(), ...definition }),
      example: { access_policy: { read: 'private' } },
      limitBytes: limits.definitionBytes,
    },
    responses: { 200: { description: 'The collection', schema: collectionSchema } },
    handle: async ({ clients }, { path, body, tree, call }) => {
      if ((body.name ?? path.collection) !== path.collection) {
        throw invalid('A collection cannot be renamed', { name: ['must be the name in the path'] });
      }
      const updated = await clients.data.updateCollection(
        message<UpdateCollectionRequest>({
          appId: path.app_id,
          name: path.collection,
          namespace: body.namespace ?? undefined,
          primaryColumn: body.primary_column ?? undefined,
          sortColumn: body.sort_column ?? undefined,
          // Null takes the schema away, absence leaves it.
          schemaJson: body.schema_definition === undefined ? undefined : memberText(tree, 'schema_definition'),
          readAccess: body.access_policy?.read,
        }),
        call,
      );
      return json(200, collectionJson(updated));
    },
  }),
  route({
    method: 'DELETE',
    path,
    id: 'deleteCollection',
    summary: 'Delete a collection',
    description: '`force`: although it holds documents; `cascade`: with the views and queries that read it.',
    tag,
    auth: write,
    query: z.strictObject({ force: flagParameter.optional(), cascade: flagParameter.optional() }),
    body: {
      kind: 'json',
      optional: true,
      schema: z.strictObject({ force: z.boolean().nullish(), cascade: z.boolean().nullish() }),
      limitBytes: limits.smallBytes,
    },
    responses: {
      200: { description: 'It is gone', schema: successSchema },
      409: { description: 'It holds documents, or is read by views or queries' },
    },
    handle: async ({ clients }, { path, query, body, call }) => {
      const request = {
        appId: path.app_id,
        name: path.collection,
        force: body.force ?? query.force ?? false,
        cascade: body.cascade ?? query.cascade ?? false,
      };
      await clients.data.deleteCollection(request, call);
      return json(200, { success: true, message: `Collection ${path.collection} is deleted` });
    },
  }),
  route({
    method: 'GET',
    path: `${path}/stats`,
    id: 'getCollectionStats',
    summary: 'Count the documents and bytes of a collection',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The counts',
        schema: z.object({
          app_id: z.string(),
          collection: z.string(),
          document_count: z.int(),
          deleted_count: z.int(),
          version_count: z.int(),
          size_bytes: z.int(),
          index_count: z.int(),
          last_write_at: timeSchema.nullable(),
        }),
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const request = { appId: path.app_id, collection: path.collection };
      const stats = await clients.data.getCollectionStats(request, call);
      return json(200, {
        app_id: path.app_id,
        collection: path.collection,
        document_count: Number(stats.documentCount),
        deleted_count: Number(stats.deletedCount),
        version_count: Number(stats.versionCount),
        size_bytes: Number(stats.sizeBytes),
        index_count: stats.indexCount,
        last_write_at: stats.lastWriteAt ?? null,
      });
    },
  }),
  route({
    method: 'POST',
    path: `${path}/validate`,
    id: 'validateDocuments',
    summary: 'Check documents against the schema of a collection, without storing them',
    tag,
    auth: read,
    body: {
      kind: 'raw',
      contentTypes: ['application/json'],
      schema: z.strictObject({ data: z.union([objectSchema, z.array(objectSchema)]) }),
      example: { data: [{ id: 'first', text: 'Hello', stars: 5 }] },
      limitBytes: limits.documentsBytes,
    },
    responses: { 200: { description: 'What was found', schema: objectSchema } },
    handle: async ({ clients }, { path, body, call }) => {
      const request = { appId: path.app_id, collection: path.collection, body };
      const { json: result } = await clients.data.validateDocuments(request, call);
      return jsonBytes(200, result);
    },
  }),
  route({
    method: 'POST',
    path: `${path}/retention`,
    id: 'setRetention',
    summary: 'Set after how many days documents are purged; null keeps them for ever',
    tag,
    auth: admin,
    body: {
      kind: 'json',
      schema: z.strictObject({ retention_days: z.int().min(1).max(36_500).nullable() }),
      example: { retention_days: 30 },
      limitBytes: limits.smallBytes,
    },
    responses: { 200: { description: 'The collection', schema: collectionSchema } },
    handle: async ({ clients }, { path, body, call }) => {
      const updated = await clients.data.setRetention(
        message<SetRetentionRequest>({
          appId: path.app_id,
          collection: path.collection,
          retentionDays: body.retention_days ?? undefined,
        }),
        call,
      );
      return json(200, collectionJson(updated));
    },
  }),
];
