import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import { parseName } from '../query/language/path';
import type { Operator } from '../query/language/operator';
import { isWhole } from '../values/decimal';
import { limitMax } from '../query/language/paging';
import type { FieldType } from '../values/field-type';
import { scalarSchema } from './schemas';
import type { Part } from './part';

/** A parameter in the query string. */
export function urlParameter(name: string, schema: Part, description: string, required = false): Part {
  return { name, in: 'query', required, description, schema };
}

/** The schema of the operand of a condition in a query string, by its operator and the type of its field. */
function operandSchema(operator: Operator | undefined, type: FieldType): { [name: string]: Part } {
  switch (operator?.operand) {
    case 'flag':
      return { type: 'boolean' };
    case undefined:
    case 'value':
      return { ...scalarSchema(type) };
    default:
      return { type: 'string' };
  }
}

const listText: Partial<Record<Operator['operand'], string>> = {
  list: '; values separated by commas',
  pair: '; two values separated by a comma',
};

/** A parameter that filters a field: a path, perhaps with an operator at its end. */
export function filterParameter(
  name: string,
  fieldPath: string,
  typeOf: (path: readonly string[]) => FieldType,
  { description, fallback, isRequired }: { description?: string; fallback?: JsonValue; isRequired?: boolean } = {},
): Part {
  const { path, operator } = parseName(fieldPath, 'field_path');
  const schema = operandSchema(operator, typeOf(path));
  const values = operator === undefined ? '' : (listText[operator.operand] ?? '');
  const text = `${description ? `${description}. ` : ''}Filters \`${fieldPath}\`${values}`;
  const isDefault = fallback !== undefined && fallback !== null && isOfType(fallback, schema['type']);
  return urlParameter(name, isDefault ? { ...schema, default: fallback } : schema, text, isRequired);
}

function isOfType(value: JsonValue, type: Part): boolean {
  if (value instanceof JsonNumber && type === 'integer') return isWhole(value.text);
  const valueType = value instanceof JsonNumber ? 'number' : typeof value;
  return Array.isArray(type) ? type.includes(valueType) : type === valueType;
}

/** The limit of a page, of at most as many records as the query allows. */
export function limitParameter(
  name: string,
  pageMax: number | undefined,
  fallback: number | undefined,
  isRequired = false,
): Part {
  const schema = { type: 'integer', minimum: 1, maximum: pageMax ?? limitMax, default: fallback };
  return urlParameter(name, schema, 'Records of the page, at most', isRequired);
}
