import type { JsonObject, JsonValue } from '@granary/shared/json/value';
import type { FieldType } from '../values/field-type';
import { isNumberOperator } from '../views/language/aggregates';
import { rowProjection } from '../views/language/view-query';
import type { CollectionTypes } from './collection-types';
import { documentSchema, fieldSchema, objectSchema, type Members } from './schemas';
import type { Part } from './part';

/** The rows of a view. */
export interface RowTypes {
  schema: Part;
  typeOf: (path: readonly string[]) => FieldType;
}

/** The rows that the query of a view makes of the documents of its source; undefined where they are not shown. */
export function rowTypes(query: JsonObject, source: CollectionTypes | undefined): RowTypes {
  const groups = groupFields(query.get('group_by') ?? query.get('groupBy') ?? null);
  const aggregates = query.get('aggregate');
  const isGrouped = groups.length > 0 || (aggregates instanceof Map && aggregates.size > 0);
  const isJoined = query.get('join') instanceof Map;
  const aliases = aggregates instanceof Map ? [...aggregates.keys()] : [];
  const projection = rowProjection(query.get('select'), aliases);
  if (!isGrouped) {
    if (!source || isJoined) return { schema: { type: 'object' }, typeOf: () => 'any' };
    const { name, rules, indexed, typeOf } = source;
    const isWhole = projection === 'all';
    const whole = { $ref: `#/components/schemas/${name}` };
    return { schema: isWhole ? whole : documentSchema(rules, indexed, projection), typeOf };
  }
  const typeOf = (field: string): FieldType => (source && !isJoined ? source.typeOf(field.split('.')) : 'any');
  const columns = new Map<string, FieldType>(groups.map((field) => [field, typeOf(field)]));
  const schemas = new Map<string, Members>(groups.map((field) => [field, fieldSchema(typeOf(field))]));
  for (const [alias, definition] of aggregates instanceof Map ? aggregates : []) {
    const [entry] = definition instanceof Map ? [...definition] : [];
    const [operator = '', field = ''] = entry ?? [];
    const type = aggregateType(operator, typeof field === 'string' ? typeOf(field) : 'any');
    columns.set(alias, type);
    schemas.set(alias, aggregateSchema(operator, type));
  }
  // A row has all its columns; one without a value is null.
  const schema = objectSchema(schemas, new Set(schemas.keys()), projection);
  return { schema, typeOf: (path) => columns.get(path.join('.')) ?? 'any' };
}

function groupFields(value: JsonValue): string[] {
  const names = typeof value === 'string' ? value.split(',').map((name) => name.trim()) : value;
  return Array.isArray(names) ? names.filter((name) => typeof name === 'string' && name !== '').map(String) : [];
}

const aggregateType = (operator: string, field: FieldType): FieldType =>
  isNumberOperator(operator) ? 'number' : field;

function aggregateSchema(operator: string, type: FieldType): Members {
  if (operator === '$sum') return { type: 'number' };
  return operator.startsWith('$count') ? { type: 'integer', minimum: 0 } : fieldSchema(type);
}
