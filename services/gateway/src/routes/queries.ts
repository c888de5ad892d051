import { z } from 'zod';
import type { Query } from '@granary/shared/gen/granary/data/v1/Query';
import { created, json, jsonText } from '../http/answer';
import { mayPublish } from '../pipeline/access';
import { publishedAs } from '../validation/published-as';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listed, listing, listingHeaders, listingQuery, nextCursorSchema } from '../pipeline/listing';
import { bodyLimits, route } from '../pipeline/route';
import { recordsQuery } from '../validation/parameters';
import {
  accessPolicy,
  accessPolicySchema,
  exampleTime,
  fieldPathSchema,
  fieldsSchema,
  findSchema,
  nameSchema,
  objectSchema,
  recordsSchema,
  selectSchema,
  successSchema,
  timeSchema,
} from '../validation/schemas';
import { memberBytes } from '../validation/json-members';
import { queryErrors, read } from './documents';

const parameterSchema = z.strictObject({
  name: z.string().min(1).max(200).describe('Name of the URL parameter; not `limit`, `offset`, `cursor` or `count`'),
  field_path: fieldPathSchema.describe(
    'The field that it filters, dotted for a nested one; may end in an operator (`year.$gte`)',
  ),
  default: z.unknown().optional().describe('Taken where the parameter is missing'),
  required: z.boolean().nullish().describe('Without it a read is refused'),
  description: z.string().max(2_000).nullish().describe('For people'),
});

const createSchema = z.strictObject({
  name: nameSchema,
  source_collection: nameSchema.describe('The collection that it reads'),
  base_query: z
    .strictObject({
      find: findSchema.nullish(),
      select: selectSchema.nullish(),
      sort: publishedAs(z.unknown().optional(), fieldsSchema.nullable()).describe(
        'Fields to sort by; `-field` descends',
      ),
      limit: z.int().min(1).max(10_000).nullish().describe('Records of a page: the default, and the most'),
    })
    .describe('What is read, before the parameters'),
  parameters: z.array(parameterSchema).max(64).nullish().describe('What the caller may choose'),
  description: z.string().max(10_000).nullish().describe('For people'),
  version: z.string().max(100).nullish().describe('For people'),
  example_request: z.unknown().optional().describe('For people: any JSON'),
  example_response: z.unknown().optional().describe('For people: any JSON'),
  access_policy: accessPolicySchema.nullish(),
});

const exampleQuery = {
  name: 'with_stars',
  source_collection: 'notes',
  base_query: { sort: '-stars' },
  parameters: [{ name: 'stars', field_path: 'stars', default: 5 }],
  description: '',
  version: '',
  example_request: null,
  example_response: null,
  access_policy: { read: 'public' },
  created_at: exampleTime,
};

const querySchema = z
  .object({
    name: z.string().describe('Name of the query'),
    source_collection: z.string().describe('The collection that it reads'),
    base_query: objectSchema.describe('As it was given'),
    parameters: z.array(parameterSchema).describe('What the caller may choose'),
    description: z.string().describe('For people'),
    version: z.string().describe('For people'),
    example_request: z.unknown().describe('For people'),
    example_response: z.unknown().describe('For people'),
    access_policy: accessPolicySchema.describe('Who may run it at present'),
    created_at: timeSchema.describe('When it was made'),
  })
  .meta({ id: 'Query', examples: [exampleQuery] });

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
    access_policy: accessPolicy(query.readAccess),
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
    description: 'Soft-deleted documents are left out.',
    tag,
    auth: { kind: 'reader' },
    query: {
      reserved: recordsQuery,
      others: { name: 'parameters', description: 'The parameters of the query, by name', example: { stars: 5 } },
    },
    responses: { 200: { description: 'A page of records', schema: recordsSchema }, ...queryErrors },
    handle: async ({ clients }, request) =>
      read(request, request.path.query_name, (message) => clients.data.runQuery(message, request.call)),
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/queries',
    prefixes: ['', '/api'],
    id: 'createQuery',
    summary: 'Create a predefined query',
    description:
      'Its definition is public. Without an `access_policy` running it is as private as its collection; to show a private ' +
      'collection in public needs `Admin`.',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    body: {
      kind: 'json',
      schema: createSchema,
      example: {
        name: 'with_stars',
        source_collection: 'notes',
        base_query: { sort: '-stars' },
        parameters: [{ name: 'stars', field_path: 'stars', default: 5 }],
      },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      201: { description: 'The query', schema: querySchema },
      400: { description: 'Malformed or invalid', codes: ['INVALID_QUERY', 'LIMIT_EXCEEDED'] },
      409: { description: 'A query has the name', codes: ['ALREADY_EXISTS'] },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, body, jsonTree: tree, call } = request;
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
          // Empty: as private as its source.
          readAccess: body.access_policy?.read ?? '',
          mayPublish: mayPublish(caller),
          idempotency: idempotencyOfJson(request),
        },
        call,
      );
      const headers = replayedHeader(query.replayed === true);
      return created(`/apps/${path.app_id}/queries/${query.name}`, queryJson(query), headers);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/queries',
    prefixes: ['', '/api'],
    id: 'listQueries',
    summary: 'List the predefined queries of an application',
    description: 'With their definitions, in the order of their names.',
    tag,
    auth: { kind: 'public' },
    query: listingQuery,
    responses: {
      200: {
        description: 'The queries',
        schema: z.object({
          app_id: z.string().describe('The application'),
          queries: z.array(querySchema).describe('In the order of their names'),
          next_cursor: nextCursorSchema,
        }),
        headers: listingHeaders,
        example: { app_id: 'demo', queries: [exampleQuery] },
      },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const page = await clients.data.listQueries({ appId: path.app_id, ...listing(query) }, call);
      const queries = page.queries.map(queryJson);
      const body = { app_id: path.app_id, queries, next_cursor: page.nextCursor || undefined };
      return listed(request, body, page.nextCursor);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/queries/{query_name}',
    prefixes: ['', '/api'],
    id: 'getQuery',
    summary: 'Read the definition of a predefined query',
    description: 'It is run by runQuery.',
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
    description: 'Its collection stays as it is.',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'Query with_stars is deleted' },
      },
    },
    handle: async ({ clients }, request) => {
      const { path, call } = request;
      const asked = { appId: path.app_id, name: path.query_name, idempotency: idempotencyOfJson(request) };
      const deleted = await clients.data.deleteQuery(asked, call);
      return json(
        200,
        { success: true, message: `Query ${path.query_name} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
];
