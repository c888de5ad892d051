import type { FieldType } from '../values/field-type';
import { JsonNumber, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { toJson, type Part } from './part';

/** A field of documents, with those below it. */
interface FieldNode {
  own: Members | undefined;
  below: Map<string, FieldNode>;
}

export type Members = { readonly [name: string]: Part };

const newNode = (): FieldNode => ({ own: undefined, below: new Map() });

/**
 * The schema of the documents of a collection: fields with their rules, and indexed fields with the types of their
 * indexes. Nothing is required, because a reader may select fields.
 */
export function documentSchema(rules: JsonObject, indexed: ReadonlyMap<string, FieldType>): Part {
  const fields = new Map<string, Members>();
  for (const [name, rule] of rules) if (rule instanceof Map) fields.set(name, ruleSchema(rule));
  for (const [name, type] of indexed) {
    if (fields.has(name)) continue;
    fields.set(name, {
      ...fieldSchema(type),
      description: 'Indexed; its type is not checked when a document is stored',
    });
  }
  fields.set('id', { type: 'string', description: 'Unique in the collection' });
  return objectSchema(fields);
}

/** An object with fields by their paths. */
export function objectSchema(fields: ReadonlyMap<string, Members>): Part {
  const root = newNode();
  for (const [name, schema] of fields) add(root, name, schema);
  return { type: 'object', properties: propertiesOf(root) };
}

function add(root: FieldNode, name: string, schema: Members): void {
  const steps = name.split('.');
  // A number may be a step into an array, which is no member of an object.
  if (steps.slice(1).some((step) => /^\d+$/.test(step))) return;
  let node = root;
  for (const step of steps) {
    let next = node.below.get(step);
    if (!next) node.below.set(step, (next = newNode()));
    node = next;
  }
  node.own = schema;
}

function propertiesOf({ below }: FieldNode): JsonObject {
  return new Map([...below].map(([name, node]) => [name, toJson(schemaOf(node))]));
}

function schemaOf(node: FieldNode): Part {
  if (node.below.size === 0) return node.own;
  const { type = ['object', 'null'], ...keywords } = node.own ?? {};
  const isObject = Array.isArray(type) ? type.includes('object') : type === 'object';
  return isObject ? { ...keywords, type, properties: propertiesOf(node) } : node.own;
}

const jsonTypes = {
  string: 'string',
  date: 'string',
  day: 'string',
  number: 'number',
  integer: 'integer',
  boolean: 'boolean',
} as const;

const formats: Readonly<Partial<Record<FieldType, string>>> = { date: 'date-time', day: 'date' };

/** The schema of a value of a field, as a query string can carry it. */
export function scalarSchema(type: FieldType): Members {
  if (type === 'any') return { type: ['string', 'number', 'boolean'] };
  return { type: jsonTypes[type], format: formats[type] };
}

/** The schema of a field in a document, where it may be null. */
export const fieldSchema = (type: FieldType): Members =>
  type === 'any' ? {} : { ...scalarSchema(type), type: [jsonTypes[type], 'null'] };

/** The schema of a field by its rule in a `schema_definition`. What is not required may be null. */
function ruleSchema(rule: JsonObject): Members {
  const type = rule.get('type') as string;
  const validation = rule.get('validation');
  const checks = validation instanceof Map ? validation : new Map<string, JsonValue>();
  const isRequired = rule.get('required') === true;
  const description = rule.get('description');
  const allowed = checks.get('enum');
  const pattern = checks.get('pattern');
  const jsonType = type === 'date' ? 'string' : type;
  const isDay = rule.get('format') === 'day';
  return {
    type: isRequired ? jsonType : [jsonType, 'null'],
    ...(type === 'date' && { format: isDay ? formats.day : formats.date }),
    ...boundsOf(type, checks),
    ...(typeof pattern === 'string' && isPattern(pattern) && { pattern }),
    ...(Array.isArray(allowed) && { enum: isRequired || allowed.includes(null) ? allowed : [...allowed, null] }),
    ...(typeof description === 'string' && { description }),
    ...(hasValue(rule.get('default')) && { default: rule.get('default') }),
  };
}

const hasValue = (value: JsonValue | undefined): boolean => value !== undefined && value !== null;

const boundNames: Readonly<Record<string, readonly [string, string]>> = {
  number: ['minimum', 'maximum'],
  integer: ['minimum', 'maximum'],
  string: ['minLength', 'maxLength'],
  array: ['minItems', 'maxItems'],
};

function boundsOf(type: string, checks: JsonObject): Members {
  const names = boundNames[type];
  if (!names) return {};
  const bounds: { [name: string]: Part } = {};
  for (const [index, key] of (['min', 'max'] as const).entries()) {
    const bound = checks.get(key);
    // The bounds of a length are whole numbers in JSON Schema.
    if (bound instanceof JsonNumber && (type === 'number' || type === 'integer' || /^\d+$/.test(bound.text)))
      bounds[names[index]!] = bound;
  }
  return bounds;
}

/** Whether RE2 syntax means the same in JSON Schema, as far as the syntax shows it. */
function isPattern(text: string): boolean {
  if (/\(\?[^:]|\\[AzQECpP]|\[\[:/.test(text)) return false;
  try {
    new RegExp(text, 'u');
    return true;
  } catch {
    return false;
  }
}
