import { z } from 'zod';
import type { Query } from '@granary/shared/gen/granary/data/v1/Query';
import { created, json, jsonText } from '../http/answer';
import { pageEtagHeader, revalidationHeader, unchangedPage } from '../openapi/headers';
import { mayPublish, mayReadPrivate, requirePermission } from '../pipeline/access';
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
import { priceConfigSchema, priceJson, readPriceOf } from '../validation/index-prices';
import { memberBytes, textMember } from '../validation/json-members';
import { publicQueryErrors } from './documents';
import { paidReadHeaders, paymentResponses } from '../paying/payment-docs';
import { read } from './reads';

const parameterSchema = z.strictObject({
  name: z.string().min(1).max(200).describe('Name of the URL parameter; not `offset`, `cursor`, `count` or `version`'),
  field_path: fieldPathSchema.describe(
    'The field that it filters, dotted for a nested one; may end in an operator (`year.$gte`). `limit` is the limit of the ' +
      'page',
  ),
  default: z.unknown().optional().describe('Taken where the parameter is missing'),
  required: z.boolean().optional().describe('Without it a read is refused'),
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
      limit: z.int().min(1).max(10_000).optional().describe('Records of a page: the default, and the most'),
    })
    .describe('What is read, before the parameters'),
  parameters: z.array(parameterSchema).max(64).nullish().describe('What the caller may choose'),
  description: z.string().max(10_000).nullish().describe('For people'),
  version: z
    .union([z.string().max(100), z.number()])
    .nullish()
    .describe('A version that is new stands beside the others; a number is taken as the text that it is written as'),
  example_request: z.unknown().optional().describe('For people: any JSON'),
  example_response: z.unknown().optional().describe('For people: any JSON'),
  access_policy: accessPolicySchema.optional(),
  read_price_config: priceConfigSchema
    .optional()
    .describe(
      'The price of every run without a key that has `Read`; needs `Admin`. Absent or `{}`: the prices of what it reads',
    ),
});

const exampleQuery = {
  name: 'with_stars',
  source_collection: 'notes',
  base_query: { sort: '-stars' },
  parameters: [{ name: 'stars', field_path: 'stars', default: 5 }],
  description: '',
  version: '1',
  versions: ['1'],
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
    version: z.string().describe('The version that this is; empty where none was given'),
    versions: z.array(z.string()).describe('All versions of the query, the newest first'),
    example_request: z.unknown().describe('For people'),
    example_response: z.unknown().describe('For people'),
    access_policy: accessPolicySchema.describe('Who may run it at present'),
    created_at: timeSchema.describe('When it was made'),
    read_price_config: priceConfigSchema.optional().describe('Its own price, where it has one'),
  })
  .meta({ id: 'Query', examples: [exampleQuery] });

const definition = {
  source_collection: true,
  base_query: true,
  parameters: true,
  description: true,
  example_request: true,
  example_response: true,
} as const;

const listedSchema = querySchema
  .partial(definition)
  .meta({ id: 'ListedQuery', description: 'A query; a private one without its definition', examples: [exampleQuery] });

function queryJson(query: Query) {
  return {
    name: query.name,
    source_collection: query.sourceCollection,
    base_query: jsonText(query.baseQueryJson) ?? {},
    parameters: jsonText(query.parametersJson) ?? [],
    description: query.description,
    version: query.version,
    versions: query.versions,
    example_request: jsonText(query.exampleRequestJson),
    example_response: jsonText(query.exampleResponseJson),
    access_policy: accessPolicy(query.readAccess),
    created_at: query.createdAt,
    ...(query.readPriceConfig && { read_price_config: priceJson(query.readPriceConfig) }),
  };
}

/** A query as shown without a key: of a private one only that it exists. */
function publicJson(query: Query) {
  if (query.readAccess === 'public') return queryJson(query);
  const { name, version, versions, access_policy, created_at } = queryJson(query);
  return { name, version, versions, access_policy, created_at };
}

const tag = 'Predefined queries';

const versionParameter = z.string().max(100).optional();
const ofVersion = ({ version }: { version?: string | undefined }) => (version === undefined ? {} : { version });

export const queryRoutes = [
  route({
    method: 'GET',
    path: '/queries/{app_id}/{query_name}/data',
    id: 'runQuery',
    summary: 'Run a predefined query',
    description: 'Its newest version, unless `version` names another. Soft-deleted documents are left out.',
    tag,
    auth: { kind: 'reader' },
    query: {
      reserved: recordsQuery.extend({ version: versionParameter.describe('The version; by default the newest') }),
      others: { name: 'parameters', description: 'The parameters of the query, by name', example: { stars: 5 } },
    },
    headers: { ...revalidationHeader, ...paidReadHeaders },
    responses: {
      200: { description: 'A page of records', schema: recordsSchema, headers: pageEtagHeader },
      ...unchangedPage,
      ...publicQueryErrors,
      ...paymentResponses,
    },
    handle: (gateway, request) =>
      read(gateway, request, request.path.query_name, (message) =>
        gateway.clients.data.runQuery(message, request.call),
      ),
  }),
  route({
    method: 'POST',
    path: '/apps/{app_id}/queries',
    prefixes: ['', '/api'],
    id: 'createQuery',
    summary: 'Create a predefined query',
    description:
      'With a `version` that is new, it stands beside the versions of that name, and is the one that is run. Without an ' +
      '`access_policy` it is as private as its collection; to show a private collection in public needs `Admin`.',
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
      404: {
        description: 'The collection does not exist; the message names one that is near',
        codes: ['COLLECTION_NOT_FOUND'],
      },
      409: { description: 'A query has the name and the version', codes: ['ALREADY_EXISTS'] },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, body, jsonTree: tree, call } = request;
      if (body.read_price_config) requirePermission(caller, 'Admin');
      const query = await clients.data.createQuery(
        {
          appId: path.app_id,
          name: body.name,
          sourceCollection: body.source_collection,
          baseQueryJson: memberBytes(tree, 'base_query'),
          parametersJson: memberBytes(tree, 'parameters'),
          description: body.description ?? '',
          version: textMember(tree, 'version'),
          exampleRequestJson: memberBytes(tree, 'example_request'),
          exampleResponseJson: memberBytes(tree, 'example_response'),
          // Empty: as private as its source.
          readAccess: body.access_policy?.read ?? '',
          mayPublish: mayPublish(caller),
          ...readPriceOf(body),
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
    description:
      'In their newest versions, in the order of their names. Without a key that has `Read` private queries are listed ' +
      'without their definitions.',
    tag,
    auth: { kind: 'reader' },
    query: listingQuery,
    responses: {
      200: {
        description: 'The queries',
        schema: z.object({
          app_id: z.string().describe('The application'),
          queries: z.array(listedSchema).describe('In the order of their names'),
          next_cursor: nextCursorSchema,
        }),
        headers: listingHeaders,
        example: { app_id: 'demo', queries: [exampleQuery] },
      },
      400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, query, call } = request;
      const page = await clients.data.listQueries({ appId: path.app_id, ...listing(query) }, call);
      const queries = page.queries.map(mayReadPrivate(caller, path.app_id) ? queryJson : publicJson);
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
    description: 'Of its newest version, unless `version` names another. It is run by runQuery.',
    tag,
    auth: { kind: 'app', permission: 'Read' },
    query: z.object({ version: versionParameter.describe('The version; by default the newest') }),
    responses: { 200: { description: 'The query', schema: querySchema } },
    handle: async ({ clients }, { path, query, call }) => {
      const rpcRequest = { appId: path.app_id, name: path.query_name, ...ofVersion(query) };
      return json(200, queryJson(await clients.data.getQuery(rpcRequest, call)));
    },
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/queries/{query_name}',
    prefixes: ['', '/api'],
    id: 'deleteQuery',
    summary: 'Delete a predefined query',
    description: 'All its versions, or the one that `version` names. Its collection stays as it is.',
    tag,
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    query: z.object({ version: versionParameter.describe('The version; by default all of them') }),
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'Query with_stars is deleted' },
      },
    },
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const rpcRequest = { appId: path.app_id, name: path.query_name, ...ofVersion(query) };
      const deleted = await clients.data.deleteQuery({ ...rpcRequest, idempotency: idempotencyOfJson(request) }, call);
      const what = query.version === undefined ? '' : `Version ${query.version} of `;
      const message = `${what}${what ? 'q' : 'Q'}uery ${path.query_name} is deleted`;
      return json(200, { success: true, message }, replayedHeader(deleted.replayed === true));
    },
  }),
];
