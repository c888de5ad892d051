import { version } from '@granary/shared/version';
import type { Body, MediaTypeDoc, Route } from '../pipeline/route';
import { parametersOf } from './parameters';
import { errorSchema, examplesIn, responseHeaders, responsesOf } from './responses';
import { toSchema, type Components, type Json } from './schema';
import { accessText, securityOf, securitySchemes } from './security';
import { tags, type Tag } from '../pipeline/tags';

const about = `An application data service that anyone can run.

Paths are listed in one spelling. Each is also served with and without the prefix \`/api\`, and with a slash at its end.
Amounts are integers in utia (1 TIA = 1,000,000 utia). Every answer has an \`X-Request-Id\`; every error has the shape of
the schema \`Error\`.`;

/** The OpenAPI 3.1 document of the routes: every operation once, under its documented prefix. */
export function openapiDocument(routes: readonly Route[]): Json {
  const documented = routes.filter((route) => route.undocumented === undefined);
  const schemas: Components = {};
  const responses: Json = {};
  const paths: Record<string, Json> = {};
  toSchema(errorSchema, 'output', schemas);
  for (const route of documented) {
    const path = `${route.prefixes[0]}${route.path}`;
    (paths[path] ??= {})[route.method.toLowerCase()] = operationOf(route, schemas, responses);
  }
  const examples = examplesIn(JSON.stringify([paths, responses]));
  const used = new Set(documented.map((route) => route.tag));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Granary',
      version,
      description: about,
      contact: { name: 'Granary' },
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    tags: (Object.keys(tags) as Tag[])
      .filter((name) => used.has(name))
      .map((name) => ({ name, description: tags[name] })),
    paths,
    components: { schemas, responses, securitySchemes, headers: responseHeaders, examples },
  };
}

function operationOf(route: Route, schemas: Components, responses: Json): Json {
  const body = route.body && requestBody(route.body, schemas);
  return {
    operationId: route.id,
    summary: route.summary,
    description: `${route.description} ${accessText(route)}`,
    tags: [route.tag],
    security: securityOf(route),
    parameters: parametersOf(route, schemas),
    ...(body && { requestBody: body }),
    responses: responsesOf(route, schemas, responses),
  };
}

function requestBody(body: Body, schemas: Components): Json | undefined {
  const content = body.kind === 'json' ? { 'application/json': body } : body.content;
  const types = Object.entries(content).map(([type, doc]) => [type, mediaType(doc, schemas)]);
  if (types.length === 0) return undefined;
  return { required: body.kind !== 'json' || body.optional !== true, content: Object.fromEntries(types) as Json };
}

function mediaType({ schema, example }: MediaTypeDoc, schemas: Components): Json {
  return { schema: toSchema(schema, 'input', schemas), ...(example !== undefined && { example }) };
}
