import { z } from 'zod';
import type { Query } from '@granary/shared/gen/granary/data/v1/Query';
import { created, json, jsonText } from '../answer';
import { limits, route } from '../route';
import { accessPolicySchema, nameSchema, objectSchema, recordsSchema, successSchema, timeSchema } from '../schemas';
import { memberBytes } from '../tree';
import { read } from './documents';

const parameterSchema = z.strictObject({
  name: z.string().min(1).max(200),
  field_path: z.string().min(1).max(500).describe('Dotted; may end in an operator suffix'),
  default: z.unknown().optional(),
  required: z.boolean().nullish(),
  description: z.string().max(2_000).nullish(),
});

const createSchema = z.strictObject({
  name: nameSchema,
  source_collection: nameSchema,
  base_query: z.strictObject({
    find: objectSchema.nullish(),
    select: z.union([objectSchema, z.array(z.string()), z.string()]).nullish(),
    sort: z.unknown().optional(),
    limit: z.int().min(1).max(10_000).nullish(),
  }),
  parameters: z.array(parameterSchema).max(64).nullish(),
  description: z.string().max(10_000).nullish(),
  version: z.string().max(100).nullish(),
  example_request: z.unknown().optional(),
  example_response: z.unknown().optional(),
  access_policy: accessPolicySchema.nullish(),
});

const querySchema = z
  .object({
    name: z.string(),
    source_collection: z.string(),
    base_query: objectSchema,
    parameters: z.array(parameterSchema),
    description: z.string(),
    version: z.string(),
    example_request: z.unknown(),
    example_response: z.unknown(),
    created_at: timeSchema,
  })
  .meta({ id: 'Query' });

function queryJson(query: Query) {
  return {
    name: query.name,
    source_collection: query.sourceCollection,
    base_query: jsonText(query.baseQueryJson) ?? {},
    parameters: jsonText(query.parametersJson) ?? [],
    description: query.description,
    version: query.version,
    example_request: jsonText(query.exampleRequestJson),
    example_response: jsonText(query.exampleResponseJson),
    created_at: query.createdAt,
  };
}

const tag = 'Predefined queries';

export const queryRoutes = [
  route({
    method: 'GET',
    path: '/queries/{app_id}/{query_name}/data',
    id: 'runQuery',
    summary: 'Run a predefined query',
    description:
      'Takes the parameters of the query, limit, offset, cursor and count. Public, unless the query is private.',
    tag,
    auth: { kind: 'reader' },
    query: 'any',
    responses: { 200: { description: 'A page of records', schema: recordsSchema } },
    handle: async ({ clients }, request) =>
      read(request, request.path.query_name, (message) => clients.data.runQuery(message, request.call)),
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/queries',
    prefixes: ['', '/api'],
    id: 'createQuery',
    summary: 'Create a predefined query',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    body: {
      kind: 'json',
      schema: createSchema,
      example: {
        name: 'with_stars',
        source_collection: 'notes',
        base_query: { sort: '-stars' },
        parameters: [{ name: 'stars', field_path: 'stars', default: 5 }],
      },
      limitBytes: limits.definitionBytes,
    },
    responses: {
      201: { description: 'The query', schema: querySchema },
      409: { description: 'ALREADY_EXISTS' },
    },
    handle: async ({ clients }, { path, body, tree, call }) => {
      const query = await clients.data.createQuery(
        {
          appId: path.app_id,
          name: body.name,
          sourceCollection: body.source_collection,
          baseQueryJson: memberBytes(tree, 'base_query'),
          parametersJson: memberBytes(tree, 'parameters'),
          description: body.description ?? '',
          version: body.version ?? '',
          exampleRequestJson: memberBytes(tree, 'example_request'),
          exampleResponseJson: memberBytes(tree, 'example_response'),
          readAccess: body.access_policy?.read ?? 'public',
        },
        call,
      );
      return created(`/apps/${path.app_id}/queries/${query.name}`, queryJson(query));
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/queries',
    prefixes: ['', '/api'],
    id: 'listQueries',
    summary: 'List the predefined queries of an application',
    tag,
    auth: { kind: 'public' },
    responses: {
      200: { description: 'The queries', schema: z.object({ app_id: z.string(), queries: z.array(querySchema) }) },
    },
    handle: async ({ clients }, { path, call }) => {
      const { queries } = await clients.data.listQueries({ appId: path.app_id }, call);
      return json(200, { app_id: path.app_id, queries: queries.map(queryJson) });
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/queries/{query_name}',
    prefixes: ['', '/api'],
    id: 'getQuery',
    summary: 'Read the definition of a predefined query',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    responses: { 200: { description: 'The query', schema: querySchema } },
    handle: async ({ clients }, { path, call }) =>
      json(200, queryJson(await clients.data.getQuery({ appId: path.app_id, name: path.query_name }, call))),
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/queries/{query_name}',
    prefixes: ['', '/api'],
    id: 'deleteQuery',
    summary: 'Delete a predefined query',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    responses: { 200: { description: 'It is gone', schema: successSchema } },
    handle: async ({ clients }, { path, call }) => {
      await clients.data.deleteQuery({ appId: path.app_id, name: path.query_name }, call);
      return json(200, { success: true, message: `Query ${path.query_name} is deleted` });
    },
  }),
];
