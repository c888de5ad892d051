import { z } from 'zod';
import { version } from '@granary/shared/version';
import type { Access } from './auth';
import {
  pathParameters,
  type Body,
  type JsonBody,
  type PathParameter,
  type Query,
  type RawBody,
  type ResponseDoc,
  type Route,
} from './route';

type Json = Record<string, unknown>;

/** The shape of every error. */
const errorSchema = z
  .object({
    error: z.string().describe('Text for a person'),
    code: z.string().describe('UPPER_SNAKE, stable'),
    details: z.record(z.string(), z.unknown()).describe('For a validation error: messages by field path'),
  })
  .meta({ id: 'Error' });

/** The OpenAPI 3.1 document of the routes: every path under every prefix that it answers at. */
export function openapiDocument(routes: readonly Route[]): Json {
  const schemas: Json = {};
  const paths: Record<string, Json> = {};
  toSchema(errorSchema, 'output', schemas);
  for (const route of routes) {
    for (const [at, prefix] of route.prefixes.entries()) {
      const path = `${prefix}${route.path}`;
      const operation = operationOf(route, schemas);
      if (at > 0)
        Object.assign(operation, {
          operationId: `${route.id}_${at + 1}`,
          summary: `${route.summary} (alias)`,
          'x-alias-of': route.id,
        });
      (paths[path] ??= {})[route.method.toLowerCase()] = operation;
    }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Granary',
      version,
      description: 'An application data service that anyone can run. Amounts are integers in utia.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    tags: [...new Set(routes.map((route) => route.tag))].map((name) => ({ name })),
    paths,
    components: { schemas, securitySchemes, headers },
  };
}

const header = (name: string, description: string) => ({ type: 'apiKey', in: 'header', name, description });

const securitySchemes = {
  appKey: header('X-App-Key', 'A key of an application'),
  appKeyBearer: { type: 'http', scheme: 'bearer', description: 'The same key as a bearer token' },
  appKeyOlder: header('X-API-Key', 'The same key, for older clients'),
  operatorKey: header('X-Operator-Key', 'The key of the person who runs the service'),
  walletAddress: header('X-Wallet-Address', 'The address that signs the request'),
  walletTimestamp: header('X-Timestamp', 'When it was signed'),
  walletPubkey: header('X-Pubkey', 'The public key of the address'),
  walletSignature: header('X-Signature', 'The signature, by ADR-036'),
};

const headers = {
  RequestId: { description: 'Id of the request, also in our log', schema: { type: 'string' } },
};

const signedByWallet = { walletAddress: [], walletTimestamp: [], walletPubkey: [], walletSignature: [] };

const anyAppKey = [{ appKey: [] }, { appKeyBearer: [] }, { appKeyOlder: [] }];

function securityOf(access: Access): Json[] {
  switch (access.kind) {
    case 'public':
      return [];
    case 'reader':
      return [{}, ...anyAppKey];
    case 'operator':
      return [{ operatorKey: [] }];
    case 'wallet':
      return [signedByWallet, { operatorKey: [] }];
    case 'app':
      return access.operator ? [...anyAppKey, { operatorKey: [] }] : anyAppKey;
  }
}

function operationOf(route: Route, schemas: Json): Json {
  const { auth } = route;
  const needs =
    auth.kind === 'app' ? `Needs a key with ${auth.permission}${auth.operator ? ', or the operator' : ''}.` : '';
  const description = [route.description, needs].filter(Boolean).join(' ');
  const body = route.body && requestBody(route.body, schemas);
  return {
    operationId: route.id,
    summary: route.summary,
    ...(description && { description }),
    tags: [route.tag],
    security: securityOf(auth),
    parameters: [...pathParameterDocs(route.path), ...queryDocs(route.query, schemas), ...headerDocs(route.headers)],
    ...(body && { requestBody: body }),
    responses: responsesOf(route, schemas),
  };
}

function pathParameterDocs(path: string): Json[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => {
    const { pattern, example } = pathParameters[name as PathParameter];
    return { name, in: 'path', required: true, schema: { type: 'string', pattern: pattern.source }, example };
  });
}

function queryDocs(query: Query | undefined, schemas: Json): Json[] {
  if (query === undefined) return [];
  if (query === 'any') {
    const schema = { type: 'object', additionalProperties: { type: 'string' } };
    return [{ name: 'parameters', in: 'query', style: 'form', explode: true, schema }];
  }
  return Object.entries(query.shape).map(([name, parameter]) => {
    const schema = parameter as z.ZodType;
    // What a handler gets is the typed value, so the output says what the text stands for.
    const required = !schema.safeParse(undefined).success;
    return { name, in: 'query', required, schema: toSchema(schema, 'output', schemas) };
  });
}

function headerDocs(headers: Route['headers'] = {}): Json[] {
  return Object.entries(headers).map(([name, description]) => {
    return { name, in: 'header', required: false, description, schema: { type: 'string' } };
  });
}

function requestBody(body: Body, schemas: Json): Json | undefined {
  switch (body.kind) {
    case 'json':
      return { required: body.optional !== true, content: { 'application/json': mediaType(body, schemas) } };
    case 'raw': {
      const content = body.contentTypes.map((type) => [type, mediaType(body, schemas)]);
      return { required: true, content: Object.fromEntries(content) as Json };
    }
    case 'stream': {
      const content = Object.entries(body.schemas).map(([type, schema]) => [
        type,
        { schema: toSchema(schema, 'input', schemas) },
      ]);
      return content.length === 0 ? undefined : { required: true, content: Object.fromEntries(content) as Json };
    }
  }
}

function mediaType({ schema, example }: JsonBody | RawBody, schemas: Json): Json {
  return { schema: toSchema(schema, 'input', schemas), ...(example !== undefined && { example }) };
}

function responsesOf(route: Route, schemas: Json): Json {
  const responses: Json = {};
  for (const [status, doc] of Object.entries({ ...commonResponses(route), ...route.responses })) {
    responses[status] = responseDoc(status, doc, schemas);
  }
  responses['default'] = responseDoc('500', { description: 'Any other error' }, schemas);
  return responses;
}

function responseDoc(status: string, doc: ResponseDoc, schemas: Json): Json {
  const schema = doc.schema ?? (Number(status) >= 400 ? errorSchema : undefined);
  return {
    description: doc.description,
    headers: { 'X-Request-Id': { $ref: '#/components/headers/RequestId' } },
    ...(schema && {
      content: { [doc.contentType ?? 'application/json']: { schema: toSchema(schema, 'output', schemas) } },
    }),
  };
}

/** What a route may answer by what it is. */
function commonResponses({ auth, body, path, query }: Route): Record<number, ResponseDoc> {
  return {
    ...((body || query) && { 400: { description: 'Malformed or invalid; `details` names the fields' } }),
    ...(auth.kind !== 'public' && { 401: { description: 'No or an unknown key' } }),
    ...((auth.kind === 'app' || auth.kind === 'reader') && {
      403: { description: 'A key of another app, or without the permission' },
    }),
    ...(path.includes('{') && { 404: { description: 'Something that the path names does not exist' } }),
    ...(body && {
      413: { description: 'The body is too large; the message names the limit' },
      415: { description: 'Wrong content type' },
    }),
    503: { description: 'A service that is needed is down or busy; see Retry-After' },
  };
}

/** JSON Schema of a zod schema; the named ones inside it move to the components of the document. */
function toSchema(schema: z.ZodType, io: 'input' | 'output', schemas: Json): Json {
  const { $schema: _, $defs, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Json;
  for (const [name, definition] of Object.entries(($defs ?? {}) as Json)) schemas[name] = relocate(definition);
  return relocate(rest) as Json;
}

function relocate(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(relocate);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [
      key,
      key === '$ref' && typeof member === 'string'
        ? member.replace('#/$defs/', '#/components/schemas/')
        : relocate(member),
    ]),
  );
}
