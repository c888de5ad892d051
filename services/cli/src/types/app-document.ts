import type { Schema } from './schema-type.ts';

/** A parameter of a view or a query; those that all operations share are references. */
export interface Parameter {
  $ref?: string;
  name: string;
  required?: boolean;
  description?: string;
  schema: Schema;
}

/** A collection, a view or a query as the OpenAPI document of its app has it. */
export interface Described {
  name: string;
  description: string | undefined;
  /** The schema of its documents, rows or records. A reference is to the documents of a collection. */
  record: Schema;
  parameters: readonly Parameter[];
}

export interface AppDocument {
  collections: readonly Described[];
  views: readonly Described[];
  queries: readonly Described[];
  /** The parts that the document has no room for, such as `2 collections`; undefined if it has all. */
  omitted: string | undefined;
}

interface Operation {
  operationId?: string;
  description?: string;
  parameters?: readonly Parameter[];
  responses?: { '200'?: { content?: { 'application/json'?: { schema?: { allOf?: readonly Schema[] } } } } };
}

interface OpenapiDocument {
  info?: { description?: string };
  paths?: Record<string, { get?: Operation }>;
  components?: { schemas?: Record<string, Schema> };
}

const schemaReference = '#/components/schemas/';

/** The name of the collection whose documents a schema refers to. */
export const referencedName = ({ $ref }: Schema): string | undefined =>
  $ref?.startsWith(schemaReference) ? $ref.slice(schemaReference.length) : undefined;

/** Reads `GET /api/apps/:app_id/openapi.json`. Throws a TypeError for another document. */
export function readAppDocument(value: unknown): AppDocument {
  const { info, paths, components } = (value ?? {}) as OpenapiDocument;
  if (paths === undefined || components === undefined) throw new TypeError('That is no OpenAPI document');
  const operations = Object.values(paths).flatMap(({ get }) => (get ? [get] : []));
  const schemas = new Map(Object.entries(components.schemas ?? {}));
  const kind = (prefix: string, recordOf: (operation: Operation, name: string) => Schema | undefined): Described[] =>
    operations.flatMap((operation) => {
      const { operationId = '', description, parameters = [] } = operation;
      if (!operationId.startsWith(prefix)) return [];
      const name = operationId.slice(prefix.length);
      const ofItself = parameters.filter(({ $ref }) => $ref === undefined);
      return [{ name, description, record: recordOf(operation, name) ?? { type: 'object' }, parameters: ofItself }];
    });
  return {
    collections: kind('read_', (_, name) => schemas.get(name)),
    views: kind('view_', (_, name) => schemas.get(name)),
    queries: kind('run_', recordOfPage),
    omitted: /(?:^|\n)Left out, because they are too many: ([^\n]+)\.$/.exec(info?.description ?? '')?.[1],
  };
}

function recordOfPage({ responses }: Operation): Schema | undefined {
  const page = responses?.['200']?.content?.['application/json']?.schema?.allOf?.[1];
  return (page?.properties?.['records'] as { items?: Schema } | undefined)?.items;
}
