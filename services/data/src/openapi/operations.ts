import type { JsonObject, JsonValue } from '@granary/shared/json/value';
import { numberOfText, parseLimit, parseSelect } from '../query/language/paging';
import type { FieldType } from '../values/field-type';
import type { CollectionTypes } from './collection-types';
import {
  readDefinition,
  readObject,
  type DescribedCollection,
  type DescribedQuery,
  type DescribedView,
} from './content';
import { filterParameter, limitParameter } from './parameters';
import { documentSchema } from './schemas';
import type { Part } from './part';
import { pageHeaders, pageSchemaName, type SharedName } from './shared-components';
import { rowTypes } from './view-rows';

/** An operation with the schema of its records, and the shared components that it refers to. */
export interface Described {
  path: string;
  operation: Part;
  schema?: { name: string; value: Part };
  shared: SharedName[];
}

type Types = ReadonlyMap<string, CollectionTypes>;

/** Parameters of endpoint 3 that name no field. */
const reserved = ['limit', 'offset', 'cursor', 'count', 'sort', 'select'] as const;
const paging = ['limit', 'offset', 'cursor', 'count'] as const;

const anyType = (): FieldType => 'any';

export function collectionOperation(
  appId: string,
  { name, isPrivate }: DescribedCollection,
  { rules, indexed, typeOf }: CollectionTypes,
): Described {
  const filters = ['id', ...indexed.keys()].flatMap((field) => {
    // No parameter can name a field whose step reads as an operator.
    if (field.split('.').some((step) => step.startsWith('$'))) return [];
    // A field with the name of a reserved parameter is reached by an operator.
    const parameter = (reserved as readonly string[]).includes(field) ? `${field}.$eq` : field;
    return [filterParameter(parameter, parameter, typeOf)];
  });
  return operationOf({
    path: `/api/apps/${appId}/collections/${name}/data`,
    id: `read_${name}`,
    tag: 'Collections',
    summary: `Read the collection ${name}`,
    parameters: filters,
    shared: [...reserved, 'filters'],
    isPrivate,
    record: { $ref: `#/components/schemas/${name}` },
    schema: { name, value: documentSchema(rules, indexed) },
  });
}

export function viewOperation(
  appId: string,
  { name, isPrivate, sources, queryText, variablesText }: DescribedView,
  types: Types,
): Described {
  const query = readObject(queryText);
  const base = query.get('base');
  const source = types.get(typeof base === 'string' ? base : (sources[0] ?? ''));
  const rows = rowTypes(query, sources.length === 1 ? source : undefined);
  const variables = [...readObject(variablesText)].map(([variable, path]) =>
    filterParameter(variable, path as string, rows.typeOf),
  );
  return operationOf({
    path: `/api/views/${appId}/${name}/data`,
    id: `view_${name}`,
    tag: 'Views',
    summary: `Read the view ${name}`,
    parameters: variables,
    shared: [...reserved, 'filter'],
    isPrivate,
    record: { $ref: `#/components/schemas/${name}` },
    schema: { name, value: rows.schema },
  });
}

export function queryOperation(
  appId: string,
  { name, isPrivate, source, description, baseQueryText, parametersText, versions }: DescribedQuery,
  types: Types,
): Described {
  const baseQuery = readObject(baseQueryText);
  const baseLimit = baseQuery.get('limit') ?? undefined;
  const pageMax = baseLimit === undefined ? undefined : parseLimit(baseLimit);
  const sourceTypes = types.get(source);
  const typeOf = sourceTypes?.typeOf ?? anyType;
  const declared = readDefinition(parametersText) as JsonObject[];
  const parameters = declared.map((parameter) => declaredParameter(parameter, typeOf, pageMax));
  const ownLimit = declared.some((parameter) => parameter.get('name') === 'limit');
  if (!ownLimit && pageMax !== undefined) parameters.push(limitParameter('limit', pageMax, pageMax));
  const hasLimit = ownLimit || pageMax !== undefined;
  return operationOf({
    path: `/api/queries/${appId}/${name}/data`,
    id: `run_${name}`,
    tag: 'Predefined queries',
    summary: `Run the query ${name}`,
    description,
    parameters,
    shared: [
      ...paging.filter((one) => one !== 'limit' || !hasLimit),
      ...(versions.length > 1 ? ['version' as const] : []),
    ],
    isPrivate,
    record: queryRecord(baseQuery, sourceTypes),
  });
}

/** A record of a query: a document of its source, or what it selects of that. */
function queryRecord(baseQuery: JsonObject, source: CollectionTypes | undefined): Part {
  if (!source || hasJoin(baseQuery.get('find') ?? null)) return { type: 'object' };
  const projection = parseSelect(baseQuery.get('select'));
  if (projection === 'all') return { $ref: `#/components/schemas/${source.name}` };
  return documentSchema(source.rules, source.indexed, projection);
}

function declaredParameter(
  parameter: JsonObject,
  typeOf: (path: readonly string[]) => FieldType,
  pageMax: number | undefined,
): Part {
  const name = parameter.get('name') as string;
  const fieldPath = parameter.get('field_path') as string;
  const isRequired = parameter.get('required') === true;
  const fallback = parameter.get('default') ?? undefined;
  if (fieldPath === 'limit') {
    const number =
      fallback === undefined ? pageMax : parseLimit(typeof fallback === 'string' ? numberOfText(fallback) : fallback);
    return limitParameter(name, pageMax, number, isRequired && fallback === undefined);
  }
  const description = parameter.get('description');
  return filterParameter(name, fieldPath, typeOf, {
    isRequired: isRequired && fallback === undefined,
    ...(typeof description === 'string' && { description }),
    ...(fallback !== undefined && { fallback }),
  });
}

/** Whether a `find` adds members of other collections to its records. */
function hasJoin(find: JsonValue): boolean {
  if (Array.isArray(find)) return find.some(hasJoin);
  if (!(find instanceof Map)) return false;
  return (find.has('resolve') && find.has('model')) || [...find.values()].some(hasJoin);
}

interface Operation {
  path: string;
  id: string;
  tag: string;
  summary: string;
  description?: string;
  parameters: readonly Part[];
  shared: SharedName[];
  isPrivate: boolean;
  /** The schema of a record. */
  record: Part;
  schema?: { name: string; value: Part };
}

function operationOf({ path, schema, isPrivate, ...details }: Operation): Described {
  const { id, tag, summary, description, parameters, record } = details;
  const shared: SharedName[] = [...details.shared, 'ifNoneMatch'];
  const refined = { type: 'object', properties: { records: { type: 'array', items: record } } };
  const page = { allOf: [{ $ref: `#/components/schemas/${pageSchemaName}` }, refined] };
  const response = (name: string): Part => ({ $ref: `#/components/responses/${name}` });
  const operation = {
    operationId: id,
    summary,
    ...(description && { description }),
    tags: [tag],
    security: isPrivate ? [{ appKey: [] }] : [],
    parameters: [...parameters, ...shared.map((name) => ({ $ref: `#/components/parameters/${name}` }))],
    responses: {
      '200': {
        description: 'A page of records',
        headers: pageHeaders,
        content: { 'application/json': { schema: page } },
      },
      '304': response('Unchanged'),
      '400': response('Invalid'),
      ...(isPrivate && { '401': response('Unauthorized') }),
      '404': response('NotFound'),
      default: response('Other'),
    },
  };
  return { path, operation, ...(schema && { schema }), shared: isPrivate ? [...shared, 'appKey'] : shared };
}
