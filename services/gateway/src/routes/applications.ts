import { z } from 'zod';
import type { Application } from '@granary/shared/gen/granary/data/v1/Application';
import type { CreateApplicationRequest } from '@granary/shared/gen/granary/data/v1/CreateApplicationRequest';
import { message } from '@granary/shared/grpc/types';
import { toText } from '@granary/shared/json/value';
import { json } from '../answer';
import { idempotency, idempotencyHeader, replayedHeader } from '../idempotency';
import { limits, pageQuery, route } from '../route';
import { appIdSchema, successSchema, timeSchema } from '../schemas';

const publicSchema = z.object({
  app_id: z.string(),
  name: z.string(),
  description: z.string(),
  created_at: timeSchema,
});
const applicationSchema = publicSchema
  .extend({
    owner_address: z.string().nullable(),
    updated_at: timeSchema,
    height: z.int().describe('Height of the last commit'),
  })
  .meta({ id: 'Application' });

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
  };
}

const createSchema = z.strictObject({
  app_id: appIdSchema.nullish(),
  name: z.string().min(1).max(200),
  description: z.string().max(10_000).nullish(),
  owner_address: z.string().min(1).max(128).nullish(),
});

export const applicationRoutes = [
  route({
    method: 'POST',
    path: '/applications',
    id: 'createApplication',
    summary: 'Make an application, with its first key',
    tag: 'Applications',
    auth: { kind: 'operator' },
    headers: idempotencyHeader,
    body: { kind: 'json', schema: createSchema, limitBytes: limits.smallBytes },
    responses: {
      201: {
        description: 'The application and its key, which is shown this once',
        schema: applicationSchema.extend({
          app_key: z.string().nullable().describe('null in an answer that is repeated by Idempotency-Key'),
          key_id: z.string(),
          permissions: z.array(z.string()),
        }),
      },
      409: { description: 'ALREADY_EXISTS' },
    },
    handle: async ({ clients }, request) => {
      const { body, tree, call } = request;
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
      const headers = { Location: `/api/applications/${application.app_id}`, ...replayedHeader(secret === '') };
      const issued = { app_key: secret || null, key_id: key!.keyId, permissions: key!.permissions };
      return { ...json(201, { ...application, ...issued }, headers), isSecret: true };
    },
  }),
  route({
    method: 'GET',
    path: '/applications',
    id: 'listApplications',
    summary: 'List the applications',
    tag: 'Applications',
    auth: { kind: 'operator' },
    query: pageQuery,
    responses: {
      200: {
        description: 'A page of applications',
        schema: z.object({
          applications: z.array(applicationSchema),
          total: z.int(),
          limit: z.int(),
          offset: z.int(),
        }),
      },
    },
    handle: async ({ clients }, { query, call }) => {
      const { applications, total } = await clients.data.listApplications(query, call);
      return json(200, { applications: applications.map(wholeApplication), total: Number(total), ...query });
    },
  }),
  route({
    method: 'GET',
    path: '/applications/{app_id}',
    id: 'getApplication',
    summary: 'Read an application',
    description: 'Without a key: name, description and created_at. With a key of the application: all of it.',
    tag: 'Applications',
    auth: { kind: 'reader' },
    responses: { 200: { description: 'The application', schema: z.union([applicationSchema, publicSchema]) } },
    handle: async ({ clients }, { path, caller, call }) => {
      const application = await clients.data.getApplication({ appId: path.app_id }, call);
      const isOwn = caller.kind === 'operator' || (caller.kind === 'app' && caller.appId === path.app_id);
      return json(200, isOwn ? wholeApplication(application) : publicPart(application));
    },
  }),
  route({
    method: 'DELETE',
    path: '/applications/{app_id}',
    id: 'deleteApplication',
    summary: 'Delete an application with everything in it',
    tag: 'Applications',
    auth: { kind: 'operator' },
    responses: { 200: { description: 'It is gone; its id is never used again', schema: successSchema } },
    handle: async ({ clients }, { path, call }) => {
      await clients.data.deleteApplication({ appId: path.app_id }, call);
      return json(200, { success: true, message: `Application ${path.app_id} is deleted` });
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/stats',
    id: 'getApplicationStats',
    summary: 'Sums over the collections of an application',
    tag: 'Applications',
    auth: { kind: 'app', permission: 'Read' },
    responses: {
      200: {
        description: 'The sums',
        schema: z.object({
          app_id: z.string(),
          collection_count: z.int(),
          document_count: z.int(),
          size_bytes: z.int(),
          height: z.int(),
        }),
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const [{ collections }, application] = await Promise.all([
        clients.data.listCollections({ appId: path.app_id }, call),
        clients.data.getApplication({ appId: path.app_id }, call),
      ]);
      const sum = (values: string[]) => Number(values.reduce((total, value) => total + BigInt(value), 0n));
      return json(200, {
        app_id: path.app_id,
        collection_count: collections.length,
        document_count: sum(collections.map((collection) => collection.documentCount)),
        size_bytes: sum(collections.map((collection) => collection.sizeBytes)),
        height: Number(application.height),
      });
    },
  }),
];
