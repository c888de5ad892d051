import { z } from 'zod';
import type { Application } from '@granary/shared/gen/granary/data/v1/Application';
import type { CreateApplicationRequest } from '@granary/shared/gen/granary/data/v1/CreateApplicationRequest';
import type { UpdateApplicationRequest } from '@granary/shared/gen/granary/data/v1/UpdateApplicationRequest';
import { message } from '@granary/shared/rpc/types';
import { toText } from '@granary/shared/json/value';
import { json } from '../http/answer';
import { idempotency, idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listingHeaders, nextLink } from '../pipeline/listing';
import { canonicalPathOf, bodyLimits, route } from '../pipeline/route';
import { pageQuery } from '../validation/parameters';
import { appIdSchema, exampleTime, successSchema, timeSchema } from '../validation/schemas';

const publicSchema = z.object({
  app_id: z.string().describe('Id of the application'),
  name: z.string().describe('Name for people'),
  description: z.string().describe('For people'),
  created_at: timeSchema.describe('When it was made'),
});
const exampleApplication = {
  app_id: 'demo',
  name: 'Demo',
  description: '',
  created_at: exampleTime,
  owner_address: null,
  updated_at: exampleTime,
  height: 0,
  payment_networks: null,
};
const applicationSchema = publicSchema
  .extend({
    owner_address: z.string().nullable().describe('Wallet of the owner'),
    updated_at: timeSchema.describe('When it last changed'),
    height: z.int().describe('Height of the last commit'),
    payment_networks: z
      .array(z.string())
      .nullable()
      .describe('On which x402 payments are taken, by CAIP-2 names; null: on all that the operator offers'),
  })
  .meta({ id: 'Application', examples: [exampleApplication] });

function publicPart(application: Application) {
  const { appId, name, description, createdAt } = application;
  return { app_id: appId, name, description, created_at: createdAt };
}

function wholeApplication(application: Application) {
  return {
    ...publicPart(application),
    owner_address: application.ownerAddress ?? null,
    updated_at: application.updatedAt,
    height: Number(application.height),
    payment_networks: application.paymentNetworks?.length ? application.paymentNetworks : null,
  };
}

const createSchema = z.strictObject({
  app_id: appIdSchema
    .nullish()
    .describe('1 to 63 letters, digits, `_` or `-`; one is made where it is missing. An id is never used again'),
  name: z.string().min(1).max(200).describe('Name for people'),
  description: z.string().max(10_000).nullish().describe('For people'),
  owner_address: z.string().min(1).max(128).nullish().describe('Wallet of the owner: a bech32 address'),
});

const updateSchema = z.strictObject({
  payment_networks: z
    .array(z.string().min(1).max(128))
    .min(1)
    .max(8)
    .nullable()
    .describe('Of those that the operator offers, by the names of either version of x402; null: all of them'),
});

export const applicationRoutes = [
  route({
    method: 'POST',
    path: '/applications',
    id: 'createApplication',
    summary: 'Make an application, with its first key',
    description: 'The key has `Admin`, `Read` and `Write`.',
    tag: 'Applications',
    auth: { kind: 'operator' },
    headers: idempotencyHeader,
    body: { kind: 'json', schema: createSchema, example: { name: 'Library' }, limitBytes: bodyLimits.smallBytes },
    responses: {
      201: {
        description: 'The application and its key, which is shown this once',
        schema: applicationSchema.extend({
          app_key: z.string().nullable().describe('The secret; null in an answer repeated by `Idempotency-Key`'),
          key_id: z.string().describe('Id of the key'),
          permissions: z.array(z.string()).describe('What the key may do'),
        }),
        example: {
          ...exampleApplication,
          app_key: 'app_…x9Qe',
          key_id: 'k_4q8Zt1',
          permissions: ['Read', 'Write', 'Admin'],
        },
      },
      409: { description: 'The id is or was in use', codes: ['ALREADY_EXISTS'] },
      422: { description: 'The Idempotency-Key was used for another one', codes: ['IDEMPOTENCY_KEY_REUSED'] },
    },
    handle: async ({ clients, apps }, request) => {
      const { body, jsonTree: tree, call } = request;
      const created = await clients.data.createApplication(
        message<CreateApplicationRequest>({
          appId: body.app_id ?? undefined,
          name: body.name,
          description: body.description ?? '',
          ownerAddress: body.owner_address ?? undefined,
          idempotency: idempotency(request, Buffer.from(toText(tree))),
        }),
        call,
      );
      const { key, secret } = created.key!;
      const application = wholeApplication(created.application!);
      apps.add(application.app_id);
      const headers = {
        Location: `/api/applications/${application.app_id}`,
        ...replayedHeader(created.replayed === true),
      };
      const issued = { app_key: secret || null, key_id: key!.keyId, permissions: key!.permissions };
      return { ...json(201, { ...application, ...issued }, headers), isSecret: true };
    },
  }),
  route({
    method: 'GET',
    path: '/applications',
    id: 'listApplications',
    summary: 'List the applications',
    description: 'In pages of at most 1,000 and 1 MiB; the header `Link` names the next one.',
    tag: 'Applications',
    auth: { kind: 'operator' },
    query: pageQuery,
    responses: {
      200: {
        description: 'A page of applications',
        schema: z.object({
          applications: z.array(applicationSchema).describe('The applications of the page'),
          total: z.int().describe('How many there are on all pages'),
          limit: z.int().describe('The limit that was applied'),
          offset: z.int().describe('The offset that was applied'),
        }),
        headers: listingHeaders,
        example: { applications: [exampleApplication], total: 1, limit: 100, offset: 0 },
      },
    },
    handle: async ({ clients }, request) => {
      const { query, call } = request;
      const { applications, total } = await clients.data.listApplications(query, call);
      const body = { applications: applications.map(wholeApplication), total: Number(total), ...query };
      const next = query.offset + applications.length;
      const hasMore = applications.length > 0 && next < Number(total);
      return json(200, body, hasMore ? nextLink(canonicalPathOf(request), { limit: query.limit, offset: next }) : {});
    },
  }),
  route({
    method: 'GET',
    path: '/applications/{app_id}',
    id: 'getApplication',
    summary: 'Read an application',
    description: 'Without a key: id, name, description and time. With a key of the application: all of it.',
    tag: 'Applications',
    auth: { kind: 'reader' },
    responses: {
      200: {
        description: 'The application',
        schema: z.union([applicationSchema, publicSchema]),
        example: exampleApplication,
      },
    },
    handle: async ({ clients }, { path, caller, call }) => {
      const application = await clients.data.getApplication({ appId: path.app_id }, call);
      const isOwn = caller.kind === 'operator' || (caller.kind === 'app' && caller.appId === path.app_id);
      return json(200, isOwn ? wholeApplication(application) : publicPart(application));
    },
  }),
  route({
    method: 'PATCH',
    path: '/applications/{app_id}',
    id: 'updateApplication',
    summary: 'Choose the networks on which an application is paid',
    description:
      'Its answers 402 offer x402 payments on these networks only, in the order of the operator. Quotes that were made before ' +
      'are paid where they say. See docs/money/prices.md.',
    tag: 'Applications',
    auth: { kind: 'app', permission: 'Admin' },
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: updateSchema,
      example: { payment_networks: null },
      limitBytes: bodyLimits.smallBytes,
    },
    responses: {
      200: { description: 'The application', schema: applicationSchema, example: exampleApplication },
      400: { description: 'A network is not offered: `details.offered_networks` lists those that are' },
      422: { description: 'The Idempotency-Key was used for another change', codes: ['IDEMPOTENCY_KEY_REUSED'] },
    },
    handle: async ({ clients, paymentNetworks: networks }, request) => {
      const { path, body, jsonTree: tree, call } = request;
      const { payment_networks: names } = body;
      const updated = await clients.data.updateApplication(
        message<UpdateApplicationRequest>({
          appId: path.app_id,
          paymentNetworks: names === null ? [] : await networks.parse(names, call),
          idempotency: idempotency(request, Buffer.from(toText(tree))),
        }),
        call,
      );
      networks.forget(path.app_id);
      return json(200, wholeApplication(updated.application!), replayedHeader(updated.replayed === true));
    },
  }),
  route({
    method: 'DELETE',
    path: '/applications/{app_id}',
    id: 'deleteApplication',
    summary: 'Delete an application with everything in it',
    description: 'Its id is never used again.',
    tag: 'Applications',
    auth: { kind: 'operator' },
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'Application demo is deleted' },
      },
    },
    handle: async ({ clients, apps }, request) => {
      const { path, call } = request;
      const rpcRequest = { appId: path.app_id, idempotency: idempotencyOfJson(request) };
      const deleted = await clients.data.deleteApplication(rpcRequest, call);
      apps.delete(path.app_id);
      return json(
        200,
        { success: true, message: `Application ${path.app_id} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/stats',
    id: 'getApplicationStats',
    summary: 'Sums over the collections of an application',
    description: 'From counters that every commit keeps current.',
    tag: 'Applications',
    auth: { kind: 'app', permission: 'Read' },
    responses: {
      200: {
        description: 'The sums',
        schema: z.object({
          app_id: z.string().describe('The application'),
          collection_count: z.int().describe('Collections'),
          document_count: z.int().describe('Documents, soft-deleted ones not among them'),
          size_bytes: z.int().describe('Bytes of all versions of the documents'),
          height: z.int().describe('Height of the last commit'),
          total_collections: z.int().describe('The same as `collection_count`'),
          total_indexes: z.int().describe('Indexes of all collections'),
          total_documents: z.int().describe('The same as `document_count`'),
          storage_size: z.int().describe('The same as `size_bytes`'),
          index_size: z.int().describe('Bytes of the indexes on disk, as Postgres last counted them'),
          active_connections: z.literal(0).describe('Always 0: no connection belongs to an application'),
        }),
        example: {
          app_id: 'demo',
          collection_count: 1,
          document_count: 1,
          size_bytes: 40,
          height: 1,
          total_collections: 1,
          total_indexes: 1,
          total_documents: 1,
          storage_size: 40,
          index_size: 16_384,
          active_connections: 0,
        },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const stats = await clients.data.getAppStats({ appId: path.app_id }, call);
      const [collections, documents] = [Number(stats.collectionCount), Number(stats.documentCount)];
      const sizeBytes = Number(stats.sizeBytes);
      return json(200, {
        app_id: path.app_id,
        collection_count: collections,
        document_count: documents,
        size_bytes: sizeBytes,
        height: Number(stats.height),
        // The client @onchaindb/sdk reads the members from here on.
        total_collections: collections,
        total_indexes: Number(stats.indexCount),
        total_documents: documents,
        storage_size: sizeBytes,
        index_size: Number(stats.indexBytes),
        active_connections: 0,
      });
    },
  }),
];
