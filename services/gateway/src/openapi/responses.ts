import { z } from 'zod';
import { codes, type Code } from '../errors/codes';
import { pathParameters, type PathParameter } from '../pipeline/path-parameters';
import type { ResponseDoc, Route } from '../pipeline/route';
import { headersOf } from './headers';
import { isSignable } from './security';
import { toSchema, type Components, type Json } from './schema';

const allCodes = Object.keys(codes) as [Code, ...Code[]];

/** The shape of every error. */
export const errorSchema = z
  .object({
    error: z.string().describe('Text for people; it may change'),
    code: z.enum(allCodes).describe('What went wrong; stable, see docs/errors.md'),
    details: z
      .record(z.string(), z.unknown())
      .describe('For a validation error: a list of messages for each field path; otherwise what the code names'),
  })
  .meta({
    id: 'Error',
    examples: [
      {
        error: 'The body is not valid: data[3].city is required',
        code: 'VALIDATION_FAILED',
        details: { 'data[3].city': ['is required'] },
      },
    ],
  });

/** The component that every response refers to. */
export const responseHeaders = {
  RequestId: {
    description: 'Id of the request, also in the log of the service; `X-Request-Id` of the request where it has one',
    schema: { type: 'string', pattern: '^[A-Za-z0-9._-]{1,64}$' },
  },
};

/** The common errors that every operation describes alike, by status. */
const sharedNames: Readonly<Record<string, string>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  408: 'RequestTimeout',
  413: 'PayloadTooLarge',
  415: 'UnsupportedMediaType',
  429: 'TooManyRequests',
  503: 'Unavailable',
  504: 'DeadlineExceeded',
  507: 'StorageFull',
  default: 'UnknownError',
};

const anyOther: ResponseDoc = { description: 'Any other error', codes: ['INTERNAL'] };

/**
 * Returns the responses of an operation. Common errors are added to `shared`, and the responses refer to them there.
 */
export function responsesOf(route: Route, components: Components, shared: Json): Json {
  const common = new Map<string, ResponseDoc>(Object.entries(commonResponses(route)));
  const statuses = [...new Set([...common.keys(), ...Object.keys(route.responses)])].sort();
  const responses: Json = {};
  for (const status of [...statuses, 'default']) {
    const routeDoc = route.responses[Number(status)];
    const usual = common.get(status) ?? (status === 'default' ? anyOther : undefined);
    const name = routeDoc ? undefined : sharedNames[status];
    const doc = routeDoc ? withCodes(routeDoc, usual) : usual!;
    const made = responseDoc(status, { ...doc, headers: { ...headersOf(status, route), ...doc.headers } }, components);
    if (name !== undefined) shared[name] ??= made;
    responses[status] = name === undefined ? made : { $ref: `#/components/responses/${name}` };
  }
  return responses;
}

/** An error that a route describes itself can still have the usual codes. */
function withCodes(routeDoc: ResponseDoc, usual: ResponseDoc | undefined): ResponseDoc {
  const mergedCodes = [...new Set([...(usual?.codes ?? []), ...(routeDoc.codes ?? [])])];
  return mergedCodes.length === 0 ? routeDoc : { ...routeDoc, codes: mergedCodes };
}

function responseDoc(status: string, doc: ResponseDoc, components: Components): Json {
  const isError = status === 'default' || Number(status) >= 400;
  const schema = doc.schema ?? (isError ? errorSchema : undefined);
  return {
    description: descriptionOf(doc),
    headers: {
      'X-Request-Id': { $ref: '#/components/headers/RequestId' },
      ...Object.fromEntries(
        Object.entries(doc.headers ?? {}).map(([name, description]) => [
          name,
          { description, schema: { type: 'string' } },
        ]),
      ),
    },
    ...(schema && { content: contentOf(doc, schema, components) }),
  };
}

function contentOf(doc: ResponseDoc, schema: z.ZodType, components: Components): Json {
  const published = toSchema(schema, 'output', components);
  const type = { schema: published, ...examplesOf(doc, published, components) };
  return Object.fromEntries((doc.contentTypes ?? ['application/json']).map((name) => [name, type]));
}

/** An error has an example for each of its codes, another answer its own or that of its named schema. */
function examplesOf({ example, codes: possible }: ResponseDoc, schema: Json, components: Components): Json {
  if (example !== undefined) return { example };
  if (!possible) {
    const ofSchema = exampleOf(schema, components);
    return ofSchema === undefined ? {} : { example: ofSchema };
  }
  const references = possible.map((code) => [code, { $ref: `#/components/examples/${code}` }]);
  return { examples: Object.fromEntries(references) as Json };
}

/** The example of a named schema, or a list with it. */
function exampleOf({ $ref, items }: Json, components: Components): unknown {
  if (items !== undefined) {
    const element = exampleOf(items as Json, components);
    return element === undefined ? undefined : [element];
  }
  if (typeof $ref !== 'string') return undefined;
  const { examples } = components[$ref.slice($ref.lastIndexOf('/') + 1)] as { examples?: readonly unknown[] };
  return examples?.[0];
}

/** The components that the examples of errors in a text refer to. */
export function examplesIn(text: string): Json {
  const used = allCodes.filter((code) => text.includes(`"#/components/examples/${code}"`));
  const values = used.map((code) => [code, { value: { error: codes[code].meaning, code, details: {} } }]);
  return Object.fromEntries(values) as Json;
}

function descriptionOf({ description, codes = [] }: ResponseDoc): string {
  const named = codes.map((code) => `\`${code}\``).join(', ');
  return named === '' ? description : `${description}: ${named}`;
}

/** The errors with which a route can answer because of its kind, by status. */
function commonResponses(route: Route): Record<number, ResponseDoc> {
  const { auth, body, headers = {}, method, path, urgent } = route;
  const missing = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => pathParameters[name as PathParameter].reason);
  const refused: readonly Code[] = body?.kind === 'json' || body?.kind === 'raw' ? ['MALFORMED_JSON'] : [];
  return {
    400: { description: 'Malformed or invalid', codes: ['VALIDATION_FAILED', ...refused] },
    ...(auth.kind !== 'public' && { 401: { description: 'Missing or unknown key', codes: ['UNAUTHENTICATED'] } }),
    ...((auth.kind === 'app' || auth.kind === 'reader') && {
      403: { description: 'The key belongs to another app, or lacks the permission', codes: ['FORBIDDEN'] },
    }),
    ...(missing.length > 0 && { 404: { description: 'Something that the path names does not exist', codes: missing } }),
    ...('Idempotency-Key' in headers && {
      409: {
        description: 'The same request is still running, or was signed before',
        codes: ['REQUEST_IN_PROGRESS', ...(isSignable(route) && method !== 'GET' ? ['SIGNATURE_USED' as const] : [])],
      },
      422: { description: 'The Idempotency-Key was used for another request', codes: ['IDEMPOTENCY_KEY_REUSED'] },
    }),
    ...(hasBody(body) && {
      408: { description: 'The body took too long to arrive', codes: ['REQUEST_TIMEOUT'] },
      413: { description: 'The body is too large', codes: ['PAYLOAD_TOO_LARGE'] },
      415: { description: 'Wrong content type', codes: ['UNSUPPORTED_MEDIA_TYPE'] },
    }),
    ...(method !== 'GET' && {
      507: { description: 'The server has no room for writes', codes: ['STORAGE_FULL'] },
    }),
    ...(!urgent && {
      429: { description: 'Too many requests are waiting; see `Retry-After`', codes: ['TOO_MANY_REQUESTS'] },
      503: { description: 'The service is down or busy; see `Retry-After`', codes: ['UNAVAILABLE', 'OVERLOADED'] },
      504: { description: 'The request took too long', codes: ['DEADLINE_EXCEEDED'] },
    }),
  };
}

function hasBody(body: Route['body']): boolean {
  return body !== undefined && (body.kind !== 'stream' || Object.keys(body.content).length > 0);
}
