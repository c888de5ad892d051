import { z } from 'zod';
import type { CreateCollectionRequest } from '@granary/shared/gen/granary/data/v1/CreateCollectionRequest';
import type { SetRetentionRequest } from '@granary/shared/gen/granary/data/v1/SetRetentionRequest';
import { message } from '@granary/shared/rpc/types';
import { created, json, jsonBytes } from '../http/answer';
import {
  collectionDefinition,
  collectionJson,
  collectionSchema,
  collectionStatsJson,
  collectionStatsSchema,
  describedCollectionJson,
  exampleCollection,
  exampleCollectionStats,
  includeStats,
} from '../validation/collection';
import { readPriceOf } from '../validation/index-prices';
import { requirePermission } from '../pipeline/access';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listed, listing, listingHeaders, listingQuery, nextCursorSchema } from '../pipeline/listing';
import { bodyLimits, route } from '../pipeline/route';
import { flagParameter } from '../validation/parameters';
import { nameSchema, objectSchema, successSchema } from '../validation/schemas';
import { memberText } from '../validation/json-members';
import { updateCollectionRoute } from './collection-change';

const forceText = 'Delete it although it holds documents';
const cascadeText = 'Delete the views and queries that read it too';

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
    description: 'With a schema, indexes that it asks for, and who may read it. A write also creates a collection.',
    tag,
    auth: write,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: z.strictObject({ name: nameSchema, ...collectionDefinition }),
      example: { name: 'diary', access_policy: { read: 'private' } },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      201: { description: 'The collection', schema: collectionSchema },
      400: { description: 'Malformed or invalid', codes: ['LIMIT_EXCEEDED'] },
      409: { description: 'A collection or view has the name', codes: ['ALREADY_EXISTS'] },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, body, jsonTree: tree, call } = request;
      if (body.read_price_config || body.write_pricing) requirePermission(caller, 'Admin');
      const collection = await clients.data.createCollection(
        message<CreateCollectionRequest>({
          appId: path.app_id,
          name: body.name,
          namespace: body.namespace ?? undefined,
          primaryColumn: body.primary_column ?? undefined,
          sortColumn: body.sort_column ?? undefined,
          schemaJson: memberText(tree, 'schema_definition'),
          // Empty: the value of DEFAULT_READ.
          readAccess: body.access_policy?.read ?? '',
          ...readPriceOf(body),
          writePricing: body.write_pricing === 'on',
          idempotency: idempotencyOfJson(request),
        }),
        call,
      );
      const headers = replayedHeader(collection.replayed === true);
      return created(`/api/apps/${path.app_id}/collections/${collection.name}`, collectionJson(collection), headers);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/collections',
    id: 'listCollections',
    summary: 'List the collections of an application, as a bare array',
    description: 'In the order of their names.',
    tag,
    auth: read,
    query: listingQuery.extend(includeStats),
    responses: {
      200: { description: 'The collections', schema: z.array(collectionSchema), headers: listingHeaders },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const page = await clients.data.listCollections({ appId: path.app_id, ...listing(query) }, call);
      const collections = page.collections.map((collection) => describedCollectionJson(collection, query));
      return listed(request, collections, page.nextCursor);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/api_collections',
    prefixes: ['', '/api'],
    id: 'listApiCollections',
    summary: 'List the collections of an application',
    description: 'The same in an object.',
    tag,
    auth: read,
    query: listingQuery,
    responses: {
      200: {
        description: 'The collections',
        schema: z.object({
          app_id: z.string().describe('The application'),
          collections: z.array(collectionSchema).describe('In the order of their names'),
          next_cursor: nextCursorSchema,
        }),
        headers: listingHeaders,
        example: { app_id: 'demo', collections: [exampleCollection] },
      },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const page = await clients.data.listCollections({ appId: path.app_id, ...listing(query) }, call);
      const collections = page.collections.map(collectionJson);
      const body = { app_id: path.app_id, collections, next_cursor: page.nextCursor || undefined };
      return listed(request, body, page.nextCursor);
    },
  }),
  route({
    method: 'GET',
    path,
    id: 'getCollection',
    summary: 'Read a collection',
    description: 'Its definition and its size.',
    tag,
    auth: read,
    query: z.object(includeStats),
    responses: { 200: { description: 'The collection', schema: collectionSchema } },
    handle: async ({ clients }, { path, query, call }) => {
      const request = { appId: path.app_id, collection: path.collection };
      return json(200, describedCollectionJson(await clients.data.getCollection(request, call), query));
    },
  }),
  updateCollectionRoute,
  route({
    method: 'DELETE',
    path,
    id: 'deleteCollection',
    summary: 'Delete a collection',
    description: 'Its documents, history, blobs and indexes go with it. Both flags may come in the body or the URL.',
    pathExamples: { collection: 'diary' },
    tag,
    auth: write,
    headers: idempotencyHeader,
    query: z.strictObject({
      force: flagParameter.optional().describe(forceText),
      cascade: flagParameter.optional().describe(cascadeText),
    }),
    body: {
      kind: 'json',
      optional: true,
      schema: z.strictObject({
        force: z.boolean().nullish().describe(forceText),
        cascade: z.boolean().nullish().describe(cascadeText),
      }),
      limitBytes: bodyLimits.smallBytes,
    },
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'Collection diary is deleted' },
      },
      409: {
        description: 'It holds documents, or is read by views or queries',
        codes: ['COLLECTION_NOT_EMPTY', 'COLLECTION_IN_USE'],
      },
    },
    handle: async ({ clients }, request) => {
      const { path, query, body, call } = request;
      const rpcRequest = {
        appId: path.app_id,
        name: path.collection,
        force: body.force ?? query.force ?? false,
        cascade: body.cascade ?? query.cascade ?? false,
        idempotency: idempotencyOfJson(request),
      };
      const deleted = await clients.data.deleteCollection(rpcRequest, call);
      return json(
        200,
        { success: true, message: `Collection ${path.collection} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
  route({
    method: 'GET',
    path: `${path}/stats`,
    id: 'getCollectionStats',
    summary: 'Count the documents and bytes of a collection',
    description: 'From counters that every commit keeps current.',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The counts',
        schema: collectionStatsSchema,
        example: exampleCollectionStats,
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const request = { appId: path.app_id, collection: path.collection };
      const stats = await clients.data.getCollectionStats(request, call);
      return json(200, { app_id: path.app_id, ...collectionStatsJson(stats) });
    },
  }),
  route({
    method: 'POST',
    path: `${path}/validate`,
    id: 'validateDocuments',
    summary: 'Check documents against the schema of a collection',
    description: 'Without storing them. Unique values are not checked.',
    tag,
    auth: read,
    body: {
      kind: 'raw',
      content: {
        'application/json': {
          schema: z.strictObject({
            data: z
              .union([objectSchema, z.array(objectSchema).min(1).max(10_000)])
              .describe('A document, or a list of documents'),
          }),
          example: { data: [{ id: 'first', text: 'Hello', stars: 5 }] },
        },
      },
      limitBytes: bodyLimits.documentsBytes,
    },
    responses: {
      200: {
        description: 'Whether they would be stored',
        schema: z.object({
          valid: z.boolean().describe('Whether all of them are valid'),
          document_count: z.int().optional().describe('How many there are, where all are valid'),
          errors: z.array(z.string()).describe('What is wrong, a sentence each'),
          details: objectSchema.describe('The same as messages by path, such as `data[3].address.city`'),
        }),
        example: { valid: true, document_count: 1, errors: [], details: {} },
      },
      413: { description: 'The body or a document is too large', codes: ['DOCUMENT_TOO_LARGE'] },
    },
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
    summary: 'Set how long documents are kept',
    description: 'Documents not written for so many days are purged, with their history and blobs.',
    tag,
    auth: admin,
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: z.strictObject({
        retention_days: z.int().min(1).max(36_500).nullable().describe('null, the default, keeps them for ever'),
      }),
      example: { retention_days: 30 },
      limitBytes: bodyLimits.smallBytes,
    },
    responses: { 200: { description: 'The collection', schema: collectionSchema } },
    handle: async ({ clients }, request) => {
      const { path, body, call } = request;
      const updated = await clients.data.setRetention(
        message<SetRetentionRequest>({
          appId: path.app_id,
          collection: path.collection,
          retentionDays: body.retention_days ?? undefined,
          idempotency: idempotencyOfJson(request),
        }),
        call,
      );
      return json(200, collectionJson(updated), replayedHeader(updated.replayed === true));
    },
  }),
];
