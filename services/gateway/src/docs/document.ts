/** An OpenAPI 3.1 document, as far as ours uses the standard. */
export interface OpenapiDocument {
  info: { title: string; version: string; description: string };
  /** The tags of operations, in the order of presentation. */
  tags: Array<{ name: string; description: string }>;
  /** The operations, by path and method. */
  paths: Record<string, Record<string, Operation>>;
  components: {
    schemas: Record<string, Schema>;
    responses: Record<string, Response>;
    securitySchemes: Record<string, SecurityScheme>;
  };
}

export interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  /** Alternatives; each needs all of its schemes. */
  security: Array<Record<string, string[]>>;
  parameters: Parameter[];
  requestBody?: { required: boolean; content: Content };
  responses: Record<string, Response | { $ref: string }>;
}

export interface Response {
  description: string;
  headers?: Record<string, { description?: string }>;
  content?: Content;
}

/** Resolves a reference to a response. */
export function responseIn(document: OpenapiDocument, response: Response | { $ref: string }): Response {
  if (!('$ref' in response)) return response;
  return document.components.responses[response.$ref.slice(response.$ref.lastIndexOf('/') + 1)]!;
}

/** The example of a body: its own, or that of its named schema or of the named schema of its elements. */
export function exampleIn(content: Content | undefined, { components }: OpenapiDocument): unknown {
  const [type] = Object.values(content ?? {});
  if (type === undefined) return undefined;
  if (type.example !== undefined) return type.example;
  const named = ({ $ref }: Schema) =>
    $ref === undefined ? undefined : components.schemas[$ref.slice($ref.lastIndexOf('/') + 1)]?.examples?.[0];
  const element = type.schema.items && named(type.schema.items);
  return element === undefined ? named(type.schema) : [element];
}

export interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  description?: string;
  example?: string;
  explode?: boolean;
  schema: Schema;
}

/** The schema and examples of a body, by media type. */
export type Content = Record<string, MediaType>;

export interface MediaType {
  schema: Schema;
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}

export type SecurityScheme = { description?: string } & (
  { type: 'apiKey'; in: 'header'; name: string } | { type: 'http'; scheme: 'bearer' }
);

export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  const?: unknown;
  enum?: unknown[];
  examples?: unknown[];
  default?: unknown;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  required?: string[];
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
}

/** The alternatives of a schema, without null. */
export function variantsOf(schema: Schema): Schema[] {
  const { anyOf, type } = schema;
  if (anyOf) return anyOf.flatMap(variantsOf);
  if (Array.isArray(type)) return type.flatMap((one) => variantsOf({ ...schema, type: one }));
  return type === 'null' ? [] : [schema];
}
