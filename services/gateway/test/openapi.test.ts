import type { z } from 'zod';
import {
  exampleIn,
  responseIn,
  type OpenapiDocument,
  type Operation,
  type Schema,
} from '@granary/gateway/docs/document';
import { openapiDocument } from '@granary/gateway/openapi/document';
import { routes } from '@granary/gateway/routes/table';

const document = openapiDocument(routes) as unknown as OpenapiDocument;
const operations = Object.values(document.paths).flatMap((methods): Operation[] => Object.values(methods));
const routeOf = ({ operationId }: Operation) => routes.find(({ id }) => id === operationId)!;
const jsonTypes = ({ responses }: Operation) =>
  Object.entries(responses).flatMap(([status, response]) => {
    const content = responseIn(document, response).content ?? {};
    return status.startsWith('2') && content['application/json'] ? [[status, content] as const] : [];
  });

/** Every schema in a value, with where it is. */
function schemasIn(value: unknown, at: string): Array<[string, Schema]> {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, member]) => [
    ...(key === 'properties'
      ? Object.entries(member as Record<string, Schema>).map(([name, schema]): [string, Schema] => [
          `${at}.${name}`,
          schema,
        ])
      : []),
    ...schemasIn(member, key === 'properties' ? at : `${at}.${key}`),
  ]);
}

const fields = [
  ...operations.flatMap((operation) => [
    ...schemasIn(operation.requestBody, `${operation.operationId} body`),
    ...jsonTypes(operation).flatMap(([status, content]) => schemasIn(content, `${operation.operationId} ${status}`)),
  ]),
  ...Object.entries(document.components.schemas).flatMap(([name, schema]) => schemasIn(schema, name)),
];

/** By itself, or as the named schema that it is. */
function isDescribed({ description, $ref, anyOf }: Schema): boolean {
  return description !== undefined || $ref !== undefined || (anyOf ?? []).some((one) => one.$ref !== undefined);
}

test('every field of every body, every parameter and every operation is described', () => {
  expect(fields.length).toBeGreaterThan(200);
  const parameters = operations.flatMap((operation) => operation.parameters.map((one) => [operation, one] as const));
  expect([
    ...fields.filter(([, schema]) => !isDescribed(schema)).map(([at]) => at),
    ...parameters
      .filter(([, { description }]) => !description)
      .map(([{ operationId }, { name }]) => [operationId, name]),
    ...operations.filter(({ description }) => !description).map(({ operationId }) => operationId),
    ...document.tags.filter(({ description }) => !description).map(({ name }) => name),
  ]).toEqual([]);
});

test('every body that must be sent has an example', () => {
  const without = operations.filter(({ requestBody }) => {
    if (!requestBody?.required) return false;
    const [type] = Object.keys(requestBody.content);
    return type === 'application/json' && requestBody.content[type]!.example === undefined;
  });
  expect(without.map(({ operationId }) => operationId)).toEqual([]);
});

test('every JSON answer has an example, which the schema of the route takes', () => {
  for (const operation of operations) {
    for (const [status, content] of jsonTypes(operation)) {
      const schema = routeOf(operation).responses[Number(status)]!.schema as z.ZodType;
      const example = exampleIn(content, document);
      expect([operation.operationId, status, example]).not.toEqual([operation.operationId, status, undefined]);
      expect([operation.operationId, schema.safeParse(example).error]).toEqual([operation.operationId, undefined]);
    }
  }
});

test('every answer with a body has an example at its media type', () => {
  for (const { operationId, responses } of operations) {
    for (const [status, response] of Object.entries(responses)) {
      for (const [type, { example, examples }] of Object.entries(responseIn(document, response).content ?? {})) {
        expect([operationId, status, type, example ?? examples]).not.toEqual([operationId, status, type, undefined]);
        // The examples by name are those of errors.
        const isError = status === 'default' || Number(status) >= 400;
        if (!isError) expect([operationId, status, examples]).toEqual([operationId, status, undefined]);
      }
    }
  }
});

test('every operation that may write declares 507, and the document its path without a prefix', () => {
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, { responses }] of Object.entries(methods)) {
      expect([method, path, '507' in responses]).toEqual([method, path, method !== 'get']);
    }
  }
  expect(document.paths).toHaveProperty(['/openapi.json', 'get']);
});

test('every time is marked as one, and every error says what its code can be', () => {
  const times = fields.filter(([at]) => /_at$/.test(at));
  expect(times.length).toBeGreaterThan(10);
  for (const [at, schema] of times) {
    const formats = [schema, ...(schema.anyOf ?? [])].map(({ format }) => format);
    expect([at, formats.includes('date-time')]).toEqual([at, true]);
  }
  for (const { operationId, responses } of operations) {
    const errors = Object.entries(responses).filter(([status]) => /^[45]/.test(status));
    expect([operationId, errors.some(([status]) => status.startsWith('4'))]).toEqual([operationId, true]);
    for (const [status, response] of errors) {
      const { description, content } = responseIn(document, response);
      if (!Object.keys(content ?? {}).includes('application/json') || operationId.startsWith('get')) continue;
      expect([operationId, status, description]).toEqual([operationId, status, expect.stringMatching(/`[A-Z_]+`/)]);
    }
  }
});

test('what pages declares how: the reserved parameters beside the free ones, within their bounds', () => {
  const declared = (id: string) =>
    Object.fromEntries(operations.find((one) => one.operationId === id)!.parameters.map((one) => [one.name, one]));
  const page = ['limit', 'offset', 'cursor', 'count'];
  for (const [id, names, free] of [
    ['readCollection', [...page, 'sort', 'select'], 'filters'],
    ['readView', [...page, 'sort', 'select', 'filter'], 'variables'],
    ['runQuery', page, 'parameters'],
  ] as const) {
    const parameters = declared(id);
    expect(Object.keys(parameters)).toEqual(expect.arrayContaining([...names, free]));
    expect(parameters['limit']!.schema).toMatchObject({ type: 'integer', minimum: 1, maximum: 10_000, default: 100 });
    expect(parameters[free]).toMatchObject({ style: 'form', explode: true, schema: { type: 'object' } });
  }
});

test('generators understand every pattern', () => {
  const patterns = JSON.stringify(document).match(/"pattern":"[^"]*"/g)!;
  expect(patterns.length).toBeGreaterThan(20);
  for (const pattern of patterns) {
    expect(pattern).not.toMatch(/\\\\(?:p\{|0|[dwsDWS](?![a-z]))|\(\?/);
    const { pattern: text } = JSON.parse(`{${pattern}}`) as { pattern: string };
    expect(() => new RegExp(text)).not.toThrow();
  }
});
