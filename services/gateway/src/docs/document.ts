/** What the page reads of an OpenAPI 3.1 document: the part of the standard that ours makes use of. */
export interface OpenapiDocument {
  info: { title: string; version: string; description: string };
  tags: Array<{ name: string }>;
  /** By path and method. */
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema>; securitySchemes: Record<string, SecurityScheme> };
}

export interface Operation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  /** Either of them is enough, all within one are needed. */
  security: Array<Record<string, string[]>>;
  parameters: Parameter[];
  requestBody?: { required: boolean; content: Content };
  responses: Record<string, { description: string; content?: Content }>;
  /** Id of the operation that this one is under another path. */
  'x-alias-of'?: string;
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

/** What a body may be, by media type. */
export type Content = Record<string, { schema: Schema; example?: unknown }>;

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
