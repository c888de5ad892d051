import { z } from 'zod';
import { pathParameters, type PathParameter, type PathParameterRule } from '../pipeline/path-parameters';
import type { Query, Route } from '../pipeline/route';
import { toSchema, type Components, type Json } from './schema';

/** The parameters of an operation: of its path, its query string and its headers. */
export function parametersOf({ path, pathExamples, query, headers }: Route, components: Components): Json[] {
  return [...pathDocs(path, pathExamples), ...queryDocs(query, components), ...headerDocs(headers)];
}

function pathDocs(path: string, examples: Route['pathExamples'] = {}): Json[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => {
    const rule: PathParameterRule = pathParameters[name as PathParameter];
    return {
      name,
      in: 'path',
      required: true,
      description: rule.description,
      schema: { type: 'string', pattern: rule.published ?? rule.pattern.source },
      example: examples[name as PathParameter] ?? rule.example,
    };
  });
}

/** Scalars: all that a query string can carry. */
const openValues = { type: ['string', 'number', 'boolean'] };

function queryDocs(query: Query | undefined, components: Components): Json[] {
  if (query === undefined) return [];
  if (query instanceof z.ZodObject) return declaredDocs(query, components);
  const { name, description, example } = query.others;
  return [
    ...declaredDocs(query.reserved, components),
    {
      name,
      in: 'query',
      style: 'form',
      explode: true,
      description,
      schema: { type: 'object', additionalProperties: openValues },
      example,
    },
  ];
}

function declaredDocs(query: z.ZodObject, components: Components): Json[] {
  return Object.entries(query.shape).map(([name, parameter]) => {
    const schema = parameter as z.ZodType;
    // A handler gets the typed value, so the output describes what the text means.
    const { description, ...shape } = toSchema(schema, 'output', components);
    const required = !schema.safeParse(undefined).success;
    return { name, in: 'query', required, description, schema: shape };
  });
}

function headerDocs(headers: Route['headers'] = {}): Json[] {
  return Object.entries(headers).map(([name, { description, required = false, example, ...bounds }]) => {
    const shown = example === undefined ? {} : { example };
    return { name, in: 'header', required, description, schema: { type: 'string', ...bounds }, ...shown };
  });
}
